"""REPS: entropy values whose packets came back unmarked are used again."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Ints, IntTable, compiled
from fabric_emu.nic.entropy.draws import draw, generator
from fabric_emu.nic.entropy.policy import Ports, PortTable

_PAIR = np.dtype(
    [
        ("head", np.int64),  # of the ring: next to be written
        ("filled", np.int64),  # ever written since forgotten
        ("fresh", np.int64),  # not used again, just before the head
        ("explore", np.int64),  # packets still to get random values
        ("cycle", np.int64),  # next to be used while frozen
        ("frozen", np.bool_),
        ("thaw_s", np.float64),
    ],
    align=True,
)
_Pairs = Annotated[NDArray[np.void], _PAIR]


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
        self._random = generator(seed)
        self._freeze_s = freeze_s
        self._explore_packets = explore_packets
        self._ring = np.zeros((queue_pairs, buffer), np.int64)
        self._pairs = np.zeros(queue_pairs, _PAIR)
        self._pairs["thaw_s"] = np.inf
        self._next_thaw_s = np.inf

    @property
    def frozen(self) -> Bools:
        """(queue pairs,) whether each is frozen."""
        return self._pairs["frozen"].copy()

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""
        self._thaw(now_s)
        if not len(rows):
            return rows
        chosen, recycled = _choose(self._pairs, self._ring, rows, self._random, self.size)
        self.recycled += recycled
        self.drawn += len(rows) - recycled
        return chosen

    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Put the values of unmarked packets into the rings."""
        if len(rows):
            _put(self._pairs, self._ring, rows, index, marked, False)

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Put the values of packets that got as far as the last hop into the rings."""
        if len(rows):
            _put(self._pairs, self._ring, rows, index, last_hop, True)

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Freeze queue pairs with a timeout, unless they are frozen or explore."""
        self._thaw(now_s)
        if self._freeze_s is None or not len(rows):
            return
        thaw_s = now_s + self._freeze_s
        self.freezes += _freeze(self._pairs, rows, thaw_s)
        self._next_thaw_s = min(self._next_thaw_s, thaw_s)

    def _thaw(self, now_s: float) -> None:
        if now_s < self._next_thaw_s:
            return
        pairs = self._pairs
        over = pairs["thaw_s"] <= now_s
        for name in ("head", "filled", "fresh", "frozen"):
            pairs[name][over] = 0
        pairs["thaw_s"][over] = np.inf
        pairs["explore"][over] = self._explore_packets
        self._next_thaw_s = float(pairs["thaw_s"].min(initial=np.inf))


@compiled
def _choose(pairs: _Pairs, ring: IntTable, rows: Ints, random: Ints, size: int) -> tuple[Ints, int]:
    """Return (n,) indexes, and how many of them come from a ring."""
    chosen = np.empty_like(rows)
    recycled = 0
    for i in range(len(rows)):
        row, pair = rows[i], pairs[rows[i]]
        known = True
        if pair.explore > 0:
            pair.explore -= 1
            known = False
        elif pair.frozen and pair.filled > 0:
            slot = pair.cycle
            pair.cycle = (slot + 1) % pair.filled
        elif not pair.frozen and pair.fresh > 0:
            slot = (pair.head - pair.fresh) % ring.shape[1]
            pair.fresh -= 1
        else:
            known = False
        recycled += known
        chosen[i] = ring[row, slot] if known else draw(random, size)
    return chosen, recycled


@compiled
def _put(pairs: _Pairs, ring: IntTable, rows: Ints, index: Ints, flags: Bools, good: bool) -> None:
    """Put values into the rings whose flag says that they are good."""
    length = ring.shape[1]
    for i in range(len(rows)):
        if flags[i] != good:
            continue
        pair = pairs[rows[i]]
        ring[rows[i], pair.head] = index[i]
        pair.head = (pair.head + 1) % length
        pair.fresh = min(pair.fresh + 1, length)
        pair.filled = min(pair.filled + 1, length)


@compiled
def _freeze(pairs: _Pairs, rows: Ints, thaw_s: float) -> int:
    """Freeze queue pairs; return how many were not frozen."""
    frozen = 0
    for i in range(len(rows)):
        pair = pairs[rows[i]]
        if pair.frozen or pair.explore > 0:
            continue
        pair.frozen = True
        pair.thaw_s = thaw_s
        pair.cycle = 0
        frozen += 1
    return frozen
