"""How long each iteration of a training loop took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.results.entries import Entry, Floats
from fabric_emu.results.plots.plot import Axis, Panel, Plot, figure, numbers


def iterations(entries: Sequence[Entry]) -> Plot | None:
    """Return the plot; None when no scheme's workload had several iterations."""
    traces = []
    for entry in entries:
        taken = _iteration_s(entry.saved.messages)
        if len(taken) < 2:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": entry.label,
                "x": list(range(1, len(taken) + 1)),
                "y": numbers(taken),
                "line": {"color": entry.colour, "width": 1.8},
                "marker": _markers(taken),
                "hovertemplate": "iteration %{x}: %{y:.4~s}s<extra>%{fullData.name}</extra>",
            }
        )
    if not traces:
        return None
    x = Axis("iteration", {"tickformat": "d"})
    y = Axis("seconds", {"rangemode": "tozero"})
    return Plot(
        "iterations",
        "Time of each iteration",
        "From the end of the iteration before, computation included, until all that belongs to it "
        "had arrived. A line that ends with a cross is a job that got no further.",
        {"": [Panel("", figure(traces, x, y, legend=True))]},
    )


def _markers(taken: Floats) -> dict[str, Any]:
    """Return the marks of the points: a large cross where a job stopped, under the others' too."""
    stopped = np.isnan(np.append(taken[1:], 0.0)) & ~np.isnan(taken)
    return {
        "symbol": np.where(stopped, "x", "circle").tolist(),
        "size": np.where(stopped, 18, 6).tolist(),
        "opacity": 1,
        "line": {"width": 0},
    }


def _iteration_s(messages: dict[str, NDArray[Any]]) -> Floats:
    """Return (iterations,) times; NaN for those that did not end."""
    of = messages.get("collective_iteration", np.empty(0, np.int64))
    if not len(of):
        return np.empty(0)
    end = np.full(int(of.max()) + 1, -np.inf)
    taken = messages["collective_begin_s"] + messages["collective_taken_s"]
    np.maximum.at(end, of, np.where(np.isnan(taken), np.inf, taken))
    end[np.isinf(end)] = np.nan
    return np.diff(end, prepend=0.0)
