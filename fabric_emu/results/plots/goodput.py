"""Payload that arrived, over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabric_emu.results.entries import Entry
from fabric_emu.results.plots.faults import fault_marks
from fabric_emu.results.plots.plot import Axis, Panel, Plot, figure, numbers


def goodput(entries: Sequence[Entry]) -> Plot | None:
    """Return the plot; None when no scheme's messages arrived."""
    traces = []
    for entry in entries:
        edges = entry.saved.messages.get("goodput_edges_s", np.empty(0))
        if len(edges) < 2:
            continue
        width = float(edges[1] - edges[0])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": entry.label,
                "x0": numbers(edges[:1] + width / 2, 5)[0],
                "dx": numbers(np.array([width]), 6)[0],
                "y": numbers(entry.saved.messages["goodput_bps"]),
                "line": {"color": entry.colour, "width": 1.8},
                "hovertemplate": "%{y:.3~s}bit/s at %{x:.3f} s<extra>%{fullData.name}</extra>",
            }
        )
    if not traces:
        return None
    x = Axis("seconds", {"rangemode": "tozero"})
    y = Axis("goodput, bit/s", {"rangemode": "tozero", "tickformat": "~s"})
    return Plot(
        "goodput",
        "Goodput over time",
        "Payload that receivers took in, all hosts together, each byte once: headers and what was "
        "sent again do not count. A reliable connection (rc) takes in nothing behind a gap.",
        {"": [Panel("", figure(traces, x, y, legend=True, **fault_marks(entries)))]},
    )
