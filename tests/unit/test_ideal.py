"""Times of the ideal fabric: examples by hand, and a simulated network that may not beat them.

By hand: links of 8 Mbit/s take 1 µs a byte, and frames have 1000 bytes of payload and 100 of
headers, so that a full frame takes 1100 µs on a link. Four links lead from leaf to leaf, two from
a host to one of its own leaf.
"""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.measure.completion import complete
from fabric_emu.measure.ideal import Framing, IdealFabric
from fabric_emu.model.collectives import (
    all_to_all,
    broadcast,
    incast,
    permutation,
    ring_all_gather,
    ring_all_reduce,
)
from fabric_emu.model.messages import Collective, Floats, MessageGraph
from fabric_emu.model.topology import Topology
from fabric_emu.model.training import training_loop
from fabric_emu.wire.layout import Opcode
from fabric_emu.wire.rocev2 import RETH, Envelope, write_frame

US = 1e-6
FRAMING = Framing(payload_bytes=1000, header_bytes=100)
TOPOLOGY = Topology(leaves=2, spines=2, hosts_per_leaf=2, link_rate="8mbit")
FABRIC = IdealFabric(TOPOLOGY, FRAMING)


def message_us(size: int, source: int, destination: int, fabric: IdealFabric = FABRIC) -> float:
    return float(fabric.message_s(permutation([source, destination], size))[0] / US)


def collective_us(graph: MessageGraph, fabric: IdealFabric = FABRIC) -> list[float]:
    return (fabric.collective_s(graph, graph.occurrences()) / US).tolist()


# Framing.


@pytest.mark.parametrize(("family", "address"), [(4, "10.0.0.{}"), (6, "fd00::{}")])
@pytest.mark.parametrize("payload", [1, 1000, 1001])
def test_framing_counts_what_frames_have(family, address, payload):
    envelope = Envelope(
        source_mac="02:00:00:00:00:01",
        destination_mac="02:00:00:00:00:02",
        source=address.format(1),
        destination=address.format(2),
        source_port=0xC000,
    )
    frame = write_frame(envelope, qpn=2, psn=0, payload=bytes(payload))
    first = len(bytes(frame))
    size = np.array([payload])
    assert Framing.rocev2(4096, family).wire_bytes(size) == first
    assert Framing.rocev2(4096, family).frame_bytes(size) == (first, first)
    assert RETH in frame
    assert frame["BTH"].opcode == Opcode.RC_RDMA_WRITE_ONLY


def test_framing_of_several_packets():
    size = np.array([8192, 8193, 4096, 0])
    # 34 of Ethernet and IPv4, 20 of UDP and BTH, 4 of ICRC; 16 of RETH; a byte is padded to 4.
    first = Framing.rocev2(4096, 4)
    assert first.packets(size).tolist() == [2, 3, 1, 0]
    assert first.wire_bytes(size).tolist() == [8192 + 132, 8196 + 190, 4096 + 74, 0]
    assert [part.tolist() for part in first.frame_bytes(size[:3])] == [
        [4154, 4154, 4170], [4154, 62, 4170],
    ]  # fmt: skip
    every = Framing.rocev2(4096, 4, reth_in_every_packet=True)
    assert every.wire_bytes(size).tolist() == [8192 + 148, 8196 + 222, 4096 + 74, 0]


# The ideal, by hand.


def test_one_packet_is_stored_and_forwarded():
    assert message_us(1000, 0, 1) == pytest.approx(2 * 1100)
    assert message_us(1000, 0, 2) == pytest.approx(4 * 1100)
    assert message_us(10, 0, 2) == pytest.approx(4 * 112)  # padded to 12


def test_packets_are_serialised_once_and_the_last_forwarded():
    assert message_us(10_000, 0, 2) == pytest.approx(10 * 1100 + 3 * 1100)
    # 2800 µs on the first link; the last full frame has left it after 2200 and takes longer to
    # arrive than the rest, 600, which another path may bring before it.
    assert message_us(2500, 0, 2) == pytest.approx(2200 + 3 * 1100)
    assert message_us(2900, 0, 1) == pytest.approx(3200 + 1000)


def test_base_delay_is_added_to_each_message():
    fabric = IdealFabric(TOPOLOGY, FRAMING, base_delay_s=50 * US)
    assert message_us(1000, 0, 1, fabric) == pytest.approx(2250)
    chain = broadcast([0, 1, 2], 1000)
    assert collective_us(chain, fabric) == pytest.approx([2250 + 4450])


