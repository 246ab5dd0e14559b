"""Reordering of a whole run: many flows in one set of columns, condensed to a few figures.

One flow in all detail is ``rfc4737.measure_reordering`` and the densities in ``rfc5236``; both
are offered here too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric_emu.measure.rfc4737 import (
    FreeRuns,
    Int64Column,
    IntColumn,
    Reordering,
    first_copies,
    measure_reordering,
    n_reordering,
    reordered_mask,
    reordering_extent,
)
from fabric_emu.measure.rfc5236 import (
    BufferOccupancyDensity,
    ReorderDensity,
    buffer_occupancy_density,
    delivery_positions,
    reorder_density,
)
from fabric_emu.measure.statistics import percentiles

__all__ = [
    "BufferOccupancyDensity",
    "FreeRuns",
    "ReorderBuffer",
    "ReorderDensity",
    "Reordering",
    "ReorderingSummary",
    "buffer_occupancy_density",
    "count_inversions",
    "measure_reordering",
    "reorder_buffer",
    "reorder_density",
    "summarise",
    "unwrap_sequence",
]


@dataclass(frozen=True)
class ReorderBuffer:
    """What a NIC holds back to deliver in order, seen after each arrival.

    Attributes:
        packets_max: most packets held at once.
        packets_p99: 99th percentile over arrivals (duplicates aside), not over time.
        bytes_max: most payload held at once.
        bytes_p99: likewise.
    """

    packets_max: int
    packets_p99: float
    bytes_max: int
    bytes_p99: float


@dataclass(frozen=True)
class ReorderingSummary:
    """Reordering over all flows of a run; every figure is 0 where there is nothing to count.

    Attributes:
        received: packets received, each counted once.
        duplicates: further copies, left out of everything else.
        reordered: packets that came after one of their flow with a larger number.
        max_extent: largest reordering extent, in arrivals of the packet's own flow.
        p99_extent: 99th percentile over the reordered packets.
        max_n_reordering: largest n for which a packet is n-reordered.
        mean_late_seconds: mean late time over the reordered packets.
        max_late_seconds: largest late time.
        buffer_packets_max: most packets one flow's reorder buffer holds.
        buffer_bytes_max: most payload one flow's reorder buffer holds.
    """

    received: int
    duplicates: int
    reordered: int
    max_extent: int
    p99_extent: float
    max_n_reordering: int
    mean_late_seconds: float
    max_late_seconds: float
    buffer_packets_max: int
    buffer_bytes_max: int

    @property
    def ratio(self) -> float:
        """Reordered packets over received ones; 0 when nothing was received."""
        return self.reordered / self.received if self.received else 0.0


def unwrap_sequence(psn: IntColumn, bits: int = 24, flow: IntColumn | None = None) -> Int64Column:
    """Return numbers that do not wrap, counted on from each flow's first one.

    A step of more than half the range from the arrival before is a rollover, forwards or back.
    A packet of before the first rollover can therefore come out negative.

    Args:
        psn: (n,) numbers of ``bits`` bits in arrival order.
        bits: width of the field; a RoCEv2 PSN has 24.
        flow: (n,) flow of each packet when the column mixes several.

    Source: RFC 4737, on rollover.
    """
    numbers = np.asarray(psn, np.int64)
    if not numbers.size:
        return numbers.copy()
    order = np.arange(numbers.size)
    starts = np.zeros(1, np.int64)
    if flow is not None:
        order, starts = _group(flow)
        numbers = numbers[order]
    size = 1 << bits
    step = np.diff(numbers, prepend=numbers[0])
    step -= size * (step > size // 2)
    step += size * (step < -(size // 2))
    walked = np.cumsum(step)
    lengths = np.diff(starts, append=numbers.size)
    unwrapped = np.empty_like(walked)
    unwrapped[order] = walked + np.repeat(numbers[starts] - walked[starts], lengths)
    return unwrapped


def _group(key: IntColumn) -> tuple[Int64Column, Int64Column]:
    """Return the order that puts equal keys together, arrivals kept in order, and each start."""
    values, index = np.unique(np.asarray(key), return_inverse=True)
    if values.size < 2**15:
        index = index.astype(np.int16)  # numpy sorts 16-bit integers by radix
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    return order, starts


def stack_flows(flow: IntColumn, sequence: IntColumn) -> tuple[Int64Column, Int64Column]:
    """Return arrivals flow after flow and their numbers, each flow's above those of the last.

    No packet of one flow then has a larger number before it in another, so what is defined for
    one flow can be computed for all in one pass.
    """
    order, starts = _group(flow)
    numbers = np.asarray(sequence, np.int64)[order]
    if not numbers.size:
        return order, numbers
    smallest = np.minimum.reduceat(numbers, starts)
    largest = np.maximum.reduceat(numbers, starts)
    spans = [int(high) - int(low) + 1 for low, high in zip(smallest, largest, strict=True)]
    if sum(spans) >= 2**62:
        raise ValueError("sequence numbers of all flows span more than 2**62 together")
    base = np.cumsum([0, *spans[:-1]])
    lengths = np.diff(starts, append=numbers.size)
    return order, numbers + np.repeat(base - smallest, lengths)


def count_inversions(group: IntColumn, sequence: IntColumn) -> int:
    """Return how many packets arrive behind one with a larger number of the same group.

    With one group per flow and path it shows whether a path ever reorders. A copy of the newest
    packet is no inversion; a retransmission of an older one is, so leave those out.

    Args:
        group: (n,) any integer per group, in arrival order.
        sequence: (n,) numbers that do not wrap.
    """
    _, numbers = stack_flows(group, sequence)
    return int(np.count_nonzero(reordered_mask(numbers)))


def reorder_buffer(
    sequence: IntColumn, payload_bytes: IntColumn | int, flow: IntColumn | None = None
) -> ReorderBuffer:
    """Return the reorder buffer that in-order delivery asks of a NIC.

    A packet is held from its arrival until every smaller number of its flow that ever arrives
    has arrived; a packet delivered on arrival takes no room. Numbers that never arrive are
    skipped, as if the NIC knew of the loss at once: the result is what reordering alone costs,
    and a lower bound for a NIC that must first find out.

    Args:
        sequence: (n,) numbers that do not wrap, in arrival order.
        payload_bytes: (n,) payload of each packet, or one size for all.
        flow: (n,) flow of each packet when several share the buffer.
    """
    numbers = np.asarray(sequence, np.int64)
    order = np.arange(numbers.size)
    if flow is not None:
        order, numbers = stack_flows(flow, numbers)
    kept = first_copies(numbers)
    order = order[kept]
    payload = np.broadcast_to(np.asarray(payload_bytes, np.int64), np.shape(sequence))[order]
    packets, held_bytes = _held(order, order[delivery_positions(numbers[kept])], payload)
    # Where nothing but a copy arrived, nothing changed: that is no sample.
    at = np.sort(order)
    in_packets, in_bytes = percentiles(packets[at]), percentiles(held_bytes[at])
    return ReorderBuffer(
        packets_max=int(in_packets.max),
        packets_p99=in_packets.p99,
        bytes_max=int(in_bytes.max),
        bytes_p99=in_bytes.p99,
    )


def _held(
    arrived_at: Int64Column, delivered_at: Int64Column, payload: Int64Column
) -> tuple[Int64Column, Int64Column]:
    """Return the packets and bytes held after each arrival."""
    held = np.flatnonzero(delivered_at > arrived_at)
    size = int(delivered_at.max(initial=-1)) + 1

    def running(weight: npt.NDArray[np.int64] | None) -> Int64Column:
        # bincount sums in float64: exact below 2**53 bytes per arrival.
        enters = np.bincount(arrived_at[held], weight, size)
        leaves = np.bincount(delivered_at[held], weight, size)
        return np.cumsum((enters - leaves).astype(np.int64))

    return running(None), running(payload[held])


def summarise(
    flow: IntColumn,
    sequence: IntColumn,
    arrival_ns: IntColumn,
    payload_bytes: IntColumn | int,
) -> ReorderingSummary:
    """Return the reordering of a whole run, each flow measured on its own.

    Args:
        flow: (n,) any integer per flow; all columns are in arrival order.
        sequence: (n,) numbers that do not wrap within a flow.
        arrival_ns: (n,) arrival times.
        payload_bytes: (n,) payload of each packet, or one size for all.

    Raises:
        ValueError: the ranges of the flows' numbers add up to 2**62 or more.

    Source: RFC 4737 sections 3 to 5.
    """
    order, numbers = stack_flows(flow, sequence)
    kept = first_copies(numbers)
    numbers, order = numbers[kept], order[kept]
    arrival = np.asarray(arrival_ns, np.int64)[order]
    payload = np.broadcast_to(np.asarray(payload_bytes, np.int64), np.shape(sequence))[order]
    late = np.flatnonzero(reordered_mask(numbers))
    extent = reordering_extent(numbers, late)
    extents = percentiles(extent)
    late_ns = arrival[late] - arrival[late - extent]
    packets, held_bytes = _held(np.arange(kept.size), delivery_positions(numbers), payload)
    return ReorderingSummary(
        received=kept.size,
        duplicates=int(np.size(sequence)) - kept.size,
        reordered=late.size,
        max_extent=int(extents.max),
        p99_extent=extents.p99,
        max_n_reordering=int(n_reordering(numbers, late).max(initial=0)),
        mean_late_seconds=float(late_ns.mean()) * 1e-9 if late.size else 0.0,
        max_late_seconds=int(late_ns.max(initial=0)) * 1e-9,
        buffer_packets_max=int(packets.max(initial=0)),
        buffer_bytes_max=int(held_bytes.max(initial=0)),
    )
