"""How much schemes vary from seed to seed."""

from __future__ import annotations

from collections.abc import Sequence

from fabric_emu.results.columns import by_scheme, columns, judging
from fabric_emu.results.entries import Entry, label_of, run_names
from fabric_emu.results.plots.plot import Axis, Panel, Plot, figure
from fabric_emu.results.run import RunResult


def seeds(runs: Sequence[RunResult], entries: Sequence[Entry]) -> Plot | None:
    """Return the judging figure of every scheme and seed; None when all runs had one seed."""
    if all(len(run.seeds) < 2 for run in runs):
        return None
    judged = judging(columns([row for run in runs for row in run.schemes], ascii_only=True))
    colours = {entry.label: entry.colour for entry in entries}
    traces = []
    for run_name, run in zip(run_names(runs), runs, strict=True):
        for name, rows in by_scheme(run).items():
            label = label_of(run_name if len(runs) > 1 else "", name)
            found = [(row["seed"], judged.figure(row)) for row in rows]
            traces.append(
                {
                    "type": "box",
                    "name": label,
                    "y": [value for _, value in found],
                    "text": [f"seed {seed}" for seed, _ in found],
                    "boxpoints": "all",
                    "pointpos": 0,
                    "jitter": 0.4,
                    "marker": {"color": colours.get(label, "#808890"), "size": 5},
                    "hovertemplate": "%{text}: %{y:.4~g}<extra>%{fullData.name}</extra>",
                }
            )
    title = judged.header.replace("\n", " ")
    return Plot(
        "seeds",
        "From seed to seed",
        f"A point per seed: {judged.meaning}. The box holds the middle half, its line the median.",
        {"": [Panel("", figure(traces, Axis(""), Axis(title, {"rangemode": "tozero"})))]},
    )