def test_three_tiers_have_six_links():
    topology = Topology(
        tiers=3, leaves=2, spines=2, pods=2, super_spines=2, hosts_per_leaf=2, link_rate="8mbit"
    )
    fabric = IdealFabric(topology, FRAMING)
    assert message_us(1000, 0, 1, fabric) == pytest.approx(2200)
    assert message_us(1000, 0, 2, fabric) == pytest.approx(4400)
    assert message_us(1000, 0, 4, fabric) == pytest.approx(6600)
    # Pods are joined by 2 spines times 1 link: all 4 hosts of one send 10 frames each to the
    # other's over them. 2 frames' time to get there, 22 ms, and 3 frames' time to arrive.
    across = permutation(range(8), 10_000, 4)
    assert collective_us(across, fabric) == pytest.approx([2 * 1100 + 22_000 + 3 * 1100])


def test_planes_share_a_message_but_not_a_frame():
    fabric = IdealFabric(TOPOLOGY.model_copy(update={"planes": 2}), FRAMING)
    assert message_us(1000, 0, 2, fabric) == pytest.approx(4400)
    assert message_us(20_000, 0, 2, fabric) == pytest.approx(10 * 1100 + 3300)


def test_host_links_of_another_rate():
    fabric = IdealFabric(TOPOLOGY.model_copy(update={"host_rate": 16_000_000}), FRAMING)
    assert message_us(1000, 0, 2, fabric) == pytest.approx(2 * 550 + 2 * 1100)
    # Both uplinks of the leaf together are as fast as the host's link.
    assert message_us(10_000, 0, 2, fabric) == pytest.approx(10 * 550 + 550 + 2 * 1100)


def test_a_ring_takes_the_sum_of_its_steps():
    # Ring 0, 1 | 2, 3: every chunk takes 6 hops, in turns within a leaf and between leaves.
    ring = ring_all_reduce(range(4), 4000)
    assert collective_us(ring) == pytest.approx([3 * 2200 + 3 * 4400])
    # Dealt out to the leaves every hop is between leaves.
    ring = ring_all_reduce([0, 2, 1, 3], 4000)
    assert collective_us(ring) == pytest.approx([6 * 4400])


def test_a_ring_of_many_messages_is_limited_by_the_host_links():
    # 6 steps of 10 frames, each a message, and 1 frame's time on 3 further links.
    ring = ring_all_reduce([0, 2, 1, 3], 40_000, 1000)
    assert collective_us(ring) == pytest.approx([60 * 1100 + 3300])


def test_a_pipelined_broadcast_is_sent_once_and_handed_on():
    # The root is done with the third piece after 3300 µs; it has 3 hops of 4400 in all.
    chain = broadcast([0, 2, 1, 3], 3000, 1000)
    assert collective_us(chain) == pytest.approx([2 * 1100 + 3 * 4400])


def test_an_incast_is_limited_by_the_receiver():
    # The first frame, from the same leaf, reaches the receiver's link after 1100 µs.
    assert collective_us(incast(range(4), 2000)) == pytest.approx([1100 + 6 * 1100])


def test_an_oversubscribed_leaf_is_limited_by_its_uplinks():
    topology = Topology(leaves=2, spines=1, hosts_per_leaf=2, link_rate="8mbit")
    graph = permutation(range(4), 10_000, 2)
    found = collective_us(graph, IdealFabric(topology, FRAMING))
    assert found == pytest.approx([1100 + 22_000 + 2200])
    assert collective_us(graph) == pytest.approx([11_000 + 3300])


def test_iterations_have_the_same_ideal_without_their_computation():
    ring = ring_all_reduce(range(4), 4000)
    loop = training_loop(ring, 3, compute_s=1.0)
    assert collective_us(loop) == pytest.approx(3 * collective_us(ring))
    assert (FABRIC.message_s(loop)[loop.local] == 0).all()


def test_computation_within_a_collective_counts():
    # 0 -> 1, 10 ms of computation at 1, 1 -> 0.
    column = np.zeros(3, np.int64)
    graph = MessageGraph(
        source=np.array([0, 1, 1]),
        destination=np.array([1, 1, 0]),
        size_bytes=np.array([1000, 0, 1000]),
        after_offsets=np.array([0, 0, 1, 2]),
        after=np.array([0, 1]),
        delay_s=np.array([5.0, 0.01, 0.0]),
        step=column,
        iteration=column,
        collective=column,
        collectives=(Collective("there-and-back", 2, 1000),),
    )
    assert collective_us(graph) == pytest.approx([2200 + 10_000 + 2200])


# The ideal against a network that is simulated packet by packet.


