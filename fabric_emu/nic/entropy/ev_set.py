"""MRC's set of entropy values (EV): a rotation that skips marked paths and leaves broken ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Ints
from fabric_emu.nic.entropy import ev_moves
from fabric_emu.nic.entropy.ev_moves import EvState
from fabric_emu.nic.entropy.policy import Ports, PortTable

_ALL = np.empty(0, bool)


class EvSet(PortTable):
    """Entropy values of each queue pair, in a pseudo-random rotation of its own.

    * a mark, or a trim before the last hop: the value is passed over once, then good again;
    * a trim on the last hop: no change, another path would end in the same queue;
    * a loss: assumed bad, out of use until a probe on it is answered. A spare of the same plane
      takes its place;
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
        plane = np.broadcast_to(0 if plane is None else plane, shape)
        self._plane = np.array(plane, np.int64, order="C")
        self._rotation = np.ascontiguousarray(_rotation(self._plane, seed)[:, :active])
        self.state = np.full(shape, EvState.SPARE, np.uint8)
        np.put_along_axis(self.state, self._rotation, EvState.GOOD, axis=1)
        self._slot = np.full(shape, -1)  # place in the rotation
        np.put_along_axis(self._slot, self._rotation, np.arange(active)[None], axis=1)
        self._pairs = np.zeros(queue_pairs, ev_moves.PAIR)
        self._pairs["good"] = self._pairs["in_use"] = active
        self._pairs["probe_s"] = np.inf
        self.good: Ints = self._pairs["good"]
        self._floor = floor
        self._probe_interval_s = probe_interval_s
        self._probe_sweep = probe_sweep
        self.skips = self.exclusions = self.replacements = 0
        self.restored = self.probed = self.held = 0

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        if not len(rows):
            return rows
        return ev_moves.choose(self._pairs, self.state, self._rotation, rows)

    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Skip the values of marked packets once."""
        self._skip(rows, index, marked, True)

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Skip the values of packets trimmed before the last hop once."""
        self._skip(rows, index, last_hop, False)

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Assume the values of lost packets bad."""
        self._exclude(rows, index, EvState.ASSUMED_BAD, now_s + self._probe_interval_s)

    def deny(self, rows: Ints, index: Ints) -> None:
        """Take values out of use by the operator's will; the floor holds here too."""
        self._exclude(rows, index, EvState.DENIED, np.inf)

    def allow(self, rows: Ints, index: Ints) -> None:
        """Take back ``deny``."""
        self._restore(rows, index, EvState.DENIED)

    def probes(self, now_s: float, busy: Bools | None = None) -> tuple[Ints, Ints]:
        """Return (n,) queue pairs and (n,) indexes of bad values to probe now.

        Args:
            now_s: the time.
            busy: (queue pairs,) which may probe; the others do when they are. All when None.
        """
        busy = _ALL if busy is None else busy
        rows, index = ev_moves.probes(
            self._pairs, self.state, busy, now_s, self._probe_interval_s, self._probe_sweep
        )
        self.probed += len(rows)
        return rows, index

    def on_probe_answer(self, rows: Ints, index: Ints) -> None:
        """Put values whose probes were answered back into use."""
        self._restore(rows, index, EvState.ASSUMED_BAD)

    def _skip(self, rows: Ints, index: Ints, flags: Bools, when: bool) -> None:
        if not len(rows):
            return
        skips, held = ev_moves.skip(self._pairs, self.state, rows, index, flags, when, self._floor)
        self.skips += skips
        self.held += held

    def _exclude(self, rows: Ints, index: Ints, to: EvState, probe_s: float) -> None:
        if not len(rows):
            return
        exclusions, replacements, held = ev_moves.exclude(
            self._pairs,
            self.state,
            self._rotation,
            self._slot,
            self._plane,
            rows,
            index,
            int(to),
            self._floor,
            probe_s,
        )
        self.exclusions += exclusions
        self.replacements += replacements
        self.held += held

    def _restore(self, rows: Ints, index: Ints, from_: EvState) -> None:
        if not len(rows):
            return
        rows = np.ascontiguousarray(rows)
        tables = self.state, self._rotation, self._slot, self._plane
        self.restored += ev_moves.restore(self._pairs, *tables, rows, index, int(from_))


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
