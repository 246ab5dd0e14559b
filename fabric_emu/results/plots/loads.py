"""Load of every switch's uplinks over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabric_emu.results.entries import Entry, Floats, even_edges
from fabric_emu.results.plots.faults import fault_marks
from fabric_emu.results.plots.plot import Axis, Figure, Panel, Plot, figure, limit_line, numbers

BINS_MAX = 120
_CELLS_MAX = 400_000
"""Numbers in all of the plot's variants: about two megabytes in the page."""


def uplink_loads(entries: Sequence[Entry]) -> Plot | None:
    """Return the plot, the busiest switch first; None when there are no uplinks or samples."""
    sampled = [entry for entry in entries if entry.samples() > 1 and entry.summary["uplinks"]]
    uplinks = sum(len(entry.topology.links) for entry in sampled)
    if not uplinks:
        return None
    bins = min(BINS_MAX, max(10, _CELLS_MAX // uplinks))
    drawn: dict[str, list[tuple[Entry, list[int], Floats, Floats]]] = {}
    for entry in sampled:
        edges = even_edges(entry.end_s, entry.bins(bins))
        loads = entry.loads(edges)
        for switch in entry.summary["uplinks"]:
            ports = [link.up_port for link in entry.topology.uplinks[switch]]
            if loads[:, ports].any():
                drawn.setdefault(switch, []).append((entry, ports, edges, loads))
    if not drawn:
        return None
    variants = {switch: _panels(parts) for switch, parts in drawn.items()}
    return Plot(
        "uplink-load",
        "Load offered to uplinks over time",
        "A line per uplink, what was asked of it over what it carries; over 100 % a queue fills, "
        "then packets are lost. The uplink that was asked for most in all is drawn thick.",
        variants,
        choice="switch",
        default=max(drawn, key=lambda switch: max(_most(part) for part in drawn[switch])),
    )


def _most(part: tuple[Entry, list[int], Floats, Floats]) -> float:
    _, ports, _, loads = part
    return float(loads[:, ports].mean(axis=0).max())


def _panels(parts: Sequence[tuple[Entry, list[int], Floats, Floats]]) -> list[Panel]:
    end_s = max(float(edges[-1]) for _, _, edges, _ in parts)
    # One peak of a short bin would flatten all else.
    top = max(float(np.quantile(loads[:, ports], 0.995)) for _, ports, _, loads in parts)
    return [
        Panel(entry.label, _figure(entry, ports, edges, loads, end_s, top), entry.colour)
        for entry, ports, edges, loads in parts
    ]


def _figure(
    entry: Entry, ports: list[int], edges: Floats, loads: Floats, end_s: float, top: float
) -> Figure:
    total = loads[:, ports].mean(axis=0)
    worst = int(np.argmax(total))
    width = float(edges[1] - edges[0])
    traces = []
    # The worst one last, on top of the others.
    for i in sorted(range(len(ports)), key=lambda i: i == worst):
        name = entry.port_names[ports[i]]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x0": numbers(edges[:1] + width / 2, 5)[0],
                "dx": numbers(np.array([width]), 6)[0],
                "y": numbers(loads[:, ports[i]], 3),
                "line": {"color": entry.colour, "width": 2.5 if i == worst else 1.2},
                "opacity": 1 if i == worst else 0.6,
                "hovertemplate": f"{name}<br>%{{y:.1%}} at %{{x:.3f}} s<extra></extra>",
            }
        )
    return figure(
        [limit_line(1.0, end_s, "100 %"), *traces],
        Axis("seconds", {"range": [0, end_s]}),
        Axis("offered load", {"range": [0, 1.08 * max(top, 1.0)], "tickformat": ".0%"}),
        **fault_marks([entry]),
    )
