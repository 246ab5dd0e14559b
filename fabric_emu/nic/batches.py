"""Events of one batch, sorted out by the queue pair they belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Distinct(NamedTuple):
    """The queue pairs of a batch.

    Attributes:
        rows: (u,) the queue pairs that occur, ascending.
        at: (n,) position in ``rows`` of each event's queue pair.
        events: (u,) how many events each has.
    """

    rows: Ints
    at: Ints
    events: Ints


def distinct(rows: Ints, queue_pairs: int) -> Distinct:
    """Return the queue pairs of a batch; as ``np.unique``, without sorting."""
    events = np.bincount(rows, minlength=queue_pairs)
    present = np.flatnonzero(events)
    place = np.empty(queue_pairs, np.int64)
    place[present] = np.arange(len(present))
    return Distinct(present, place[rows], events[present])


def grouping(batch: Distinct) -> Ints:
    """Return (n,) the events queue pair by queue pair, each one's in order."""
    # numpy sorts integers of 16 bits by radix, several times faster than wider ones.
    key = batch.at.astype(np.uint16) if len(batch.rows) <= 1 << 16 else batch.at
    return key.argsort(kind="stable")


def ordinal(batch: Distinct) -> Ints:
    """Return (n,) how many events of its queue pair come before each event."""
    n = len(batch.at)
    before = np.zeros(n, np.int64)
    if n > len(batch.rows):
        before[grouping(batch)] = within(batch.events)
    return before


def within(count: Ints) -> Ints:
    """Return 0, 1, ... count - 1 for every count, one after the other."""
    ends = np.cumsum(count)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - count, count)


def first_of_each(keys: Ints, scratch: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return (n,) whether an event is the first with its key.

    Args:
        keys: (n,) indexes into ``scratch``.
        scratch: overwritten; need not be cleared.
    """
    number = np.arange(len(keys), dtype=np.int32)
    # Assigned last to first, so that the first of several stays.
    scratch[keys[::-1]] = number[::-1]
    first: NDArray[np.bool_] = scratch[keys] == number
    return first
