"""Policies that learn nothing: permuted round robin, and random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.batches import distinct, ordinal
from fabric_emu.nic.entropy.policy import Bools, Ints, Ports, PortTable


class _Deaf(PortTable):
    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Learn nothing."""

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Learn nothing."""

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Learn nothing."""


class Oblivious(_Deaf):
    """Round robin over all values, in an order that changes from lap to lap.

    Within a lap the order is the counter XOR a number drawn for the lap, so every lap uses each
    value once and queue pairs do not march in step.

    Source:
        ``UecMpOblivious`` in ``sim/uec_mp.cpp`` of uet-htsim.

    Fidelity:
        The lap's number is a hash of seed, queue pair and lap, not a generator's next draw.
    """

    def __init__(self, queue_pairs: int, values: Ports | None, seed: int) -> None:
        """Start every queue pair at its own place.

        Args:
            queue_pairs: how many.
            values: see ``PortTable``.
            seed: of the orders.

        Raises:
            ValueError: the number of values is not a power of two.
        """
        super().__init__(queue_pairs, values)
        if self.size & (self.size - 1):
            raise ValueError(f"{self.size} entropy values: not a power of two")
        self._seed = seed
        self._shift = self.size.bit_length() - 1
        self._sent = np.zeros(queue_pairs, np.int64)

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        if not len(rows):
            return rows
        batch = distinct(rows, len(self._sent))
        count = self._sent[rows] + ordinal(batch)
        self._sent[batch.rows] += batch.events
        turn = _mix(self._seed, rows, count >> self._shift)
        return (count ^ turn.astype(np.int64)) & (self.size - 1)


class RandomEntropy(_Deaf):
    """Every packet draws its value anew."""

    def __init__(self, queue_pairs: int, values: Ports | None, seed: int) -> None:
        """Take the values, see ``PortTable``, and the seed of the draws."""
        super().__init__(queue_pairs, values)
        self._draw = np.random.default_rng(seed)

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        return self._draw.integers(0, self.size, len(rows))


def _mix(seed: int, row: Ints, lap: Ints) -> NDArray[np.uint64]:
    """Return a hash of three numbers, by the finalizer of SplitMix64."""
    x = row.astype(np.uint64) << np.uint64(32) ^ lap.astype(np.uint64)
    x += np.uint64(seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    mixed: NDArray[np.uint64] = x ^ x >> np.uint64(31)
    return mixed
