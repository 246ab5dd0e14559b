"""The fabric as a drawing: every link in two halves, each coloured by what its end sends.

A half's class, ``load0`` to ``load13``, says how much was asked of its port: 0 nothing, 1 to 10
up to that many tenths of what it carries, 11 up to 125 %, 12 up to 150 %, 13 more. The style
sheet gives classes colours, so that a page can be light or dark, and scripts can change them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from fabric_emu.model.topology import Link, Node, Role, Topology
from fabric_emu.results.entries import Entry, Floats

BUCKETS = 14
_ROW, _TOP, _BOTTOM = 120, 26, 30
_WIDTH_MIN = 460
_LABELLED_HOSTS = 32

COLOURS = (
    "#d4dae1", "#c3d6ea", "#aecbea", "#97bee8", "#7fb0e4", "#679fdc", "#528fd3", "#3f7fc9",
    "#2f6fbc", "#2460ab", "#1b5299", "#f0a020", "#e5601c", "#c4161c",
)  # fmt: skip
"""Of the classes, on white: blue while a port carries all, then orange and red."""


def bucket(load: float) -> int:
    """Return the number of a load's class."""
    if not load > 0:
        return 0
    if load <= 1:
        return math.ceil(load * 10)
    return 11 if load <= 1.25 else 12 if load <= 1.5 else 13


@dataclass(frozen=True)
class _Place:
    x: float
    y: float


class _Layout:
    """Where nodes are: a row per tier, hosts below, each leaf's hosts under it."""

    def __init__(self, topology: Topology) -> None:
        self.rows: list[list[Node]] = []
        for role in (Role.SUPER_SPINE, Role.SPINE, Role.LEAF):
            row = [switch for switch in topology.switches if switch.role is role]
            if row:
                self.rows.append(sorted(row, key=lambda node: (node.plane, node.number)))
        hosts = list(topology.hosts)
        self.labels_hosts = len(hosts) <= _LABELLED_HOSTS
        widest = max(len(row) for row in self.rows)
        self.width = max(_WIDTH_MIN, len(hosts) * (30 if self.labels_hosts else 15), widest * 34)
        self.rows.append(hosts)
        self.height = _TOP + _ROW * (len(self.rows) - 1) + _BOTTOM
        self.places: dict[str, _Place] = {}
        for depth, row in enumerate(self.rows):
            step = self.width / len(row)
            for i, node in enumerate(row):
                self.places[node.name] = _Place((i + 0.5) * step, _TOP + depth * _ROW)

    def label(self, node: Node, row: list[Node]) -> str:
        """Return a name that fits between its neighbours."""
        room = self.width / len(row)
        return node.name if len(node.name) * 7 + 8 < room else str(node.number)


def map_svg(entry: Entry) -> str:
    """Return the drawing as an ``svg`` element, coloured by the loads over the whole run."""
    topology = entry.topology
    layout = _Layout(topology)
    loads = whole_run_loads(entry)
    width, height = round(layout.width), layout.height
    label = escape(f"The fabric under {entry.label}", {'"': "&quot;"})
    lines, hits = [], []
    for link in topology.links:
        lower, upper = _ends(link, layout, topology.links_per_pair)
        middle = _Place((lower.x + upper.x) / 2, (lower.y + upper.y) / 2)
        for port, end in ((link.up_port, lower), (link.down_port, upper)):
            ends = f'x1="{end.x:.1f}" y1="{end.y:.1f}" x2="{middle.x:.1f}" y2="{middle.y:.1f}"'
            number = bucket(float(loads[port]))
            lines.append(f'<line class="load load{number}" data-port="{port}" {ends}/>')
            hits.append(f'<line class="hit" data-port="{port}" {ends}/>')
    return (
        f'<svg class="fabric" viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="--natural: {width}px" xmlns="http://www.w3.org/2000/svg">'
        f"<g>{''.join(lines)}</g>{_nodes(layout)}<g>{''.join(hits)}</g></svg>"
    )


def natural_width(topology: Topology) -> int:
    """Return the width in pixels at which a drawing's text has its proper size."""
    return round(_Layout(topology).width)


def whole_run_loads(entry: Entry) -> Floats:
    """Return (ports,) offered loads over the whole run; 0 where the run does not say."""
    loads = entry.saved.ports.get("offered")
    if loads is None or loads.shape != entry.rates_bps.shape:
        return np.zeros(len(entry.rates_bps))
    return np.nan_to_num(loads.astype(np.float64))


def _ends(link: Link, layout: _Layout, parallel: int) -> tuple[_Place, _Place]:
    lower, upper = layout.places[link.lower.name], layout.places[link.upper.name]
    if link.lower.role is Role.HOST or parallel == 1:
        return lower, upper
    number = int(link.lower_interface.rpartition(".")[2]) - 1
    aside = (number - (parallel - 1) / 2) * min(5.0, 16 / parallel)
    return _Place(lower.x + aside, lower.y), _Place(upper.x + aside, upper.y)


def _nodes(layout: _Layout) -> str:
    drawn = []
    for row in layout.rows:
        for node in row:
            place = layout.places[node.name]
            x, y = f"{place.x:.1f}", f"{place.y:.1f}"
            title = f"<title>{escape(node.name)}</title>"
            if node.role is Role.HOST:
                drawn.append(f'<circle class="host" cx="{x}" cy="{y}" r="4.5">{title}</circle>')
                if layout.labels_hosts:
                    text = escape(node.name)
                    drawn.append(
                        f'<text class="small" x="{x}" y="{place.y + 17:.1f}">{text}</text>'
                    )
                continue
            text = layout.label(node, row)
            half = len(text) * 3.5 + 5
            drawn.append(
                f'<rect class="switch" x="{place.x - half:.1f}" y="{place.y - 10:.1f}" '
                f'width="{2 * half:.1f}" height="20" rx="4">{title}</rect>'
                f'<text x="{x}" y="{place.y + 4:.1f}">{escape(text)}</text>'
            )
    return f"<g>{''.join(drawn)}</g>"


STYLE = (
    "text{font:12px sans-serif;text-anchor:middle;fill:#1c2128}"
    ".head{text-anchor:start;fill:#59636e}.name{font-weight:bold;fill:#1c2128}"
    ".small{font-size:10px;fill:#59636e}.switch{fill:#fff;stroke:#59636e}.host{fill:#59636e}"
    ".hit{display:none}.load{stroke-width:2.2}.load0{stroke-width:1.2}"
    + "".join(f".load{i}{{stroke:{colour}}}" for i, colour in enumerate(COLOURS))
)
"""What a drawing needs that stands alone, on white."""


_HEAD = 34


def standalone_svg(entry: Entry) -> str:
    """Return the drawing as a file of its own, with a line over it that explains it."""
    layout = _Layout(entry.topology)
    width, height = round(layout.width), layout.height
    box, taller = (
        f'viewBox="0 0 {width} {height}"',
        f'viewBox="0 {-_HEAD} {width} {height + _HEAD}"',
    )
    words = "offered loads; blue to 100 %, orange to 150 %, red over it"
    head = (
        f"<style>{STYLE}</style>"
        f'<text class="head" x="8" y="-14"><tspan class="name">{escape(entry.label)}</tspan>  '
        f"{words}</text>"
    )
    return map_svg(entry).replace(box, taller, 1).replace("><g>", f">{head}<g>", 1) + "\n"
