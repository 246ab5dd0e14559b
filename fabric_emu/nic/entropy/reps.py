"""REPS: entropy values whose packets came back unmarked are used again."""

from __future__ import annotations

import numpy as np

from fabric_emu.nic.batches import distinct, ordinal
from fabric_emu.nic.entropy.policy import Bools, Ints, Ports, PortTable


class Reps(PortTable):
    """A small ring of good entropy values per queue pair; random values when it is used up.

    An unmarked acknowledgement puts its value into the ring, over the oldest when it is full.
    A packet takes the oldest value not yet used again, each once, else a random one. A timeout
    *freezes* the queue pair: it goes round the values in its ring, used or not, and draws no new
    ones, until a set time has passed; then it forgets them and explores with random values.

    Source:
        Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and
        Failure Mitigation", arXiv 2407.21625; ``UecMpReps`` in ``sim/uec_mp.cpp`` and
        ``buffer_reps.h`` of uet-htsim.

    Fidelity:
        A packet trimmed on the last hop found its path free and puts its value back, as in the
        simulator. Tell as losses only what means a broken path: without trimming a full queue
        loses packets too, and freezing on those is wrong (``freeze_s`` None turns it off).
        With 5 to 10 packets in a round trip the ring holds the whole trip, which on a real
        fabric it does not.

    Attributes:
        recycled, drawn: packets sent with a value of the ring, and with a random one.
        freezes: how often a queue pair froze.
    """

    def __init__(
        self,
        queue_pairs: int,
        values: Ports | None,
        seed: int,
        buffer: int = 8,
        freeze_s: float | None = None,
        explore_packets: int = 16,
    ) -> None:
        """Start with empty rings.

        Args:
            queue_pairs: how many.
            values: to draw from; see ``PortTable``.
            seed: of the draws.
            buffer: values a ring holds.
            freeze_s: time frozen after a timeout (the simulator's is 10 ms, to be scaled);
                None: never freeze.
            explore_packets: random values after freezing.
        """
        super().__init__(queue_pairs, values)
        self.recycled = self.drawn = self.freezes = 0
        self._draw = np.random.default_rng(seed)
        self._freeze_s = freeze_s
        self._explore_packets = explore_packets
        self._ring = np.zeros((queue_pairs, buffer), np.int64)
        self._head = np.zeros(queue_pairs, np.int64)  # next to be written
        self._fresh = np.zeros(queue_pairs, np.int64)  # not used again, just before the head
        self._filled = np.zeros(queue_pairs, np.int64)  # ever written since forgotten
        self._explore = np.zeros(queue_pairs, np.int64)
        self._thaw_s = np.full(queue_pairs, np.inf)
        self._frozen = np.zeros(queue_pairs, bool)
        self._cycle = np.zeros(queue_pairs, np.int64)  # next to be used while frozen

    @property
    def frozen(self) -> Bools:
        """(queue pairs,) whether each is frozen."""
        return self._frozen.copy()

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        self._thaw(now_s)
        n = len(rows)
        if not n:
            return rows
        batch = distinct(rows, len(self._head))
        u, count = batch.rows, batch.events
        length = self._ring.shape[1]
        explore = np.minimum(self._explore[u], count)
        frozen = self._frozen[u] & (self._filled[u] > 0)
        fresh = np.where(self._frozen[u], 0, np.minimum(self._fresh[u], count - explore))

        turn = ordinal(batch) - explore[batch.at]
        slot = (self._head[u] - self._fresh[u])[batch.at] + turn
        known = (turn >= 0) & (turn < fresh[batch.at])
        if frozen.any():
            cold = frozen[batch.at]
            slot = np.where(
                cold, (self._cycle[rows] + turn) % np.maximum(self._filled[rows], 1), slot
            )
            known |= cold
            ice = u[frozen]
            self._cycle[ice] = (self._cycle[ice] + count[frozen]) % self._filled[ice]
        index = self._draw.integers(0, self.size, n)
        index = np.where(known, self._ring[rows, slot % length], index)

        self._explore[u] -= explore
        self._fresh[u] -= fresh
        recycled = int(np.count_nonzero(known))
        self.recycled += recycled
        self.drawn += n - recycled
        return index

    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Put the values of unmarked packets into the rings."""
        self._put(rows, index, ~marked)

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Put the values of packets that got as far as the last hop into the rings."""
        self._put(rows, index, last_hop)

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Freeze queue pairs with a timeout, unless they are frozen or explore."""
        self._thaw(now_s)
        if self._freeze_s is None or not len(rows):
            return
        rows = np.unique(rows)
        rows = rows[~self._frozen[rows] & (self._explore[rows] == 0)]
        self._frozen[rows] = True
        self._thaw_s[rows] = now_s + self._freeze_s
        self._cycle[rows] = 0
        self.freezes += len(rows)

    def _put(self, rows: Ints, index: Ints, good: Bools) -> None:
        if not good.all():
            rows, index = rows[good], index[good]
        if not len(rows):
            return
        batch = distinct(rows, len(self._head))
        u = batch.rows
        length = self._ring.shape[1]
        # In order, so that the last of those that share a slot stays.
        self._ring[rows, (self._head[rows] + ordinal(batch)) % length] = index
        self._head[u] = (self._head[u] + batch.events) % length
        self._fresh[u] = np.minimum(self._fresh[u] + batch.events, length)
        self._filled[u] = np.minimum(self._filled[u] + batch.events, length)

    def _thaw(self, now_s: float) -> None:
        if self._freeze_s is None:
            return
        rows = np.flatnonzero(self._thaw_s <= now_s)
        if len(rows):
            self._frozen[rows] = False
            self._thaw_s[rows] = np.inf
            self._fresh[rows] = self._filled[rows] = self._head[rows] = 0
            self._explore[rows] = self._explore_packets
