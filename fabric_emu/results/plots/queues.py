"""Queues and losses over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric_emu.model.topology import Role
from fabric_emu.results.entries import Entry, Floats, even_edges
from fabric_emu.results.plots.faults import fault_marks
from fabric_emu.results.plots.plot import Axis, Panel, Plot, figure, numbers

BINS_MAX = 160
WHOLE_FABRIC = "whole fabric"

_LOSSES = {
    "dropped_packets": "dropped",
    "trimmed_packets": "trimmed",
    "marked_packets": "ECN marked",
}


def queue_depth(entries: Sequence[Entry]) -> Plot | None:
    """Return the deepest queue over time, of all switches and of each; None without samples."""
    traces: dict[str, list[dict[str, Any]]] = {WHOLE_FABRIC: []}
    for entry in entries:
        if entry.samples() < 2:
            continue
        edges = _edges(entry)
        kilobytes = entry.depths(edges) / 1e3
        for name, ports in _switch_ports(entry).items():
            deepest = kilobytes[:, ports].max(axis=1)
            if np.nansum(deepest) or name == WHOLE_FABRIC:
                traces.setdefault(name, []).append(_trace(entry, edges, deepest, "kB"))
    if not traces[WHOLE_FABRIC]:
        return None
    marks = fault_marks(entries)
    variants = {name: [_panel(found, "deepest queue, kB", marks)] for name, found in traces.items()}
    return Plot(
        "queue-depth",
        "Queue depth over time",
        "The deepest of the queues that the ports of switches have, sampled while hosts sent; what "
        "came and went between two samples is not seen here, but in the high-water marks.",
        variants,
        choice="switch",
    )


def losses(entries: Sequence[Entry]) -> Plot | None:
    """Return packets dropped, trimmed and marked over time; None when there were none."""
    variants: dict[str, list[Panel]] = {}
    for counter, name in _LOSSES.items():
        traces = []
        for entry in entries:
            if entry.samples() < 2 or counter not in entry.saved.series:
                continue
            edges = _edges(entry)
            packets = entry.counted(counter, edges).sum(axis=1)
            if packets.any():
                traces.append(_trace(entry, edges, packets / np.diff(edges), "packets/s"))
        if traces:
            variants[name] = [_panel(traces, f"{name}, packets/s", fault_marks(entries))]
    if not variants:
        return None
    return Plot(
        "losses",
        "What full queues did, over time",
        "Packets dropped by all ports; where the scheme has it, packets trimmed to their headers "
        "and packets marked. Schemes without any are left out.",
        variants,
        choice="what",
    )


def _edges(entry: Entry) -> Floats:
    return even_edges(entry.end_s, min(BINS_MAX, entry.samples() - 1))


def _switch_ports(entry: Entry) -> dict[str, list[int]]:
    """Return the ports of all switches together, then of each."""
    found: dict[str, list[int]] = {WHOLE_FABRIC: []}
    found |= {switch.name: [] for switch in entry.topology.switches}
    for link in entry.topology.links:
        ends = [(link.upper, link.down_port)]
        if link.lower.role is not Role.HOST:
            ends.append((link.lower, link.up_port))
        for switch, port in ends:
            found[switch.name].append(port)
            found[WHOLE_FABRIC].append(port)
    return found


def _trace(entry: Entry, edges: Floats, values: Floats, unit: str) -> dict[str, Any]:
    width = float(edges[1] - edges[0])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": entry.label,
        "x0": numbers(edges[:1] + width / 2, 5)[0],
        "dx": numbers(np.array([width]), 6)[0],
        "y": numbers(values),
        "connectgaps": True,
        "line": {"color": entry.colour, "width": 1.8},
        "hovertemplate": f"%{{y:.3~s}} {unit} at %{{x:.3f}} s<extra>%{{fullData.name}}</extra>",
    }


def _panel(traces: Sequence[dict[str, Any]], title: str, marks: dict[str, Any]) -> Panel:
    x, y = (Axis(text, {"rangemode": "tozero"}) for text in ("seconds", title))
    return Panel("", figure(traces, x, y, legend=True, **marks))
