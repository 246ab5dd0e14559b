"""Late packets counted batch by batch, against RFC 4737's measure of the whole."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from fabric_emu.measure.reordering import summarise, unwrap_sequence
from fabric_emu.measure.rfc4737 import first_copies, reordered_mask
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.order import BATCH, INTERVAL_S, OrderCounter, OrderCounts, OrderPlan, PsnOrder
from fabric_emu.nic.ring import HEADER_BYTES, Received
from fabric_emu.wire.decode import decode
from fabric_emu.wire.rocev2 import Envelope, write_frame

PSNS = 1 << 24
Ints = NDArray[np.int64]


def shuffled(pairs: int, packets: int, seed: int, first: int) -> tuple[Ints, Ints]:
    """Return the arrivals of as many packets of each pair, up to about 40 places late."""
    draw = np.random.default_rng(seed)
    pair = np.tile(np.arange(pairs), packets)
    psn = (first + np.repeat(np.arange(packets), pairs)) % PSNS
    order = np.argsort(np.arange(len(pair)) + draw.exponential(20.0, len(pair)), kind="stable")
    return pair[order], psn[order]


def late_in_batches(pair: Ints, psn: Ints, batch: int) -> int:
    counted = PsnOrder(int(pair.max()) + 1)
    return sum(
        counted.late(pair[at : at + batch], psn[at : at + batch])
        for at in range(0, len(pair), batch)
    )


@pytest.mark.parametrize("batch", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("first", [0, PSNS - 100], ids=["from 0", "wrapping"])
def test_late_packets_are_those_of_rfc4737_whatever_the_batches(batch: int, first: int) -> None:
    pair, psn = shuffled(pairs=5, packets=400, seed=1, first=first)
    whole = summarise(pair, unwrap_sequence(psn, flow=pair), np.arange(len(pair)), 1)
    assert whole.reordered > 0
    assert late_in_batches(pair, psn, batch) == whole.reordered


def test_further_copies_count_as_packets_unlike_in_rfc4737() -> None:
    pair, psn = shuffled(pairs=1, packets=300, seed=2, first=0)
    again = np.random.default_rng(3).integers(20, 300, 40)
    pair, psn = np.insert(pair, again, pair[again - 20]), np.insert(psn, again, psn[again - 20])
    whole = summarise(pair, psn, np.arange(len(pair)), 1)
    assert whole.duplicates == 40
    copies = np.ones(len(psn), bool)
    copies[first_copies(psn)] = False
    late_copies = int(np.count_nonzero(reordered_mask(psn) & copies))
    assert 0 < late_copies <= 40
    assert late_in_batches(pair, psn, 64) == whole.reordered + late_copies


def test_a_copy_of_the_newest_packet_is_not_late() -> None:
    assert late_in_batches(np.zeros(3, np.int64), np.array([4, 4, 3]), 1) == 1


def arrivals(pairs: list[int], psns: list[int], dscp: int = 0, version: int = 4) -> Received:
    source, destination = ("10.0.0.1", "10.0.0.2") if version == 4 else ("fd00::1", "fd00::2")
    envelope = Envelope(
        source_mac="02:00:00:00:00:01",
        destination_mac="02:00:00:00:00:02",
        source=source,
        destination=destination,
        source_port=0xC000,
        dscp=dscp,
        ecn=0,
    )
    frames = [
        bytes(write_frame(envelope, qpn=QPN_BASE + pair, psn=psn, payload=bytes(64)))
        for pair, psn in zip(pairs, psns, strict=True)
    ]
    rows = np.array([np.frombuffer(frame[:HEADER_BYTES], np.uint8) for frame in frames])
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    return Received(rows, lengths, np.arange(len(frames)))


def test_counter_counts_whole_data_packets_of_the_run_in_its_row() -> None:
    counts = OrderCounts(2)
    plan = OrderPlan(os.dup(counts.fd), row=1, queue_pairs=2, trimmed=(5,))
    counter = OrderCounter(plan, decode)
    counter.take(arrivals([0, 0, 0, 1], [0, 2, 1, 7], version=6))
    counter.take(arrivals([0, 0], [9, 3], dscp=5))  # trimmed: what comes behind is not late
    counter.take(arrivals([0, 1, 2, 2], [4, 6, 1, 0]))  # pair 2 carries answers
    assert counts.totals() == (0, 0)
    counter.count()
    assert counts.totals() == (6, 2)
    assert counts.rows["late"].tolist() == [0, 2]
    counter.count()
    assert counts.totals() == (6, 2)
    counts.clear()
    assert counts.totals() == (0, 0)


def test_counter_waits_for_a_batch_or_a_while() -> None:
    counts = OrderCounts(1)
    counter = OrderCounter(OrderPlan(counts.fd, 0, 1, ()), decode)
    counter.advance(0.0)
    one = arrivals([0], [0])
    counter.take(one)
    counter.advance(0.0)
    assert counts.totals() == (1, 0)
    counter.take(one)
    counter.advance(INTERVAL_S / 2)
    assert counts.totals() == (1, 0)
    counter.advance(INTERVAL_S)
    assert counts.totals() == (2, 0)
    for _ in range(BATCH):
        counter.take(one)
    counter.advance(INTERVAL_S)
    assert counts.totals() == (2 + BATCH, 0)
