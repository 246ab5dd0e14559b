"""Messages as columns: who sends what to whom, and which arrivals each message waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_COLLECTIVE = -1
"""Label of rows that belong to no collective: computation, release messages, traces."""


@dataclass(frozen=True)
class Collective:
    """One collective operation, as often as it is repeated.

    Attributes:
        name: such as ``ring-all-reduce``.
        ranks: hosts that take part.
        size_bytes: S of the nccl-tests formulas: what a rank holds before (all-reduce,
            reduce-scatter, all-to-all, broadcast, permutation) or after it (all-gather, incast).
    """

    name: str
    ranks: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Each collective of each iteration, m of them, in order of iterations.

    Attributes:
        of_row: (n,) which one each row of the graph belongs to; -1: to none.
        iteration, collective: (m,) labels.
    """

    of_row: Ints
    iteration: Ints
    collective: Ints

    def __len__(self) -> int:
        return len(self.iteration)


@dataclass(frozen=True, eq=False)
class MessageGraph:
    """Messages, one row each, and the arrivals that they wait for.

    A message starts when all messages it waits for have arrived at its source, and ``delay_s``
    after the last of them: whether it may start is known at the sending host alone. Messages of
    one host that may start together go in the order of their rows.

    A row whose source is its destination is *local*: it has no bytes, never meets the network,
    and has "arrived" the moment it starts. It stands for computation and ties many arrivals to
    many messages without an edge for each pair.

    No row waits for a later one, so that messages may also be sent strictly in order of rows, on
    each queue pair or altogether, without waiting for ever; ``ordered`` sorts rows that are not.

    Attributes:
        source, destination: (n,) 0-based host numbers.
        size_bytes: (n,) payload, over 0; 0 for local rows.
        after_offsets: (n + 1,) where each row's part of ``after`` begins.
        after: (m,) rows waited for; the destination of each is the waiting row's source.
        delay_s: (n,) from the last arrival waited for to the start; without any, from the start
            of the run.
        step, iteration: (n,) labels from 0; a step of -1 belongs to no step.
        collective: (n,) index in ``collectives``, or ``NO_COLLECTIVE``.
        collectives: what the rows are parts of.

    Raises:
        ValueError: the columns contradict each other, or a row waits for a later one, as in every
            cycle.
    """

    source: Ints
    destination: Ints
    size_bytes: Ints
    after_offsets: Ints
    after: Ints
    delay_s: Floats
    step: Ints
    iteration: Ints
    collective: Ints
    collectives: tuple[Collective, ...]

    def __post_init__(self) -> None:
        n = len(self.source)
        columns = (self.destination, self.size_bytes, self.delay_s)
        labels = (self.step, self.iteration, self.collective)
        for column in (*columns, *labels):
            _require(column.shape == (n,), f"columns: {n} rows in each of them")
        self._check_values()
        self._check_after()

    def __len__(self) -> int:
        return len(self.source)

    def _check_values(self) -> None:
        if not len(self):
            return
        _require(min(self.source.min(), self.destination.min()) >= 0, "hosts: numbers from 0")
        local = self.local
        _require(bool((self.size_bytes[~local] > 0).all()), "size_bytes: over 0")
        _require(not self.size_bytes[local].any(), "size_bytes: 0 from a host to itself")
        finite = np.isfinite(self.delay_s) & (self.delay_s >= 0)
        _require(bool(finite.all()), "delay_s: 0 or more")
        last = len(self.collectives) - 1
        known = (self.collective >= NO_COLLECTIVE) & (self.collective <= last)
        _require(bool(known.all()), f"collective: {NO_COLLECTIVE} to {last}")

    def _check_after(self) -> None:
        offsets, after, n = self.after_offsets, self.after, len(self)
        fits = len(offsets) == n + 1 and offsets[0] == 0 and offsets[-1] == len(after)
        _require(bool(fits), f"after_offsets: from 0 to {len(after)}, {n + 1} of them")
        _require(bool((np.diff(offsets) >= 0).all()), "after_offsets: never falling")
        if not len(after):
            return
        _require(after.min() >= 0 and after.max() < n, f"after: rows 0 to {n - 1}")
        row = np.repeat(np.arange(n), np.diff(offsets))
        stray = np.flatnonzero(self.destination[after] != self.source[row])
        if len(stray):
            k = stray[0]
            raise ValueError(
                f"message {row[k]} waits at host {self.source[row[k]]} for message {after[k]}, "
                f"which goes to host {self.destination[after[k]]}"
            )
        late = np.flatnonzero(after >= row)
        if len(late):
            raise ValueError(f"message {row[late[0]]} waits for a later one, {after[late[0]]}")

    @classmethod
    def ordered(
        cls,
        *,
        after_offsets: Ints,
        after: Ints,
        collectives: tuple[Collective, ...] = (),
        **columns: NDArray[Any],
    ) -> tuple[Self, Ints]:
        """Return a graph of rows in any order, and (n,) which of them each of its rows was.

        Args:
            after_offsets, after, collectives, columns: attributes of the class.

        Raises:
            ValueError: as the class; of a cycle one row is named.
        """
        order = np.concatenate(generations(after_offsets, after) or [np.zeros(0, np.int64)])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        counts = np.diff(after_offsets)[order]
        graph = cls(
            **{name: column[order] for name, column in columns.items()},
            after_offsets=offsets_of(counts),
            after=place[after[ranges(after_offsets[order], counts)]],
            collectives=collectives,
        )
        return graph, order

    @property
    def local(self) -> NDArray[np.bool_]:
        """(n,) rows that never meet the network."""
        same: NDArray[np.bool_] = self.source == self.destination
        return same

    def waits(self) -> Ints:
        """Return (n,) how many arrivals each row waits for."""
        return np.diff(self.after_offsets)

    def dependents(self) -> tuple[Ints, Ints]:
        """Return offsets (n + 1,) and the rows that wait for each row, the inverse of ``after``."""
        return _transposed(self.after_offsets, self.after)

    def occurrences(self) -> Occurrences:
        """Return each collective of each iteration that has rows."""
        kinds = max(len(self.collectives), 1)
        of_row = np.full(len(self), -1)
        rows = np.flatnonzero(self.collective != NO_COLLECTIVE)
        keys, of_row[rows] = np.unique(
            self.iteration[rows] * kinds + self.collective[rows], return_inverse=True
        )
        return Occurrences(of_row, keys // kinds, keys % kinds)


def _require(holds: bool | np.bool_, expected: str) -> None:
    if not holds:
        raise ValueError(f"{expected} expected")


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return ``counts[i]`` numbers from ``starts[i]`` on, for each i, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total) + np.repeat(starts - ends + counts, counts)
    return found


def offsets_of(counts: Ints) -> Ints:
    """Return (n + 1,) where parts of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def _transposed(offsets: Ints, after: Ints) -> tuple[Ints, Ints]:
    n = len(offsets) - 1
    row = np.repeat(np.arange(n), np.diff(offsets))
    order = np.argsort(after, kind="stable")
    return offsets_of(np.bincount(after, minlength=n)), row[order]


def generations(offsets: Ints, after: Ints) -> list[Ints]:
    """Return rows by the length of the longest chain before them: first those that wait for none.

    Args:
        offsets, after: rows waited for, as in ``MessageGraph``.

    Raises:
        ValueError: some rows wait for each other in a cycle.
    """
    waits = np.diff(offsets)
    dependent_offsets, dependents = _transposed(offsets, after)
    found = []
    ready = np.flatnonzero(waits == 0)
    while len(ready):
        found.append(ready)
        first = dependent_offsets[ready]
        reached = dependents[ranges(first, dependent_offsets[ready + 1] - first)]
        np.subtract.at(waits, reached, 1)
        ready = np.unique(reached[waits[reached] == 0])
    if waits.any():
        raise ValueError(f"message {np.flatnonzero(waits)[0]} waits, in the end, for itself")
    return found
