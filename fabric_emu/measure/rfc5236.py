"""Reorder density and reorder buffer-occupancy density of RFC 5236, over one flow.

Both need only the sequence numbers in arrival order (numbers that do not wrap). A stream whose
packets all stay within the threshold is measured with array operations. One that strays over it
is followed packet by packet, because the threshold then decides which numbers count as lost and
every such decision moves the ones after it: about a microsecond per packet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from fabric_emu.measure.rfc4737 import BoolColumn, Int64Column, IntColumn, first_copies

FloatColumn = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReorderDensity:
    """Distribution of how many places packets arrive early (negative) or late (positive).

    Attributes:
        counted: (n,) False for duplicates and for packets displaced beyond the threshold.
        receive_index: (n,) number that would stand here had all come in order; 0 if not counted.
        displacement: (2 threshold + 1,) the values -threshold ... threshold.
        density: (2 threshold + 1,) share of the counted packets with each displacement; all 0
            when no packet counts.
        event_sequence: (events,) numbers of the displaced packets, ascending.
        event_displacement: (events,) receive index less number of each.
    """

    counted: BoolColumn
    receive_index: Int64Column
    displacement: Int64Column
    density: FloatColumn
    event_sequence: Int64Column
    event_displacement: Int64Column


@dataclass(frozen=True, eq=False)
class BufferOccupancyDensity:
    """Distribution of the packets that wait in a reorder buffer, seen after each arrival.

    Attributes:
        occupancy: (threshold + 1,) the values 0 ... threshold.
        density: (threshold + 1,) share of arrivals, duplicates and packets already given up
            aside, that leave so many waiting; all 0 when nothing arrived.
    """

    occupancy: Int64Column
    density: FloatColumn


def _shares(values: Int64Column, size: int) -> FloatColumn:
    return np.bincount(values, minlength=size) / max(values.size, 1)


def _check_threshold(threshold: int) -> None:
    if threshold < 0:
        raise ValueError(f"threshold {threshold}: expected 0 or more packets")


def reorder_density(sequence: IntColumn, displacement_threshold: int) -> ReorderDensity:
    """Return the reorder density (RD) and the reorder events behind it.

    Args:
        sequence: (n,) numbers in arrival order.
        displacement_threshold: DT; a number missing for more arrivals than this counts as lost.

    Raises:
        ValueError: the threshold is negative.

    Source: RFC 5236 (reorder density).
    """
    _check_threshold(displacement_threshold)
    numbers = np.asarray(sequence, np.int64)
    kept = first_copies(numbers)
    counted = np.zeros(numbers.size, np.bool_)
    receive_index = np.zeros(numbers.size, np.int64)
    in_order = np.sort(numbers[kept])
    if (np.abs(in_order - numbers[kept]) <= displacement_threshold).all():
        # Nobody strays over the threshold, so exactly the numbers that never come are lost.
        counted[kept] = True
        receive_index[kept] = in_order
    else:
        for position, index in _assign_receive_indexes(numbers.tolist(), displacement_threshold):
            counted[position] = True
            receive_index[position] = index
    displaced = (receive_index - numbers)[counted]
    event = np.flatnonzero(displaced)
    event_sequence = numbers[counted][event]
    ascending = np.argsort(event_sequence)
    return ReorderDensity(
        counted=counted,
        receive_index=receive_index,
        displacement=np.arange(-displacement_threshold, displacement_threshold + 1),
        density=_shares(displaced + displacement_threshold, 2 * displacement_threshold + 1),
        event_sequence=event_sequence[ascending],
        event_displacement=displaced[event][ascending],
    )


def _assign_receive_indexes(numbers: list[int], threshold: int) -> list[tuple[int, int]]:
    """Return (arrival position, receive index) of every packet that counts.

    A window of ``threshold + 1`` arrivals is looked ahead of the one being judged. The next
    index is the smallest number not yet used that is in the window or came early.
    """
    assigned: list[tuple[int, int]] = []
    window: deque[int] = deque()
    held: set[int] = set()  # in the window, or early and waiting for its index
    candidates: list[int] = []  # heap of held numbers; stale entries go when they surface
    next_index = min(numbers)
    arrival = 0
    while True:
        while len(window) <= threshold and arrival < len(numbers):
            number = numbers[arrival]
            if number >= next_index and number not in held:
                window.append(arrival)
                held.add(number)
                heappush(candidates, number)
            arrival += 1
        if not window:
            return assigned
        while candidates[0] < next_index or candidates[0] not in held:
            heappop(candidates)
        next_index = candidates[0]
        position = window.popleft()
        displacement = next_index - numbers[position]
        if abs(displacement) <= threshold:
            assigned.append((position, next_index))
            held.discard(next_index)
            next_index += 1
        else:
            held.discard(numbers[position])


def buffer_occupancy_density(
    sequence: IntColumn, buffer_threshold: int, first: int | None = None
) -> BufferOccupancyDensity:
    """Return the reorder buffer-occupancy density (RBD).

    A packet ahead of the expected number waits. One that comes when ``buffer_threshold`` packets
    wait already makes the receiver give up the numbers missing before the first waiting one.

    Args:
        sequence: (n,) numbers in arrival order.
        buffer_threshold: BT, packets the buffer holds.
        first: number expected first; the smallest one received when None.

    Raises:
        ValueError: the threshold is negative.

    Source: RFC 5236 (reorder buffer-occupancy density).
    """
    _check_threshold(buffer_threshold)
    numbers = np.asarray(sequence, np.int64)
    occupancy = np.zeros(0, np.int64)
    if numbers.size:
        expected = int(numbers.min()) if first is None else first
        unique = numbers[first_copies(numbers)]
        waiting = waiting_packets(unique)
        complete = unique.min() == expected and unique.max() - expected + 1 == unique.size
        if complete and waiting.max() <= buffer_threshold:
            occupancy = waiting
        else:
            followed = _follow_buffer(numbers.tolist(), buffer_threshold, expected)
            occupancy = np.array(followed, np.int64)
    return BufferOccupancyDensity(
        occupancy=np.arange(buffer_threshold + 1),
        density=_shares(occupancy, buffer_threshold + 1),
    )


def waiting_packets(sequence: IntColumn) -> Int64Column:
    """Return after each arrival how many packets wait for a smaller number still to come.

    Args:
        sequence: (n,) numbers in arrival order, each once. Numbers that never come hold up
            nobody.
    """
    delivered_at = delivery_positions(sequence)
    delivered = np.cumsum(np.bincount(delivered_at, minlength=delivered_at.size))
    return np.arange(1, delivered_at.size + 1) - delivered


def delivery_positions(sequence: IntColumn) -> Int64Column:
    """Return for each arrival the one (itself or later) after which all smaller numbers are in.

    Args:
        sequence: (n,) numbers in arrival order, each once.
    """
    by_number = np.argsort(np.asarray(sequence, np.int64), kind="stable")
    delivered_at = np.empty(by_number.size, np.int64)
    delivered_at[by_number] = np.maximum.accumulate(by_number)
    return delivered_at


def _follow_buffer(numbers: list[int], threshold: int, expected: int) -> list[int]:
    """Return the packets that wait after each arrival that is neither a copy nor given up."""
    occupancy: list[int] = []
    waiting: list[int] = []  # heap
    held: set[int] = set()
    for number in numbers:
        if number < expected or number in held:
            continue
        heappush(waiting, number)
        held.add(number)
        if len(waiting) > threshold:
            expected = waiting[0]
        while waiting and waiting[0] == expected:
            held.discard(heappop(waiting))
            expected += 1
        occupancy.append(len(waiting))
    return occupancy
