"""What a report compares: schemes, of one run or of several, each with its name and colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.scenario import Scenario
from fabric_emu.model.topology import Role, Topology
from fabric_emu.results.columns import pictured
from fabric_emu.results.figures import printable
from fabric_emu.results.load import SavedScheme
from fabric_emu.results.run import RunResult

Floats = NDArray[np.float64]

PACKETS_PER_BIN = 10
"""One packet more or less is a tenth of what a link carries in a bin."""

BINS_MIN = 10

# Of middling lightness, so that they show on white and on near-black; told apart also by people
# who confuse red and green, the neighbours by lightness.
_PALETTE = (
    "#d9601a", "#1f83c9", "#0f9d76", "#a65fc9", "#b8860b", "#d6409f", "#5b6fd6", "#7a8b2a",
    "#c74440", "#3a9fb5", "#8d6e63", "#808890",
)  # fmt: skip

_USUAL = {"ecmp": 0, "mrc": 1, "uec": 2, "dlb": 3, "glb": 5, "switch-spray": 6}
"""Schemes with a colour of their own, the same in every report; the others take what is left."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One scheme in a report.

    Attributes:
        label: the scheme's name, with that of its run where there are several.
        colour: of everything drawn for it, ``#rrggbb``.
        saved: its results.
        topology: the fabric it ran on.
    """

    label: str
    colour: str
    saved: SavedScheme
    topology: Topology

    @property
    def summary(self) -> dict[str, Any]:
        """Its figures."""
        return self.saved.summary

    @cached_property
    def rates_bps(self) -> NDArray[np.int64]:
        """(ports,) the rate of each port."""
        return np.repeat([link.rate_bps for link in self.topology.links], 2)

    @cached_property
    def port_names(self) -> list[str]:
        """(ports,) ``leaf1 → spine2``."""
        names = []
        for link in self.topology.links:
            names += [
                f"{link.lower.name} → {link.upper.name}{_parallel(link.upper_interface)}",
                f"{link.upper.name} → {link.lower.name}{_parallel(link.lower_interface)}",
            ]
        return names

    @property
    def end_s(self) -> float:
        """When the last sample was taken; 0 without samples of this fabric's ports."""
        time = self.saved.series.get("time_s")
        return float(time[-1]) if time is not None and self._sampled else 0.0

    @property
    def _sampled(self) -> bool:
        series = self.saved.series
        depth = series.get("depth_bytes")
        return depth is not None and depth.shape == (len(series["time_s"]), len(self.rates_bps))

    def counted(self, counter: str, edges_s: Floats) -> Floats:
        """Return (bins, ports) by how much a counter of the series grew between the edges.

        Between two samples it is taken to have grown evenly; after the last one not at all.
        """
        time, values = self.saved.series["time_s"], self.saved.series[counter]
        # The run starts at 0 with nothing counted, a moment before the first sample.
        time = np.concatenate([[min(0.0, time[0])], time])
        values = np.concatenate([np.zeros((1, values.shape[1])), values])
        after = np.clip(np.searchsorted(time, edges_s), 1, len(time) - 1)
        before = after - 1
        step = np.maximum(time[after] - time[before], 1e-9)
        share = np.clip((edges_s - time[before]) / step, 0.0, 1.0)[:, np.newaxis]
        grown: Floats = np.diff(values[before] * (1 - share) + values[after] * share, axis=0)
        return grown

    def loads(self, edges_s: Floats) -> Floats:
        """Return (bins, ports) what was asked of each port over what it carries, between edges."""
        room = self.rates_bps / 8 * np.diff(edges_s)[:, np.newaxis]
        return self.counted("offered_bytes", edges_s) / room

    def bins(self, most: int) -> int:
        """Return into how many bins the loads of a run are divided, so many at most.

        A bin holds as many packets of the largest size as the slowest link between switches
        carries in it: with fewer, a steady load would seem to jump.
        """
        rates = [link.rate_bps for link in self.topology.links if link.lower.role is not Role.HOST]
        packet_s = 8 * self.topology.mtu / min(rates, default=int(self.rates_bps.min()))
        whole = int(self.end_s / (PACKETS_PER_BIN * packet_s))
        return max(1, min(most, self.samples() - 1, max(whole, BINS_MIN)))

    def depths(self, edges_s: Floats) -> Floats:
        """Return (bins, ports) the largest depth sampled between edges, bytes; NaN without any."""
        time, depth = self.saved.series["time_s"], self.saved.series["depth_bytes"]
        of = np.searchsorted(edges_s, time, side="right") - 1
        of = np.minimum(of, len(edges_s) - 2)  # what is sampled at the last edge
        found = np.full((len(edges_s) - 1, depth.shape[1]), -1.0)
        np.maximum.at(found, of, depth)
        found[found < 0] = np.nan
        return found

    def samples(self) -> int:
        """Return how many samples there are."""
        return len(self.saved.series["time_s"]) if self._sampled else 0


def _parallel(interface: str) -> str:
    """Return the number of a parallel link: ``.2`` of ``spine1.2``."""
    _, dot, number = interface.partition(".")
    return dot + number


def entries_of(runs: Sequence[RunResult]) -> list[Entry]:
    """Return what a report on these runs draws: every scheme once, at one seed, worst first."""
    found: list[Entry] = []
    names = run_names(runs)
    for name, run in zip(names, runs, strict=True):
        if not run.schemes:
            continue
        topology = Scenario.model_validate(run.scenario).topology
        for summary in pictured(run):
            label = label_of(name if len(runs) > 1 else "", summary["name"])
            saved = SavedScheme(run, dict(summary))
            found.append(Entry(label, "", saved, topology))
    colours = _colours([entry.saved.name for entry in found])
    return [
        Entry(entry.label, colour, entry.saved, entry.topology)
        for entry, colour in zip(found, colours, strict=True)
    ]


def label_of(run_name: str, scheme_name: str) -> str:
    """Return what a scheme is called in plots, which take some HTML in names: not from here."""
    label = f"{run_name}: {scheme_name}" if run_name else scheme_name
    return printable(label).translate(str.maketrans("<>&", "‹›+"))


def run_names(runs: Sequence[RunResult]) -> list[str]:
    """Return a name for each run that tells it from the others."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return names
    return [f"{run.name} ({number})" for number, run in enumerate(runs, start=1)]


def _colours(names: Iterable[str]) -> list[str]:
    names = list(names)
    chosen: list[int | None] = []
    for name in names:
        usual = _USUAL.get(name)
        chosen.append(usual if usual not in chosen else None)
    left = [i for i in range(len(_PALETTE)) if i not in chosen]
    colours: list[str] = []
    for index in chosen:
        if index is None:
            index = left.pop(0) if left else len(colours) % len(_PALETTE)
        colours.append(_PALETTE[index])
    return colours


def even_edges(end_s: float, bins: int) -> Floats:
    """Return (bins + 1,) edges of equal bins from 0 to ``end_s``."""
    return np.linspace(0.0, end_s, bins + 1)
