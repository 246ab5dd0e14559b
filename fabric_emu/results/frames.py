"""Numbers of every port over time, for the drawing of the fabric and its slider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric_emu.results.entries import Entry, Floats, even_edges
from fabric_emu.results.fabric_map import whole_run_loads
from fabric_emu.results.plots.plot import numbers

FRAMES_MAX = 100
_CELLS_MAX = 600_000
"""Ports times frames of all schemes: at most about three megabytes in the page."""


def frames(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the page's script needs to colour and to label links.

    Keys: ``edges`` of the frames in seconds, empty without samples; ``schemes``, each with
    ``label``, ``ports`` (name, rate in bit/s, and over the whole run ``offered`` and ``carried``
    loads, ``high_water`` bytes, ``dropped`` packets), and by port, where it is not all 0,
    ``load`` and ``depth`` (bytes) in each frame.
    """
    end_s = max((entry.end_s for entry in entries), default=0.0)
    ports = sum(len(entry.rates_bps) for entry in entries)
    most = min(FRAMES_MAX, max(10, _CELLS_MAX // max(ports, 1)))
    counts = [entry.bins(most) for entry in entries if entry.samples() > 1]
    edges = even_edges(end_s, max(counts)) if counts and end_s > 0 else np.zeros(0)
    return {
        "edges": numbers(edges, 5),
        "schemes": [_scheme(entry, edges) for entry in entries],
    }


def _scheme(entry: Entry, edges: Floats) -> dict[str, Any]:
    found: dict[str, Any] = {
        "label": entry.label,
        "ports": {
            "name": entry.port_names,
            "rate": entry.rates_bps.tolist(),
            "offered": whole_run_loads(entry).tolist(),
            **_totals(entry),
        },
        "load": {},
        "depth": {},
    }
    if len(edges) and entry.samples() > 1:
        found["load"] = _by_port(entry.loads(edges), 3)
        found["depth"] = _by_port(_held(entry.depths(edges)), 3)
    return found


def _held(table: Floats) -> Floats:
    """Return a table where what is NaN has the value of the row before; 0 in the first one."""
    known = ~np.isnan(table).any(axis=1)
    last = np.maximum.accumulate(np.where(known, np.arange(len(table)), -1))
    found: Floats = np.where((last >= 0)[:, np.newaxis], table[last], 0.0)
    return found


def _totals(entry: Entry) -> dict[str, list[Any]]:
    columns = entry.saved.ports
    totals: dict[str, list[Any]] = {}
    for name, column in (("carried", "carried"), ("high_water", "high_water_bytes")):
        if column in columns:
            totals[name] = numbers(columns[column], 5)
    dropped = [columns[name] for name in columns if name.startswith("dropped_")]
    if dropped:
        totals["dropped"] = np.sum(dropped, axis=0).tolist()
    return totals


def _by_port(table: Floats, digits: int) -> dict[str, list[Any]]:
    busy = np.flatnonzero(table.any(axis=0))
    return {str(port): numbers(table[:, port], digits) for port in busy}
