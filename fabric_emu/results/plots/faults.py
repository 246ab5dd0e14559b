"""Marks on a time axis where links failed and were mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric_emu.model.scenario import Scenario
from fabric_emu.results.entries import Entry
from fabric_emu.results.plots.plot import GREY

MARKS_MAX = 12
"""More would hide what they mark."""


def fault_marks(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return shapes and annotations for a layout; nothing when the entries had unlike faults."""
    faults = [Scenario.model_validate(entry.saved.run.scenario).faults for entry in entries]
    if not faults or any(one != faults[0] for one in faults):
        return {}
    moments: list[tuple[float, str]] = []
    for fault in faults[0]:
        moments.append((fault.at, f"{fault.place} {fault.action}"))
        if fault.duration is not None:
            moments.append((fault.at + fault.duration, f"{fault.place} mended"))
    moments = sorted(moments)[:MARKS_MAX]
    shapes = [
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1,
            "line": {"color": GREY, "width": 1, "dash": "dot"},
        }
        for at, _ in moments
    ]  # fmt: skip
    annotations = [
        {
            "x": at, "xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left",
            "text": text, "textangle": 90, "showarrow": False, "font": {"size": 10, "color": GREY},
        }
        for at, text in moments
    ]  # fmt: skip
    return {"shapes": shapes, "annotations": annotations} if moments else {}
