"""Runs read back from disk, as numpy arrays: for notebooks, scripts and reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.scenario import Scenario
from fabric_emu.model.topology import Topology
from fabric_emu.results.read import load_run
from fabric_emu.results.run import RunResult
from fabric_emu.results.tables import Columns


@dataclass(frozen=True, eq=False)
class SavedScheme:
    """One scheme at one seed of a saved run.

    Attributes:
        run: the run it belongs to.
        summary: its figures, nested, as in ``run.json``.
    """

    run: RunResult
    summary: dict[str, Any]

    def __repr__(self) -> str:
        # What a notebook shows of it: all of its columns would be megabytes.
        return f"<scheme {self.name}, seed {self.seed}, of {self.run.name}>"

    @property
    def name(self) -> str:
        """The scheme's name."""
        return str(self.summary["name"])

    @property
    def seed(self) -> int:
        """The seed it ran with."""
        return int(self.summary["seed"])

    @cached_property
    def flows(self) -> dict[str, NDArray[Any]]:
        """Columns of the queue pairs, each (queue pairs,)."""
        return _arrays(self.run.columns(self.summary, "flows"))

    @cached_property
    def ports(self) -> dict[str, NDArray[Any]]:
        """Columns of the ports, each (ports,)."""
        return _arrays(self.run.columns(self.summary, "ports"))

    @cached_property
    def series(self) -> dict[str, NDArray[Any]]:
        """Port counters over time: ``time_s`` (samples,), the others (samples, ports)."""
        return self.run.arrays(self.summary, "series")

    @cached_property
    def reordering(self) -> dict[str, NDArray[Any]]:
        """Shares of packets by displacement and by waiting packets; see ``reorder_profile``."""
        return self.run.arrays(self.summary, "reordering")

    @cached_property
    def messages(self) -> dict[str, NDArray[Any]]:
        """Begin and length of messages and collectives, goodput; empty for open loops."""
        return self.run.arrays(self.summary, "messages")


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run read back; iterating gives its schemes, seed by seed.

    Attributes:
        result: the run as the program knows it.
    """

    result: RunResult

    def __repr__(self) -> str:
        schemes = ", ".join(dict.fromkeys(one.name for one in self)) or "no scheme"
        return f"<run {self.result.name} of {self.result.started}: {schemes}>"

    @property
    def document(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        return self.result.document()

    @cached_property
    def scenario(self) -> Scenario:
        """What was run."""
        return Scenario.model_validate(self.result.scenario)

    @property
    def topology(self) -> Topology:
        """The fabric; ``topology.links`` names the ports of the series: 2i and 2i + 1."""
        return self.scenario.topology

    @cached_property
    def _schemes(self) -> tuple[SavedScheme, ...]:
        return tuple(SavedScheme(self.result, summary) for summary in self.result.schemes)

    def __iter__(self) -> Iterator[SavedScheme]:
        return iter(self._schemes)

    def __len__(self) -> int:
        return len(self._schemes)

    def __getitem__(self, key: str | tuple[str, int]) -> SavedScheme:
        """Return a scheme by its name, at the first seed, or by name and seed.

        Raises:
            KeyError: the run has no such scheme.
        """
        for one in self:
            if key in (one.name, (one.name, one.seed)):
                return one
        has = ", ".join(dict.fromkeys(one.name for one in self)) or "no scheme"
        raise KeyError(f"{key!r}: this run has {has}")


def load_saved(path: str | PathLike[str]) -> SavedRun:
    """Read a run from its folder or its ``run.json``; known to users as ``fabric_emu.load``.

    Raises:
        UnreadableRun: it is not there, is not a run, or was written by a newer version.
    """
    return SavedRun(load_run(path))


def _arrays(columns: Columns) -> dict[str, NDArray[Any]]:
    return {name: _array(list(column)) for name, column in columns.items()}


def _array(column: list[Any]) -> NDArray[Any]:
    """Return a column as numbers (NaN where one is missing), truth values or text."""
    words = {"True": True, "False": False}
    if column and all(value in words for value in column):
        return np.array([words[value] for value in column])
    if any(isinstance(value, str) for value in column):
        return np.array(["" if value is None else str(value) for value in column])
    return np.array([np.nan if value is None else value for value in column])
