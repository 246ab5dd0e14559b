"""Policies that learn nothing: permuted round robin, and random."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Bools, Ints, compiled
from fabric_emu.nic.entropy.draws import draw, generator, mix
from fabric_emu.nic.entropy.policy import Ports, PortTable


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
        self._seed = int(generator(seed)[0])
        self._shift = self.size.bit_length() - 1
        self._sent = np.zeros(queue_pairs, np.int64)

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        if not len(rows):
            return rows
        return _round_robin(self._sent, rows, self._seed, self._shift)


class RandomEntropy(_Deaf):
    """Every packet draws its value anew."""

    def __init__(self, queue_pairs: int, values: Ports | None, seed: int) -> None:
        """Take the values, see ``PortTable``, and the seed of the draws."""
        super().__init__(queue_pairs, values)
        self._random = generator(seed)

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        if not len(rows):
            return rows
        return _at_random(self._random, rows, self.size)


@compiled
def _round_robin(sent: Ints, rows: Ints, seed: int, shift: int) -> Ints:
    chosen = np.empty_like(rows)
    for i in range(len(rows)):
        row = rows[i]
        lap = sent[row] >> shift
        turn = mix((row << 32 ^ lap) + seed)
        chosen[i] = (sent[row] ^ turn) & ((1 << shift) - 1)
        sent[row] += 1
    return chosen


@compiled
def _at_random(random: Ints, rows: Ints, size: int) -> Ints:
    chosen = np.empty_like(rows)
    for i in range(len(rows)):
        chosen[i] = draw(random, size)
    return chosen
