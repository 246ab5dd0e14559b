"""What happens to entropy values of MRC's set, one event after the other.

Everywhere ``state`` and the other tables are (queue pairs, E), and ``rotation`` is (queue pairs,
values in the rotation).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, ByteTable, Ints, IntTable, compiled


class EvState(IntEnum):
    """State of an entropy value; ``SPARE`` ones wait to replace a removed one."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3
    SPARE = 4


PAIR = np.dtype(
    [
        ("next", np.int64),  # place in the rotation
        ("good", np.int64),
        ("in_use", np.int64),  # good or to be skipped
        ("bad", np.int64),  # assumed bad
        ("probe_s", np.float64),  # when to probe next; infinite while nothing is to be probed
        ("probe_next", np.int64),  # first value to look at then
    ]
)
Pairs = Annotated[NDArray[np.void], PAIR]


@compiled
def choose(pairs: Pairs, state: ByteTable, rotation: IntTable, rows: Ints) -> Ints:
    """Return (n,) the next good values of the rotations; those to be skipped become good."""
    chosen = np.empty_like(rows)
    length = rotation.shape[1]
    for i in range(len(rows)):
        row, pair = rows[i], pairs[rows[i]]
        place, value = pair.next, rotation[row, pair.next]
        while state[row, value] != EvState.GOOD:
            if state[row, value] == EvState.SKIP:
                state[row, value] = EvState.GOOD
                pair.good += 1
            place = place + 1 if place + 1 < length else 0
            value = rotation[row, place]
        pair.next = place + 1 if place + 1 < length else 0
        chosen[i] = value
    return chosen


@compiled
def skip(
    pairs: Pairs, state: ByteTable, rows: Ints, index: Ints, flags: Bools, when: bool, floor: int
) -> tuple[int, int]:
    """Skip values with a flag; return how many, and how many moves the floor forbade."""
    skipped = held = 0
    for i in range(len(rows)):
        row, value = rows[i], index[i]
        if flags[i] != when or state[row, value] != EvState.GOOD:
            continue
        if pairs[row].good <= floor:
            held += 1
            continue
        state[row, value] = EvState.SKIP
        pairs[row].good -= 1
        skipped += 1
    return skipped, held


@compiled
def _swap(rotation: IntTable, slot: IntTable, row: int, out: int, into: int) -> None:
    """Give a value's place in the rotation to another."""
    place = slot[row, out]
    slot[row, out], slot[row, into] = -1, place
    rotation[row, place] = into


@compiled
def _spare(state: ByteTable, plane: IntTable, row: int, value: int) -> int:
    """Return the first spare of a value's plane, -1 if there is none."""
    for other in range(state.shape[1]):
        if state[row, other] == EvState.SPARE and plane[row, other] == plane[row, value]:
            return other
    return -1


@compiled
def _vacant(state: ByteTable, slot: IntTable, plane: IntTable, row: int, value: int) -> int:
    """Return the first value of a value's plane that is out of use but has a place, or -1."""
    for other in range(state.shape[1]):
        unused = state[row, other] == EvState.ASSUMED_BAD or state[row, other] == EvState.DENIED
        if unused and slot[row, other] >= 0 and plane[row, other] == plane[row, value]:
            return other
    return -1


@compiled
def exclude(
    pairs: Pairs,
    state: ByteTable,
    rotation: IntTable,
    slot: IntTable,
    plane: IntTable,
    rows: Ints,
    index: Ints,
    to: int,
    floor: int,
    probe_s: float,
) -> tuple[int, int, int]:
    """Take values out of use, to be ``ASSUMED_BAD`` or ``DENIED``.

    Returns:
        How many, how many spares replaced, how many moves the floor forbade.
    """
    excluded = replaced = held = 0
    for i in range(len(rows)):
        row, value, pair = rows[i], index[i], pairs[rows[i]]
        was = state[row, value]
        if was == EvState.GOOD or was == EvState.SKIP:
            spare = _spare(state, plane, row, value)
            if spare >= 0:
                _swap(rotation, slot, row, value, spare)
                state[row, spare] = EvState.GOOD
                pair.good += was == EvState.SKIP
                replaced += 1
            elif pair.in_use > floor:
                pair.in_use -= 1
                pair.good -= was == EvState.GOOD
            else:
                held += 1
                continue
        elif to == EvState.DENIED and was != EvState.DENIED:
            pair.bad -= was == EvState.ASSUMED_BAD
        else:
            continue
        state[row, value] = to
        excluded += 1
        if to == EvState.ASSUMED_BAD:
            pair.bad += 1
            pair.probe_s = min(pair.probe_s, probe_s)
        if pair.good < floor:
            # With fewer in use, so many wait to be skipped that too few are left.
            for other in range(state.shape[1]):
                if state[row, other] == EvState.SKIP:
                    state[row, other] = EvState.GOOD
            pair.good = pair.in_use
    return excluded, replaced, held


@compiled
def restore(
    pairs: Pairs,
    state: ByteTable,
    rotation: IntTable,
    slot: IntTable,
    plane: IntTable,
    rows: Ints,
    index: Ints,
    from_: int,
) -> int:
    """Put values in a state back into use, or among the spares; return how many."""
    restored = 0
    for i in range(len(rows)):
        row, value, pair = rows[i], index[i], pairs[rows[i]]
        if state[row, value] != from_:
            continue
        restored += 1
        pair.bad -= from_ == EvState.ASSUMED_BAD
        if slot[row, value] < 0:
            # Another has its place: it gets that of one of its plane that is out of use.
            vacant = _vacant(state, slot, plane, row, value)
            if vacant < 0:
                state[row, value] = EvState.SPARE
                continue
            _swap(rotation, slot, row, vacant, value)
        state[row, value] = EvState.GOOD
        pair.in_use += 1
        pair.good += 1
    return restored


@compiled
def probes(
    pairs: Pairs, state: ByteTable, busy: Bools, now_s: float, interval_s: float, sweep: int
) -> tuple[Ints, Ints]:
    """Return (n,) queue pairs and (n,) bad values to probe now; of busy ones, or all if empty."""
    count = 0
    for row in range(len(pairs)):
        if pairs[row].probe_s <= now_s and (not len(busy) or busy[row]):
            count += -(-pairs[row].bad // sweep)
            if not pairs[row].bad:
                pairs[row].probe_s = np.inf
    rows, index = np.empty(count, np.int64), np.empty(count, np.int64)
    filled = 0
    for row in range(len(pairs) if count else 0):
        pair = pairs[row]
        if not (pair.probe_s <= now_s and (not len(busy) or busy[row])):
            continue
        pair.probe_s = now_s + interval_s
        for _ in range(-(-pair.bad // sweep)):
            value = pair.probe_next % state.shape[1]
            while state[row, value] != EvState.ASSUMED_BAD:
                value = (value + 1) % state.shape[1]
            pair.probe_next = value + 1
            rows[filled], index[filled] = row, value
            filled += 1
    return rows, index