def simulate(
    graph: MessageGraph, topology: Topology, framing: Framing, seed: int
) -> tuple[Floats, Floats]:
    """Return start and finish of messages; two tiers, FIFO links, each packet over any spine."""
    draw = random.Random(seed)
    start, finish = np.full((2, len(graph)), np.nan)
    waiting = graph.waits()
    offsets, dependents = graph.dependents()
    free: dict[tuple[object, ...], float] = {}
    left = framing.packets(graph.size_bytes)
    events: list[tuple[float, int, int, int, tuple[tuple[object, ...], ...]]] = []
    number = 0

    def begin(row: int, now: float) -> None:
        nonlocal number
        start[row] = now
        if not left[row]:
            done(row, now)
        _, last = framing.frame_bytes(graph.size_bytes[[row]])
        sizes = [framing.payload_bytes + framing.header_bytes] * (left[row] - 1) + [int(last[0])]
        ends = int(graph.source[row]), int(graph.destination[row])
        leaves = [end // topology.hosts_per_leaf for end in ends]
        for size in sizes[: left[row]]:
            links: list[tuple[object, ...]] = [("host", ends[0])]
            if leaves[0] != leaves[1]:
                spine = draw.randrange(topology.spines)
                links += [("up", leaves[0], spine), ("down", spine, leaves[1])]
            links += [("leaf", ends[1])]
            heapq.heappush(events, (now, number, row, size, tuple(links)))
            number += 1

    def done(row: int, now: float) -> None:
        finish[row] = now
        for dependent in dependents[offsets[row] : offsets[row + 1]].tolist():
            waiting[dependent] -= 1
            if not waiting[dependent]:
                begin(dependent, now + graph.delay_s[dependent])

    for row in np.flatnonzero(waiting == 0).tolist():
        begin(row, graph.delay_s[row])
    while events:
        now, order, row, size, links = heapq.heappop(events)
        sent = max(now, free.get(links[0], 0.0)) + size * 8 / topology.link_rate
        free[links[0]] = sent
        if links[1:]:
            heapq.heappush(events, (sent, order, row, size, links[1:]))
            continue
        left[row] -= 1
        if not left[row]:
            done(row, sent)
    return start, finish


GRAPHS = st.one_of(
    st.builds(ring_all_reduce, st.just(range(6)), st.integers(1, 20_000), st.integers(700, 4000)),
    st.builds(ring_all_gather, st.just([0, 4, 2, 5]), st.integers(1, 20_000)),
    st.builds(
        all_to_all,
        st.permutations(range(6)),
        st.integers(1, 20_000),
        st.integers(700, 4000),
        st.one_of(st.none(), st.integers(1, 3)),
    ),
    st.builds(broadcast, st.permutations(range(6)), st.integers(1, 9000), st.integers(700, 4000)),
    st.builds(permutation, st.just(range(6)), st.integers(1, 9000), st.integers(1, 5)),
    st.builds(incast, st.permutations(range(6)), st.integers(1, 9000)),
)


@given(GRAPHS, st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_nothing_beats_the_ideal(graph, iterations, spines, seed):
    # With 1 or 2 spines the leaves are oversubscribed.
    topology = Topology(leaves=2, spines=spines, hosts_per_leaf=3, link_rate="8mbit")
    framing = Framing(payload_bytes=1000, header_bytes=60)
    if iterations > 1:
        graph = training_loop(graph, iterations, 0.001)
    start, finish = simulate(graph, topology, framing, seed)
    found = complete(graph, start, finish, IdealFabric(topology, framing))
    wire = ~graph.local
    assert not found.unfinished
    # Sums of at most some thousand rounded times: 1e-12 of the value each.
    assert (found.message_s[wire] >= found.message_ideal_s[wire] * (1 - 1e-9)).all()
    assert (found.collective_s >= found.collective_ideal_s * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    "graph",
    [
        ring_all_reduce(range(4), 4000),
        ring_all_reduce([0, 1], 40_000, 1000),
        broadcast([0, 1, 2, 3], 3000, 1000),
        incast(range(4), 8000),
        permutation(range(4), 8000, 1),
        permutation([0, 2], 8000, 1),
    ],
)
def test_what_meets_nothing_on_its_way_reaches_the_ideal(graph):
    one = Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=4, link_rate="8mbit")
    start, finish = simulate(graph, one, FRAMING, seed=1)
    found = complete(graph, start, finish, IdealFabric(one, FRAMING))
    assert found.summary()["completion"]["over_ideal"] == pytest.approx(1.0)
