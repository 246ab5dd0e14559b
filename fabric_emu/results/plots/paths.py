"""Bytes by path: of all flows, and of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.topology import Topology
from fabric_emu.results.entries import Entry
from fabric_emu.results.plots.plot import Axis, Figure, Panel, Plot, figure, numbers

FLOWS_MAX = 64
_NAMED_MAX = 24
_PREFIX = "delivered_bytes_path_"


def path_bytes(entries: Sequence[Entry]) -> Plot | None:
    """Return bytes by path, of all flows in bars and of each flow in cells; None without any."""
    found = [(entry, *_bytes(entry)) for entry in entries]
    found = [one for one in found if one[2].any()]
    if not found:
        return None
    bars = [_bars(entry, paths, table) for entry, paths, table, _ in found]
    y = Axis("delivered, MB", {"rangemode": "tozero"})
    total = figure(bars, Axis(""), y, legend=True, barmode="group", bargap=0.25)
    cells = [
        Panel(entry.label, _cells(paths, table, names), entry.colour)
        for entry, paths, table, names in found
    ]
    return Plot(
        "paths",
        "Bytes by path",
        "A path is named by the highest switch on it, as it stamped the packets that arrived. In "
        "all: equal bars are an even spread. Flow by flow: a row per flow (its queue pairs "
        f"together, the {FLOWS_MAX} largest), deeper in colour where more of its bytes went.",
        {"all flows": [Panel("", total)], "flow by flow": cells},
        choice="what",
    )


def path_names(topology: Topology) -> dict[int, str]:
    """Return the path of each stamp: the name of its highest switch within a plane and a pod."""
    names = {0: "within a leaf"}
    for switch in topology.switches:
        stamp = topology.path_stamp(switch)
        if stamp and switch.plane == 0:
            # In later pods a spine of the same stamp has another number.
            names.setdefault(stamp, switch.name)
    return names


def _bytes(entry: Entry) -> tuple[list[str], NDArray[np.float64], list[str]]:
    """Return paths, bytes (flows, paths), and the flows' names."""
    columns = entry.saved.flows
    stamps = sorted(int(name.removeprefix(_PREFIX)) for name in columns if name.startswith(_PREFIX))
    if not stamps or "flow" not in columns:
        return [], np.zeros((0, 0)), []
    data = np.ones(len(columns["flow"]), bool)
    if "carries" in columns:
        data = columns["carries"] == "data"
    flows, of = np.unique(columns["flow"][data], return_inverse=True)
    table = np.zeros((len(flows), len(stamps)))
    for column, stamp in enumerate(stamps):
        np.add.at(table[:, column], of, columns[f"{_PREFIX}{stamp}"][data])
    ends = dict(zip(of, zip(columns["source"][data], columns["destination"][data], strict=True),
                    strict=True))  # fmt: skip
    names = [f"{flow}: {ends[i][0]} → {ends[i][1]}" for i, flow in enumerate(flows)]
    known = path_names(entry.topology)
    return [known.get(stamp, f"path {stamp}") for stamp in stamps], table, names


def _bars(entry: Entry, paths: list[str], table: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": entry.label,
        "x": paths,
        "y": numbers(table.sum(axis=0) / 1e6),
        "marker": {"color": entry.colour},
        "hovertemplate": "%{x}: %{y:.4~g} MB<extra>%{fullData.name}</extra>",
    }


def _cells(paths: list[str], table: NDArray[np.float64], names: list[str]) -> Figure:
    size = table.sum(axis=1)
    largest = np.sort(np.argsort(-size, kind="stable")[:FLOWS_MAX])
    share = table[largest] / np.maximum(size[largest, np.newaxis], 1.0)
    rows = [names[i] for i in largest]
    cells = {
        "type": "heatmap",
        "x": paths,
        "y": rows,
        "z": [numbers(row, 3) for row in share],
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "hovertemplate": "%{y}<br>%{z:.1%} by %{x}<extra></extra>",
    }
    named = len(rows) <= _NAMED_MAX
    y = {"autorange": "reversed", "showticklabels": named, "ticks": ""}
    height = int(min(520, max(260, 90 + 13 * len(rows))))
    return figure([cells], Axis(""), Axis("" if named else "flows", y), height=height)
