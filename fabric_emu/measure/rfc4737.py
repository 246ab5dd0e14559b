"""How far packets arrive out of order, as RFC 4737 defines it, over numpy columns.

Every column is in arrival order and holds one flow, one element per packet; sequence numbers do
not wrap. The functions on bare sequences expect each number once, as the RFC asks
(``first_copies`` picks them); ``measure_reordering`` takes the stream as it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntColumn = npt.NDArray[np.integer[Any]]
Int64Column = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FreeRuns:
    """Runs of packets in order, each ended by a reordered packet (RFC 4737 section 4.6).

    Attributes:
        lengths: (runs,) packets in each ended run; 0 where two reordered packets touch.
        run: r, length of the run still open at the end of the stream.
        runs: x, ended runs, which is also the number of reordered packets.
        accepted: a, packets in order, those of the open run included.
        packets: p, packets received.
        squares: q, sum of the squares of ``lengths``.
    """

    lengths: Int64Column
    run: int
    runs: int
    accepted: int
    packets: int
    squares: int

    @property
    def mean(self) -> float:
        """a/x, packets in order per reordered one; 0 without a reordered packet."""
        return self.accepted / self.runs if self.runs else 0.0

    @property
    def weighted_mean(self) -> float:
        """q/a, run length as a packet in order sees it; 0 without a packet in order."""
        return self.squares / self.accepted if self.accepted else 0.0

    @property
    def evenness(self) -> float:
        """(q/a)/(a/x): 1 when all runs are alike, larger when reordering comes in bursts."""
        return self.weighted_mean / self.mean if self.mean else 0.0


@dataclass(frozen=True, eq=False)
class Reordering:
    """All sample metrics of RFC 4737 for one flow.

    Attributes:
        kept: (received,) index into the input of the first copy of each packet.
        duplicates: further copies, left out of everything else.
        reordered: (received,) whether the packet came after one with a larger number.
        sequence: (reordered,) number of each reordered packet; the columns below are alike.
        extent: arrivals back to the first packet with a larger number (section 4.2).
        late_ns: arrival behind that packet's (section 4.3).
        byte_offset: payload of all earlier arrivals with larger numbers (section 4.4).
        n_reordering: arrivals right before it that all have larger numbers, 0 when a smaller
            one came right before (section 5).
        delay_ns: one-way delay, where the send times are known.
        discontinuities: (d,) position, among the received, where each stretch of reordering
            began: the first arrival that overtook somebody (section 4.5).
        gap_packets: (d - 1,) arrivals from each discontinuity to the next.
        gap_ns: (d - 1,) the same in time.
        free_runs: packets in order between reordered ones.
    """

    kept: Int64Column
    duplicates: int
    reordered: BoolColumn
    sequence: Int64Column
    extent: Int64Column
    late_ns: Int64Column
    byte_offset: Int64Column
    n_reordering: Int64Column
    delay_ns: Int64Column | None
    discontinuities: Int64Column
    gap_packets: Int64Column
    gap_ns: Int64Column
    free_runs: FreeRuns

    @property
    def received(self) -> int:
        """Packets received, each counted once."""
        return self.kept.size

    @property
    def ratio(self) -> float:
        """Reordered packets over received ones; 0 when nothing was received."""
        return self.sequence.size / self.received if self.received else 0.0

    @property
    def degree(self) -> npt.NDArray[np.float64]:
        """(max n,) share of received packets that are at least 1-, 2-, ... reordered.

        A TCP that retransmits on the third duplicate ACK does so for ``degree[2]``.
        """
        at_least = np.cumsum(np.bincount(self.n_reordering, minlength=1)[:0:-1])[::-1]
        return at_least / max(self.received, 1)


def first_copies(sequence: IntColumn) -> Int64Column:
    """Return the positions, ascending, where each number arrives for the first time."""
    numbers = np.asarray(sequence, np.int64)
    if (numbers[1:] > numbers[:-1]).all():
        return np.arange(numbers.size)
    by_number = np.argsort(numbers, kind="stable")
    in_order = numbers[by_number]
    first = np.ones(numbers.size, np.bool_)
    first[by_number[1:]] = in_order[1:] != in_order[:-1]
    return np.flatnonzero(first)


def reordered_mask(sequence: IntColumn) -> BoolColumn:
    """Return for each packet whether a larger number arrived before it (section 3.3)."""
    numbers = np.asarray(sequence, np.int64)
    return numbers < np.maximum.accumulate(numbers)


def reordering_extent(sequence: IntColumn, late: Int64Column) -> Int64Column:
    """Return how many arrivals ago the first larger number came (section 4.2).

    Args:
        sequence: (n,) numbers in arrival order.
        late: (k,) positions of reordered packets.
    """
    numbers = np.asarray(sequence, np.int64)
    # The first arrival above a number is where the running maximum passes it.
    highest = np.maximum.accumulate(numbers)
    return np.asarray(late - np.searchsorted(highest, numbers[late], side="right"), np.int64)


def n_reordering(sequence: IntColumn, late: Int64Column) -> Int64Column:
    """Return how many arrivals right before each packet all have larger numbers (section 5).

    Args:
        sequence: (n,) numbers in arrival order, each once.
        late: (k,) positions to look at; a packet in order gives 0.
    """
    numbers = np.asarray(sequence, np.int64)
    return np.asarray(late - 1 - _previous_smaller(numbers, late), np.int64)


def _previous_smaller(numbers: Int64Column, positions: Int64Column) -> Int64Column:
    """Return for each position the last one before it with a smaller number, or -1.

    A tree of block minima is climbed until a block to the left holds a smaller number, then
    descended to its last one: 2 log n rounds, however long the stretch between the two.
    """
    minima = [numbers]
    while minima[-1].size > 1:
        level = minima[-1]
        if level.size % 2:
            level = np.append(level, np.iinfo(np.int64).max)
        minima.append(np.minimum(level[0::2], level[1::2]))

    bound = numbers[positions]
    block = np.full(positions.size, -1)
    found_at = np.zeros(positions.size, np.int64)
    climbing = np.arange(positions.size)
    node = positions.copy()
    for height, level in enumerate(minima):
        left = node - 1
        has_smaller = (node & 1 == 1) & (level[left] < bound[climbing])
        block[climbing[has_smaller]] = left[has_smaller]
        found_at[climbing[has_smaller]] = height
        climbing = climbing[~has_smaller]
        node = node[~has_smaller] >> 1
    for height in range(len(minima) - 1, 0, -1):
        inside = np.flatnonzero((found_at >= height) & (block >= 0))
        # A block left of the position is never the last of its level, so it has both halves.
        right = 2 * block[inside] + 1
        block[inside] = np.where(minima[height - 1][right] < bound[inside], right, right - 1)
    return block


def byte_offsets(
    sequence: IntColumn, payload_bytes: IntColumn | int, late: Int64Column
) -> Int64Column:
    """Return the payload that overtook each reordered packet, in bytes (section 4.4).

    Args:
        sequence: (n,) numbers in arrival order, each once.
        payload_bytes: (n,) payload of each packet, or one size for all.
        late: (k,) positions of the reordered packets.
    """
    numbers = np.asarray(sequence, np.int64)
    payload = np.broadcast_to(np.asarray(payload_bytes, np.int64), numbers.shape)
    # Only packets between an overtaker and the overtaken take part.
    edges = np.zeros(numbers.size + 1, np.int64)
    np.add.at(edges, late - reordering_extent(numbers, late), 1)
    np.add.at(edges, late + 1, -1)
    involved = np.flatnonzero(np.cumsum(edges[:-1]))
    rank = np.empty(involved.size, np.int64)
    rank[np.argsort(numbers[involved], kind="stable")] = np.arange(involved.size)
    overtaken_by = _weight_of_larger_before(rank, payload[involved])
    return overtaken_by[np.searchsorted(involved, late)]


def _weight_of_larger_before(rank: Int64Column, weight: Int64Column) -> Int64Column:
    """Return for each element of a permutation the weight of larger ones before it.

    Two ranks differ first in one bit, seen from the top. Going down the bits, elements that
    agree in all bits above stand together in arrival order, so one running sum per bit counts
    every pair exactly once: O(n log n) without a loop over elements.
    """
    n = rank.size
    total = np.zeros(n, np.int64)
    arranged = np.arange(n)
    for bit in reversed(range(n.bit_length())):
        ranks = rank[arranged]
        # Ranks are 0..n-1 without holes, so a group's place is known from its upper bits.
        start = (ranks >> (bit + 1)) << (bit + 1)
        upper = (ranks >> bit) & 1
        before = np.cumsum(upper * weight[arranged]) - upper * weight[arranged]
        total[arranged] += np.where(upper == 0, before - before[start], 0)
        uppers_before = np.cumsum(upper) - upper
        uppers_before -= uppers_before[start]
        lowers_before = np.arange(n) - start - uppers_before
        place = start + np.where(upper == 1, (1 << bit) + uppers_before, lowers_before)
        moved = np.empty_like(arranged)
        moved[place] = arranged
        arranged = moved
    return total


def free_runs(reordered: BoolColumn) -> FreeRuns:
    """Return the runs of packets in order between reordered ones (section 4.6)."""
    late = np.flatnonzero(reordered)
    lengths = np.diff(late, prepend=-1) - 1
    packets = reordered.size
    return FreeRuns(
        lengths=lengths,
        run=packets - 1 - int(late[-1]) if late.size else packets,
        runs=late.size,
        accepted=packets - late.size,
        packets=packets,
        squares=int(np.sum(lengths**2)),
    )


def measure_reordering(
    sequence: IntColumn,
    arrival_ns: IntColumn,
    payload_bytes: IntColumn | int,
    send_ns: IntColumn | None = None,
) -> Reordering:
    """Return every sample metric of RFC 4737 for one flow, duplicates removed first.

    Args:
        sequence: (n,) numbers that do not wrap, in arrival order.
        arrival_ns: (n,) arrival times.
        payload_bytes: (n,) payload of each packet, or one size for all.
        send_ns: (n,) send times on the same clock, for the delay of reordered packets.

    Source: RFC 4737 sections 3 to 5.
    """
    kept = first_copies(sequence)
    numbers = np.asarray(sequence, np.int64)[kept]
    arrival = np.asarray(arrival_ns, np.int64)[kept]
    payload = np.broadcast_to(np.asarray(payload_bytes, np.int64), np.shape(sequence))[kept]
    reordered = reordered_mask(numbers)
    late = np.flatnonzero(reordered)
    extent = reordering_extent(numbers, late)
    delay = None
    if send_ns is not None:
        delay = arrival[late] - np.asarray(send_ns, np.int64)[kept][late]
    discontinuities = np.unique(late - extent)
    return Reordering(
        kept=kept,
        duplicates=int(np.size(sequence)) - kept.size,
        reordered=reordered,
        sequence=numbers[late],
        extent=extent,
        late_ns=arrival[late] - arrival[late - extent],
        byte_offset=byte_offsets(numbers, payload, late),
        n_reordering=n_reordering(numbers, late),
        delay_ns=delay,
        discontinuities=discontinuities,
        gap_packets=np.diff(discontinuities),
        gap_ns=np.diff(arrival[discontinuities]),
        free_runs=free_runs(reordered),
    )
