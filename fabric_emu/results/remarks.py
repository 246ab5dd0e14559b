"""What to make of a run, in lines: can it be trusted, did it do as predicted and as expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from fabric_emu.results.figures import printable
from fabric_emu.results.run import RunResult

LINES_MAX = 8
"""Of each kind; the rest is in ``run.json``."""


def verdict_lines(run: RunResult) -> list[Text]:
    """Return the fidelity verdict; when it is doubtful, with every reason."""
    reasons = [
        Text(f"  {_name(run, summary)}: {printable(reason)}", style="yellow")
        for summary in run.schemes
        if not summary["verdict"]["trustworthy"]
        for reason in summary["verdict"]["reasons"] or ["no reason given"]
    ]
    if not reasons:
        return [Text("Verdict: trustworthy")]
    return [Text("Verdict: doubtful", style="bold yellow"), *_shortened(reasons)]


def prediction_lines(run: RunResult) -> list[Text]:
    """Return, per scheme, how many queue pairs took the path predicted for them.

    Schemes without a prediction come last, those with the same reason in one line.
    """
    lines = []
    without: dict[str, list[str]] = {}
    for name in dict.fromkeys(summary["name"] for summary in run.schemes):
        predictions = [row["prediction"] for row in run.schemes if row["name"] == name]
        offered = [prediction for prediction in predictions if prediction["offered"]]
        if offered:
            checked = sum(prediction["checked"] for prediction in offered)
            matched = sum(prediction["matched"] for prediction in offered)
            text = f"Prediction: {name}: {matched} of {checked} queue pairs took the predicted path"
            lines.append(Text(text, style="" if matched == checked else "bold red"))
        elif reason := predictions[0]["reason"]:
            without.setdefault(printable(reason), []).append(name)
    lines += [
        Text(f"Prediction: none for {', '.join(names)}: {reason}")
        for reason, names in without.items()
    ]
    return lines


def expectation_lines(run: RunResult) -> list[Text]:
    """Return whether the scenario's expectations hold, and those that do not."""
    judged = [(summary, one) for summary in run.schemes for one in summary["expectations"]]
    if not judged:
        return []
    failed = [(summary, one) for summary, one in judged if not one["holds"]]
    if not failed:
        return [Text(f"Expectations: all {len(judged)} hold")]
    lines = []
    for summary, one in failed:
        value = one["measured"]
        measured = "no such figure" if value is None else f"measured {value:.6g}"
        text = f"  {_name(run, summary)}: {one['figure']}: expected {one['bound']}, {measured}"
        lines.append(Text(text, style="red"))
    head = f"Expectations: {len(failed)} of {len(judged)} do not hold"
    return [Text(head, style="bold red"), *_shortened(lines)]


def _name(run: RunResult, summary: Mapping[str, Any]) -> str:
    name: str = summary["name"]
    return f"{name}, seed {summary['seed']}" if len(run.seeds) > 1 else name


def _shortened(lines: list[Text]) -> list[Text]:
    more = len(lines) - LINES_MAX
    return lines if more <= 1 else [*lines[:LINES_MAX], Text(f"  {more} more in run.json")]
