"""Reordering while a run is on: NIC workers count late packets in memory that others look at.

Off unless somebody watches. What a run's figures say is worked out after it, from all arrivals.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.ring import Received
from fabric_emu.wire.udp import UdpColumns

BATCH = 1024
INTERVAL_S = 0.1
"""Packets are counted once so many have come, or after so long: small batches cost the most."""

# A cache line for each worker: they do not get in each other's way.
_COUNTS: np.dtype[Any] = np.dtype([("received", "u8"), ("late", "u8"), ("padding", "u1", 48)])
_PSN_BITS = 24
_PSNS, _HALF = 1 << _PSN_BITS, 1 << (_PSN_BITS - 1)
_DSCPS = 64

Columns = Callable[[NDArray[np.uint8], NDArray[np.integer]], UdpColumns]


class OrderCounts:
    """Counters in shared memory, a row for each worker, which alone writes it.

    Args:
        workers: at most.
        fd: of the memory, from the other side; None makes it.

    Attributes:
        fd: of the memory.
        rows: (workers,) structured: ``received``, ``late``.
    """

    def __init__(self, workers: int, fd: int | None = None) -> None:
        size = workers * _COUNTS.itemsize
        if fd is None:
            fd = os.memfd_create("fabric-emu-order")
            os.ftruncate(fd, size)
        self.fd = fd
        self._map = mmap.mmap(fd, size)
        self.rows = np.frombuffer(self._map, _COUNTS, workers)

    def clear(self) -> None:
        """Set all counters to 0; no worker may be at work."""
        self.rows["received"] = self.rows["late"] = 0

    def totals(self) -> tuple[int, int]:
        """Return the packets received so far, and those of them that were late."""
        return int(self.rows["received"].sum()), int(self.rows["late"].sum())

    def close(self) -> None:
        """Give the memory back."""
        del self.rows
        self._map.close()
        os.close(self.fd)


@dataclass(frozen=True)
class OrderPlan:
    """What a worker is to count, and where.

    Attributes:
        fd: of the counters, which the worker inherits.
        row: the worker's own.
        queue_pairs: that carry data: the first ones of the run.
        trimmed: DSCPs of packets without their payload; they are not counted.
    """

    fd: int
    row: int
    queue_pairs: int
    trimmed: tuple[int, ...]


class PsnOrder:
    """The largest PSN so far of each queue pair.

    Args:
        queue_pairs: how many there are.
    """

    def __init__(self, queue_pairs: int) -> None:
        self._newest = np.zeros(queue_pairs, np.int64)
        self._begun = np.zeros(queue_pairs, bool)
        # numpy sorts integers of 16 bits by radix.
        self._key = np.uint16 if queue_pairs <= 1 << 16 else np.int64

    def late(self, pair: NDArray[np.int64], psn: NDArray[np.int64]) -> int:
        """Take in packets and return how many came behind one with a larger PSN of their pair.

        The same as RFC 4737's reordered packets, but that further copies of a packet count: each
        as received, and as late unless no larger number has come yet. PSNs wrap; a packet may
        be up to half their range away from the largest.

        Args:
            pair: (n,) queue pair of each packet, in the order of their arrival.
            psn: (n,) 24 bits.

        Source: RFC 4737 section 3.3.
        """
        order = pair.astype(self._key).argsort(kind="stable")
        pair, psn = pair[order], psn[order]
        first = np.flatnonzero(np.diff(pair, prepend=-1))
        rows = pair[first]
        fresh = ~self._begun[rows]
        self._newest[rows[fresh]] = psn[first[fresh]]
        self._begun[rows] = True
        # Queue pair after queue pair, each one's numbers above those of the last, so that one
        # running maximum serves all of them. The largest number so far is in the middle.
        count = np.diff(first, append=len(pair))
        middle = np.repeat((np.arange(len(rows)) << _PSN_BITS) + _HALF, count)
        ahead = (psn - self._newest[pair] + _HALF) % _PSNS - _HALF
        place = middle + ahead
        highest = np.maximum(np.maximum.accumulate(place), middle)
        last = first + count - 1
        self._newest[rows] = (self._newest[rows] + highest[last] - middle[last]) % _PSNS
        return int(np.count_nonzero(place < highest))


class OrderCounter:
    """Counts what one worker receives.

    Args:
        plan: what to count.
        columns: decodes headers, given them and the frames' lengths.
    """

    def __init__(self, plan: OrderPlan, columns: Columns) -> None:
        self._columns = columns
        self._queue_pairs = plan.queue_pairs
        self._row = OrderCounts(plan.row + 1, plan.fd).rows[plan.row :]
        self._cut = np.zeros(_DSCPS, bool)
        self._cut[list(plan.trimmed)] = True
        self._order = PsnOrder(plan.queue_pairs)
        self._waiting: list[Received] = []
        self._packets = 0
        self._due_s = 0.0

    def take(self, got: Received) -> None:
        """Take frames, in the order of their arrival at each host."""
        self._waiting.append(got)
        self._packets += len(got.lengths)

    def advance(self, elapsed_s: float) -> None:
        """Count what has been taken, if it is time."""
        if self._packets >= BATCH or (self._packets and elapsed_s >= self._due_s):
            self.count()
            self._due_s = elapsed_s + INTERVAL_S

    def count(self) -> None:
        """Count what has been taken."""
        if not self._packets:
            return
        columns = self._columns(
            np.concatenate([got.headers for got in self._waiting]),
            np.concatenate([got.lengths for got in self._waiting]),
        )
        self._waiting, self._packets = [], 0
        pair = columns.destination.astype(np.int64) - QPN_BASE
        data = columns.found & (pair >= 0) & (pair < self._queue_pairs) & ~columns.probe
        if self._cut.any():
            data &= ~self._cut[columns.dscp]
        pair, psn = pair[data], columns.psn[data].astype(np.int64)
        if len(pair):
            self._row["late"] += np.uint64(self._order.late(pair, psn))
            self._row["received"] += np.uint64(len(pair))
