"""MRC's set of entropy values (EV): a rotation that skips marked paths and leaves broken ones."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.batches import distinct, first_of_each, grouping, ordinal, within
from fabric_emu.nic.entropy.policy import Bools, Ints, Ports, PortTable


class EvState(IntEnum):
    """State of an entropy value; ``SPARE`` ones wait to replace a removed one."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3
    SPARE = 4


class EvSet(PortTable):
    """Entropy values of each queue pair, in a pseudo-random rotation of its own.

    * a mark, or a trim before the last hop: the value is passed over once, then good again;
    * a trim on the last hop: no change, another path would end in the same queue;
    * a loss: assumed bad, out of use until a probe on it is answered. A spare of the same plane
      takes its place;
    * a spare that comes into use within a batch is not touched by later events of that batch;
    * never fewer than ``floor`` values of a queue pair are good: what would go below is not
      done, and counted.

    Source:
        OCP Multipath Reliable Connection, ``mrc.h`` (states, ``ev_min_active``); "Resilient AI
        Supercomputer Networking using MRC and SRv6", arXiv 2605.04333, for the moves.

    Fidelity:
        The specification leaves open what the floor does, the order of the rotation and the
        pace of probes. Here an exclusion beyond the floor is refused, planes take turns within
        the rotation, and probing begins one interval after the loss.

    Attributes:
        state: (queue pairs, E) uint8 of ``EvState``; read only.
        good: (queue pairs,) values in use and not to be skipped.
        skips, exclusions, replacements, restored, probed: moves made.
        held: moves refused because of the floor.
    """

    def __init__(
        self,
        queue_pairs: int,
        values: Ports,
        seed: int,
        floor: int,
        plane: NDArray[np.integer] | None = None,
        active: int | None = None,
        probe_interval_s: float = 0.0,
        probe_sweep: int = 16,
    ) -> None:
        """Draw the rotations.

        Args:
            queue_pairs: how many.
            values: (queue pairs, E) or (E,) UDP source ports.
            seed: of the rotations.
            floor: least number of good values of a queue pair.
            plane: like ``values``, the plane of each; one plane when None.
            active: values in the rotation, evenly over the planes; the others are spares.
                All when None.
            probe_interval_s: between two rounds of probes of a queue pair.
            probe_sweep: rounds in which all bad values of a queue pair are probed once.

        Raises:
            ValueError: not ``1 <= floor <= active <= E``.
        """
        super().__init__(queue_pairs, values)
        size = self.size
        active = size if active is None else active
        if not 1 <= floor <= active <= size:
            raise ValueError(f"not 1 <= floor {floor} <= active {active} <= {size} values")
        shape = (queue_pairs, size)
        self._plane = np.broadcast_to(np.int64(0) if plane is None else plane, shape)
        order = _rotation(self._plane, seed)[:, :active]
        self.state = np.full(shape, EvState.SPARE, np.uint8)
        np.put_along_axis(self.state, order, EvState.GOOD, axis=1)
        self._slot = np.full(shape, -1)
        np.put_along_axis(self._slot, order, np.arange(active)[None], axis=1)
        # Keys, places in ``_flat``, twice over: whoever looks ahead need not wrap.
        self._rotation = np.tile(order + np.arange(queue_pairs)[:, None] * size, 2)
        self._active = active
        self._flat = self.state.reshape(-1)
        self._floor = floor
        self._next = np.zeros(queue_pairs, np.int64)
        self.good = np.full(queue_pairs, active)
        self._in_use = self.good.copy()  # good or to be skipped
        self._bad = np.zeros(queue_pairs, np.int64)
        self._has_spares = active < size
        self._scratch = np.zeros(queue_pairs * size, np.int32)
        self._probe_interval_s = probe_interval_s
        self._probe_sweep = probe_sweep
        self._probe_s = np.full(queue_pairs, np.inf)
        self._probe_next = np.zeros(queue_pairs, np.int64)
        self.skips = self.exclusions = self.replacements = 0
        self.restored = self.probed = self.held = 0

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        if not len(rows):
            return rows
        batch = distinct(rows, len(self.good))
        key, taken = self._walk(batch.rows, batch.events)
        if len(key) < len(rows):
            key = self._walk_on(batch.rows, batch.events, key, taken)
        chosen = np.empty_like(key)
        chosen[grouping(batch)] = key
        return chosen - rows * self.size

    def _walk_on(self, u: Ints, wanted: Ints, key: Ints, taken: Ints) -> Ints:
        """Walk until all have what they want; return all keys, queue pair by queue pair."""
        first = np.cumsum(wanted) - wanted
        keys = np.empty(int(wanted.sum()), np.int64)
        while True:
            keys[np.repeat(first, taken) + within(taken)] = key
            more = taken < wanted
            if not more.any():
                return keys
            u, wanted, first = u[more], (wanted - taken)[more], (first + taken)[more]
            key, taken = self._walk(u, wanted)

    def _walk(self, u: Ints, left: Ints) -> tuple[Ints, Ints]:
        """Go on in the rotations, up to ``left`` good values or as far as one look reaches.

        Returns:
            Keys of the values taken, queue pair by queue pair, and (u,) how many of each.
        """
        length = self._active
        most = int(left.max())
        ahead = np.arange(min(most + most // 4 + 2, length))
        key = self._rotation.take((self._next[u] + u * (2 * length))[:, None] + ahead)
        state = self._flat.take(key)
        good = state == EvState.GOOD
        nth = good.cumsum(axis=1)
        unfilled = nth < left[:, None]
        taken = key[good & (nth <= left[:, None])]
        # Passed: up to the last one taken, or everything in sight.
        passed = np.minimum(unfilled.sum(axis=1) + 1, len(ahead))
        skipped = state == EvState.SKIP
        if skipped.any():
            skipped &= ahead < passed[:, None]
            self._flat[key[skipped]] = EvState.GOOD
            self.good[u] += skipped.sum(axis=1)
        self._next[u] = (self._next[u] + passed) % length
        return taken, np.minimum(nth[:, -1], left)

    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Skip the values of marked packets once."""
        if marked.any():
            self._skip(rows[marked], index[marked])

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Skip the values of packets trimmed before the last hop once."""
        if not last_hop.all():
            self._skip(rows[~last_hop], index[~last_hop])

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Assume the values of lost packets bad."""
        self._exclude(rows, index, EvState.ASSUMED_BAD)
        waiting = rows[(self._bad[rows] > 0) & (self._probe_s[rows] == np.inf)]
        self._probe_s[waiting] = now_s + self._probe_interval_s

    def deny(self, rows: Ints, index: Ints) -> None:
        """Take values out of use by the operator's will; the floor holds here too."""
        self._exclude(rows, index, EvState.DENIED)

    def allow(self, rows: Ints, index: Ints) -> None:
        """Take back ``deny``."""
        self._restore(rows, index, EvState.DENIED)

    def probes(self, now_s: float, busy: Bools | None = None) -> tuple[Ints, Ints]:
        """Return (n,) queue pairs and (n,) indexes of bad values to probe now.

        Args:
            now_s: the time.
            busy: (queue pairs,) which may probe; the others do when they are. All when None.
        """
        due = self._probe_s <= now_s
        u = np.flatnonzero(due if busy is None else due & busy)
        if not len(u):
            return u, u
        some = self._bad[u] > 0
        self._probe_s[u] = np.where(some, now_s + self._probe_interval_s, np.inf)
        u = u[some]
        count = self._bad[u]
        quota = -(-count // self._probe_sweep)
        bad = np.flatnonzero(self.state[u] == EvState.ASSUMED_BAD)  # by queue pair, ascending
        begin = np.arange(len(u)) * self.size
        first = np.searchsorted(bad, begin)
        turn = np.searchsorted(bad, begin + self._probe_next[u]) - first
        which = np.repeat(np.arange(len(u)), quota)
        place = first[which] + (turn[which] + within(quota)) % count[which]
        index = bad[place] % self.size
        self._probe_next[u] = index[np.cumsum(quota) - 1] + 1
        self.probed += len(index)
        return u[which], index

    def on_probe_answer(self, rows: Ints, index: Ints) -> None:
        """Put values whose probes were answered back into use."""
        self._restore(rows, index, EvState.ASSUMED_BAD)

    def _first_in(self, rows: Ints, index: Ints, *states: EvState) -> tuple[Ints, Ints]:
        """Return the first event of each value that is in one of some states."""
        key = rows * self.size + index
        state = self._flat[key]
        keep = first_of_each(key, self._scratch)
        keep &= np.logical_or.reduce([state == wanted for wanted in states])
        return rows[keep], index[keep]

    def _above_floor(self, rows: Ints, count: Ints) -> Bools:
        """Return (n,) which events, one less each, leave (queue pairs,) counts at the floor."""
        batch = distinct(rows, len(count))
        room = count[batch.rows] - self._floor
        if (batch.events <= room).all():
            return np.ones(len(rows), bool)
        fits: Bools = ordinal(batch) < room[batch.at]
        self.held += int(np.count_nonzero(~fits))
        return fits

    def _skip(self, rows: Ints, index: Ints) -> None:
        rows, index = self._first_in(rows, index, EvState.GOOD)
        fits = self._above_floor(rows, self.good)
        rows, index = rows[fits], index[fits]
        self.state[rows, index] = EvState.SKIP
        np.subtract.at(self.good, rows, 1)
        self.skips += len(rows)

    def _exclude(self, rows: Ints, index: Ints, to: EvState) -> None:
        if to == EvState.DENIED:
            idle = self._first_in(rows, index, EvState.ASSUMED_BAD, EvState.SPARE)
            np.subtract.at(self._bad, idle[0], self.state[idle] == EvState.ASSUMED_BAD)
            self.state[idle] = to
            self.exclusions += len(idle[0])
        rows, index = self._first_in(rows, index, EvState.GOOD, EvState.SKIP)
        if self._has_spares:
            here = np.array(
                [not self._replace(r, i) for r, i in zip(rows, index, strict=True)], bool
            )
            self._retire(rows[~here], index[~here], to)
            rows, index = rows[here], index[here]
        fits = self._above_floor(rows, self._in_use)
        rows, index = rows[fits], index[fits]
        np.subtract.at(self._in_use, rows, 1)
        np.subtract.at(self.good, rows, self.state[rows, index] == EvState.GOOD)
        self._retire(rows, index, to)
        # With fewer in use, so many may be waiting to be skipped that too few are left.
        for row in np.unique(rows[self.good[rows] < self._floor]):
            self.state[row][self.state[row] == EvState.SKIP] = EvState.GOOD
            self.good[row] = self._in_use[row]

    def _retire(self, rows: Ints, index: Ints, to: EvState) -> None:
        self.state[rows, index] = to
        if to == EvState.ASSUMED_BAD:
            np.add.at(self._bad, rows, 1)
        self.exclusions += len(rows)

    def _replace(self, row: int, index: int) -> bool:
        """Put a spare of the same plane in a value's place, if there is one."""
        alike = self._plane[row] == self._plane[row, index]
        spare = np.flatnonzero(alike & (self.state[row] == EvState.SPARE))
        if not len(spare):
            return False
        self.good[row] += self.state[row, index] == EvState.SKIP
        self._swap(row, index, int(spare[0]))
        self.replacements += 1
        return True

    def _swap(self, row: int, out: int, into: int) -> None:
        slot = self._slot[row, out]
        self._slot[row, out], self._slot[row, into] = -1, slot
        self._rotation[row, [slot, slot + self._active]] = row * self.size + into
        self.state[row, into] = EvState.GOOD

    def _restore(self, rows: Ints, index: Ints, from_: EvState) -> None:
        rows, index = self._first_in(rows, index, from_)
        if from_ == EvState.ASSUMED_BAD:
            np.subtract.at(self._bad, rows, 1)
        self.restored += len(rows)
        out = self._slot[rows, index] < 0
        here = rows[~out]
        self.state[here, index[~out]] = EvState.GOOD
        np.add.at(self._in_use, here, 1)
        np.add.at(self.good, here, 1)
        # Afterwards: a place is vacant only if its own value has not come back.
        for row, value in zip(rows[out], index[out], strict=True):
            self._return(row, value)

    def _return(self, row: int, index: int) -> None:
        """Give a replaced value the place of one of its plane that is out of use, or spare it."""
        alike = self._plane[row] == self._plane[row, index]
        unused = (self.state[row] == EvState.ASSUMED_BAD) | (self.state[row] == EvState.DENIED)
        vacant = np.flatnonzero(alike & unused & (self._slot[row] >= 0))
        if not len(vacant):
            self.state[row, index] = EvState.SPARE
            return
        self._swap(row, int(vacant[0]), index)
        self._in_use[row] += 1
        self.good[row] += 1


def _rotation(plane: NDArray[np.integer], seed: int) -> Ints:
    """Return (queue pairs, E) indexes in a random order in which planes take turns."""
    draw = np.random.default_rng(seed)
    by_plane = np.lexsort((draw.random(plane.shape), plane), axis=1)
    sorted_plane = np.take_along_axis(plane, by_plane, axis=1)
    column = np.arange(plane.shape[1])
    begins = np.ones(plane.shape, bool)
    begins[:, 1:] = sorted_plane[:, 1:] != sorted_plane[:, :-1]
    round_ = column - np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    order = np.argsort(round_ + draw.random(plane.shape), axis=1)
    return np.asarray(np.take_along_axis(by_plane, order, axis=1), np.int64)
