"""What the report says in words and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.results.asked import asked
from fabric_emu.results.columns import (
    Column,
    Summary,
    by_scheme,
    cell,
    columns,
    judging,
    median,
    worst_rows,
)
from fabric_emu.results.describe import nodes, rates
from fabric_emu.results.entries import Entry, label_of, run_names
from fabric_emu.results.fault_columns import fault_columns
from fabric_emu.results.figures import count, percent, printable
from fabric_emu.results.remarks import expectation_lines, prediction_lines, verdict_lines
from fabric_emu.results.run import RunResult
from fabric_emu.results.sentences import over_seeds, sentence
from fabric_emu.results.summaries import figure_of

_ELSEWHERE = ("title", "seed")
"""What is asked and stands in the page's head."""


def text_of(runs: Sequence[RunResult], entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the page's template fills in, pictures aside."""
    titles = dict.fromkeys(printable(run.scenario["title"]) for run in runs)
    names = run_names(runs) if len(runs) > 1 else [""]
    return {
        "title": " | ".join(titles),
        "subtitle": _subtitle(runs),
        "runs": [_run(name, run) for name, run in zip(names, runs, strict=True)],
        "outcomes": [_outcome(entry) for entry in entries],
        "table": _table(names, runs, entries) if entries else None,
        "faults": _fault_table(names, runs, entries) if entries else None,
        "drawn_seed": _drawn_seed(entries),
        "checks": _checks(entries),
        "uplinks": [_uplinks(entry) for entry in entries if entry.summary["uplinks"]],
        "version": _version(),
    }


def _subtitle(runs: Sequence[RunResult]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    (run,) = runs
    topology = Scenario.model_validate(run.scenario).topology
    seed = f"seed {run.seed}"
    if len(run.seeds) > 1:
        seed = f"seeds {run.seed} to {run.seeds[-1]}"
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    return f"{nodes(topology)}; {rates(topology)}; {seed}; {run.name}, {started}"


def _run(name: str, run: RunResult) -> dict[str, Any]:
    scenario = Scenario.model_validate(run.scenario)
    lines = [*verdict_lines(run), *prediction_lines(run), *expectation_lines(run)]
    # Without a scheme there is nothing to trust or to doubt.
    remarks = [
        {"text": line.plain.strip(), "detail": line.plain.startswith(" ")}
        for line in (lines if run.schemes else [])
    ]
    return {
        "name": name,
        "title": printable(scenario.title),
        "ended": _ended(run),
        "doubtful": run.status != "complete" or not run.expectations_hold or not run.trustworthy,
        "remarks": remarks,
        "claim": scenario.claim.strip(),
        "source": scenario.source.strip(),
        "asked": [line for line in asked(scenario) if line[0] not in _ELSEWHERE],
        "settings": [(scheme.name, _settings(scheme)) for scheme in scenario.schemes],
        "machine": _machine(run.machine),
    }


def _settings(scheme: Scheme) -> str:
    """Return what a scheme sets other than the defaults, as a scenario has it."""
    changed = scheme.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return json.dumps(changed).replace('"', "") if changed else "all defaults"


def _ended(run: RunResult) -> str:
    """Return how a run ended that is not complete."""
    if run.status == "complete":
        return ""
    if run.status == "partial":
        return "This run was interrupted; what follows is what it had done by then."
    return f"This run broke: {printable(run.error) or 'it is not known why'}"


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the run stood on, nested values flattened."""
    lines = []
    for name, value in machine.items():
        if isinstance(value, Mapping):
            lines += [(str(key), str(item)) for key, item in value.items()]
        else:
            lines.append((str(name), str(value)))
    return lines


def _outcome(entry: Entry) -> dict[str, Any]:
    workload = Scenario.model_validate(entry.saved.run.scenario).workload
    collective = workload.collective if isinstance(workload, Messages) else ""
    text = sentence(entry.summary, entry.topology, collective)
    rows = [row for row in entry.saved.run.schemes if row["name"] == entry.saved.name]
    return {
        "label": entry.label,
        "colour": entry.colour,
        "sentence": f"{text} {over_seeds(rows)}".strip(),
        "trustworthy": entry.summary["verdict"]["trustworthy"],
    }


def _table(
    names: Sequence[str], runs: Sequence[RunResult], entries: Sequence[Entry]
) -> dict[str, Any]:
    shown = columns([row for run in runs for row in run.schemes], ascii_only=False)
    judged = judging(shown)
    rows = []
    for label, colour, worst, summaries in _rows(names, runs, entries):
        good = sum(summary["verdict"]["trustworthy"] for summary in summaries)
        trust = "yes" if good else "no"
        rows.append(
            {
                "label": label,
                "colour": colour,
                "cells": [_cell(one, summaries, worst and one is judged) for one in shown],
                "trusted": good == len(summaries),
                "trust": trust if len(summaries) == 1 else f"{good} of {len(summaries)}",
            }
        )
    return {"headers": _headers(shown), "rows": rows, "note": _table_note(runs)}


def _fault_table(
    names: Sequence[str], runs: Sequence[RunResult], entries: Sequence[Entry]
) -> dict[str, Any] | None:
    """Return what recovery took, as a table; None when there was nothing to recover from."""
    every = [row for run in runs for row in run.schemes]
    shown = fault_columns(every, ascii_only=False)
    if not shown:
        return None
    rows = [
        {
            "label": label,
            "colour": colour,
            "cells": [_cell(column, summaries, worst=False) for column in shown],
        }
        for label, colour, _, summaries in _rows(names, runs, entries)
        if any("recovery" in summary for summary in summaries)
    ]
    gpus = {count(value) for row in every if (value := figure_of(row, "training.gpus"))}
    note = "Times count from the first fault on."
    if gpus:
        note += f" GPU time is that of {' or '.join(sorted(gpus))} GPUs that wait for the job."
    return {"headers": _headers(shown), "rows": rows, "note": note}


def _rows(
    names: Sequence[str], runs: Sequence[RunResult], entries: Sequence[Entry]
) -> Iterator[tuple[str, str, bool, list[Summary]]]:
    """Yield label, colour, whether it did worst, and summaries of each scheme, as tables go."""
    colours = {entry.label: entry.colour for entry in entries}
    judged = columns([row for run in runs for row in run.schemes], ascii_only=False)
    for name, run in zip(names, runs, strict=True):
        if not run.schemes:
            continue
        schemes = by_scheme(run)
        worst = worst_rows(judged, list(schemes.values()))
        for i, (scheme, summaries) in enumerate(schemes.items()):
            label = label_of(name, scheme)
            yield label, colours.get(label, ""), i in worst, summaries


def _headers(shown: Sequence[Column]) -> list[dict[str, Any]]:
    return [{"lines": _heading(column.header), "meaning": column.meaning} for column in shown]


def _heading(header: str) -> list[str]:
    """Return the lines of a heading; a word that was cut to be narrow is whole."""
    return [line for line in header.replace("-\n", "").split("\n") if line]


def _cell(column: Column, rows: Sequence[Mapping[str, Any]], worst: bool) -> dict[str, Any]:
    text, spread = cell(column, rows)
    value = median(column, rows)
    return {
        "key": column.key,
        "value": "" if value is None else repr(value),
        "text": text,
        "spread": spread,
        "worst": worst,
    }


def _table_note(runs: Sequence[RunResult]) -> str:
    notes = ["Worst first; point at a heading for what it means."]
    if any(len(run.seeds) > 1 for run in runs):
        notes.append("Of several seeds the median and [least..most].")
    scales = {Scenario.model_validate(run.scenario).topology.scale for run in runs}
    slower = f"{scales.pop():,.0f} times" if len(scales) == 1 else "some"
    if slower != "1 times":
        notes.append(
            f"Times and rates are those of the emulated links, {slower} slower than what they "
            "stand for; ratios are the same."
        )
    return " ".join(notes)


def _drawn_seed(entries: Sequence[Entry]) -> str:
    several = [entry.saved for entry in entries if len(entry.saved.run.seeds) > 1]
    if not several:
        return ""
    return f"here and below: seed {several[0].seed}, the median one for {several[0].name}"


def _checks(entries: Sequence[Entry]) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """Return the checks of the verdicts: a row per check, a cell per entry."""
    found = [
        {check["name"]: check for check in entry.summary["verdict"]["checks"]} for entry in entries
    ]
    names = dict.fromkeys(name for checks in found for name in checks)
    return [(name, [_check(checks.get(name)) for checks in found]) for name in names]


def _check(check: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if check is None:
        return None
    return {
        "measured": _number(check["measured"]),
        "limit": _number(check["limit"]),
        "ok": check["ok"],
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _uplinks(entry: Entry) -> dict[str, Any]:
    links = [
        {
            "name": uplink["link"],
            "offered": percent(uplink["offered"], 1),
            "carried": percent(uplink["carried"], 1),
        }
        for uplinks in entry.summary["uplinks"].values()
        for uplink in uplinks
    ]
    return {"label": entry.label, "colour": entry.colour, "links": links}


def _version() -> str:
    try:
        return metadata.version("fabric-emu")
    except metadata.PackageNotFoundError:
        return "from its sources"
