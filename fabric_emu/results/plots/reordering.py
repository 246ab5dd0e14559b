"""Reorder density and reorder buffer over all flows (RFC 5236)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.results.entries import Entry, Floats
from fabric_emu.results.plots.plot import Axis, Figure, Panel, Plot, figure, numbers

POINTS_MAX = 400


def reordering(entries: Sequence[Entry]) -> Plot | None:
    """Return the plot; None when nothing was received."""
    measured = [entry for entry in entries if len(entry.saved.reordering.get("displacement", ()))]
    if not measured:
        return None
    density = _figure(
        measured, "displacement", "displacement_share", "places late (early: negative)", "packets"
    )
    buffer = _figure(measured, "waiting_packets", "waiting_share", "packets waiting", "arrivals")
    return Plot(
        "reordering",
        "Reordering",
        "Left: how many places packets came late or early in their flow; all at 0 is perfect "
        "order. Right: how many packets a NIC has to hold back for each flow until an earlier one "
        "arrives. Shares are on a logarithmic scale (RFC 5236, over all flows).",
        {"": [Panel("Reorder density", density), Panel("Reorder buffer", buffer)]},
    )


def _figure(entries: Sequence[Entry], at: str, share: str, x_title: str, of: str) -> Figure:
    traces: list[dict[str, Any]] = []
    lowest = 1.0
    for i, entry in enumerate(entries):
        x, y = _binned(entry.saved.reordering[at], entry.saved.reordering[share])
        lowest = min(lowest, float(y.min()))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": entry.label,
                "x": numbers(x, 6),
                "y": numbers(y),
                "line": {"color": entry.colour, "width": 1.5},
                # The first ones larger, so that points on the same spot show around each other.
                "marker": {"color": entry.colour, "size": max(6, 14 - 4 * i)},
                "hovertemplate": f"%{{x}}: %{{y:.3%}} of {of}<extra>%{{fullData.name}}</extra>",
            }
        )
    decades = [float(np.floor(np.log10(lowest))) - 0.2, 0.2]
    ticks = {"type": "log", "range": decades, "tickformat": ".4~%", "dtick": 1}
    reach = max(abs(value) for trace in traces for value in trace["x"])
    # A lone point at 0 would get an axis of odd fractions.
    whole = {"range": [-1, 4]} if reach <= 1 and at != "displacement" else {}
    if reach <= 2 and at == "displacement":
        whole = {"range": [-3, 3]}
    x_axis = Axis(x_title, {**whole, **({"dtick": 1} if reach <= 10 else {})})
    return figure(traces, x_axis, Axis(f"share of {of}", ticks), legend=len(entries) > 1)


def _binned(at: NDArray[np.int64], share: Floats) -> tuple[Floats, Floats]:
    """Return values and their shares; many values in bins of equal width, each at its middle."""
    if len(at) <= POINTS_MAX:
        return at.astype(np.float64), share
    width = int(np.ceil((at[-1] - at[0] + 1) / POINTS_MAX))
    # Around 0, where nearly all packets are.
    index = np.floor_divide(at + width // 2, width)
    found, where = np.unique(index, return_inverse=True)
    return found * float(width), np.bincount(where, share).astype(np.float64)
