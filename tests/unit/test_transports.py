"""Transports through a hostile network in simulated time: everything arrives, exactly once."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fabric_emu.model.collectives import all_to_all, incast, permutation, ring_all_reduce
from fabric_emu.nic.entropy.ev_set import EvState
from fabric_emu.nic.transport.base import Transport
from fabric_emu.nic.transport.making_selective import ANSWER_BYTES
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.rc import Rc, RcSettings
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.space import PacketSpace

ENTROPY: Any = {"rc": "qp", "mrc": "even", "uet": "reps"}
PAYLOAD = 1000
RTT_S = 0.010
TICK_S = 0.001
ROOM = 4
WINDOW = 16


@dataclasses.dataclass
class Weather:
    """What the network does to each packet: probabilities, and jitter in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    trimming: float = 0.0
    marking: float = 0.0
    jitter_s: float = 0.0


class Network:
    """Carries packets from everyone to everyone in half a round trip, come what may."""

    def __init__(self, weather, seed):
        self.weather, self._draw = weather, np.random.default_rng(seed)
        self._packets, self._at = Packets.none(), np.empty(0)
        self.calm = False

    def _hit(self, packets, probability):
        chance = 0 if self.calm else probability
        return self._draw.random(len(packets)) < chance

    def send(self, packets, now_s):
        weather = self.weather
        packets = packets.take(~self._hit(packets, weather.loss))
        data = packets.kind == Kind.DATA
        packets.rows["trimmed"] = data & self._hit(packets, weather.trimming)
        packets.rows["marked"] = data & self._hit(packets, weather.marking)
        packets = Packets.join([packets, packets.take(self._hit(packets, weather.duplication))])
        jitter = 0 if self.calm else weather.jitter_s
        at = now_s + RTT_S / 2 + self._draw.random(len(packets)) * jitter
        self._packets = Packets.join([self._packets, packets])
        self._at = np.concatenate([self._at, at])

    def take(self, now_s):
        due = self._at <= now_s
        rows = np.flatnonzero(due)[np.argsort(self._at[due], kind="stable")]
        arrived = self._packets.take(rows)
        self._packets, self._at = self._packets.take(~due), self._at[~due]
        return arrived


def space_of(graph, queue_pairs=1, split=False):
    return PacketSpace.of(
        graph.source, graph.destination, graph.size_bytes, PAYLOAD, queue_pairs, split
    )


def recipe(kind, space, **changes):
    ports = np.full((space.queue_pairs, 1), 0xC123, np.uint16)
    if kind != "rc":
        ports = np.tile(np.arange(0xC000, 0xC040, dtype=np.uint16), (space.queue_pairs, 1))
    made = TransportRecipe(
        kind=kind,
        entropy=ENTROPY[kind],
        credits=True,
        source_port=ports,
        frame_bytes=PAYLOAD + 100,
        base_rtt_s=RTT_S,
        line_rate_bps=ROOM * PAYLOAD * 8 / TICK_S,
        scale=1000.0,
        window_packets=WINDOW,
        timeout_s=5 * RTT_S,
        overtaken_s=RTT_S,
        retries=1000,
        ack_every=1,
        dcqcn=False,
        trimming=True,
        seed=1,
    )
    return dataclasses.replace(made, **changes)


def run(transport: Transport, hosts: int, network: Network, until_s: float) -> float:
    """Run until all is done; the last half of the time without disturbances. Return the time."""
    now = 0.0
    while now < until_s:
        network.calm = now > until_s / 2
        transport.receive(network.take(now), now)
        network.send(transport.transmit(now, np.full(hosts, ROOM)), now)
        finished = transport.ledger.finished_s
        if transport.finished() and not np.isnan(finished).any():
            return now
        now += TICK_S
    raise AssertionError(f"not done after {until_s} s: {transport.counters}")


def assert_complete(transport, graph, space):
    ledger = transport.ledger
    assert ledger.received.all()
    assert not transport.failed.any()
    # Bytes of the packets of each message are its bytes.
    message = space.part_message[space.part_of]
    carried = np.bincount(message, weights=space.size_bytes, minlength=len(graph))
    assert carried.tolist() == graph.size_bytes.tolist()
    # A message starts when all it waits for have arrived.
    for row in range(len(graph)):
        waits = graph.after[graph.after_offsets[row] : graph.after_offsets[row + 1]]
        assert (ledger.finished_s[waits] <= ledger.started_s[row]).all()
    assert (ledger.finished_s >= ledger.started_s).all()
    # And it is complete with the last of its packets.
    last = np.full(len(graph), -np.inf)
    np.maximum.at(last, message, ledger.arrived_s)
    assert (ledger.finished_s == last)[np.isfinite(last)].all()


GRAPHS = {
    "ring": lambda: ring_all_reduce(range(4), 30_001),
    "all-to-all": lambda: all_to_all(range(4), 20_000),
    "permutation": lambda: permutation(range(4), 25_000, 1, 5_000),
    "incast": lambda: incast(range(4), 20_000, 3_000),
}

weathers = st.builds(
    Weather,
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    duplication=st.sampled_from([0.0, 0.1, 0.5]),
    trimming=st.sampled_from([0.0, 0.05, 0.3]),
    marking=st.sampled_from([0.0, 0.2, 1.0]),
    jitter_s=st.sampled_from([0.0, RTT_S / 4, 3 * RTT_S]),
)


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(
    kind=st.sampled_from(["rc", "mrc", "uet"]),
    graph=st.sampled_from(sorted(GRAPHS)),
    weather=weathers,
    queue_pairs=st.sampled_from([1, 3]),
    split=st.booleans(),
    ack_every=st.sampled_from([1, 4]),
    dcqcn=st.booleans(),
    credits_=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_everything_arrives_whatever_the_network_does(
    kind, graph, weather, queue_pairs, split, ack_every, dcqcn, credits_, seed
):
    made = GRAPHS[graph]()
    space = space_of(made, queue_pairs, split)
    everybody = np.ones(4, bool)
    chosen = recipe(kind, space, ack_every=ack_every, dcqcn=dcqcn, credits=credits_)
    transport = chosen.make(made, space, everybody)
    # The worst case by far: go-back-N sends a window for every packet that gets through, in
    # round trips of 4 x 10 ms with jitter; 120 packets a pair of hosts take a few seconds. After
    # half of the time the network is calm, so only a transport that is stuck can fail.
    run(transport, 4, Network(weather, seed), until_s=60.0)
    assert_complete(transport, made, space)


@pytest.mark.parametrize("kind", ["rc", "mrc", "uet"])
def test_a_calm_network_needs_every_packet_once_and_little_more_than_the_ideal(kind):
    graph = permutation(range(4), 400_000, 1)
    space = space_of(graph)
    transport = recipe(kind, space, window_packets=64).make(graph, space, np.ones(4, bool))
    took = run(transport, 4, Network(Weather(), 1), until_s=10.0)
    assert transport.counters["retransmitted"] == 0
    assert transport.ledger.duplicates == 0
    # 400 packets, 4 in each tick of 1 ms, and a round trip for the last acknowledgement.
    expected_s = 0.100 + RTT_S
    if kind == "uet":
        # Behind a first window packets come at the pace of credit: 99 % of the line, with headers
        # and room for answers. A round trip until the first credit, and one behind the last.
        bytes_per_s, frame = ROOM * PAYLOAD / TICK_S, PAYLOAD + 100
        credited = 400 - round(bytes_per_s * RTT_S / frame)
        expected_s = credited * (frame + ANSWER_BYTES) / (0.99 * bytes_per_s) + 2 * RTT_S
    assert took == pytest.approx(expected_s, rel=0.1)


def test_go_back_n_sends_again_all_after_a_gap_and_one_nak_for_it():
    graph = permutation(range(2), 40_000, 1)
    space = space_of(graph)
    transport = recipe("rc", space).make(graph, space, np.ones(2, bool))
    network = Network(Weather(), 1)
    transport.transmit(0.0, np.array([4, 0]))
    # The network swallows packet 1 of the first four of queue pair 0.
    first = Packets.of(Kind.DATA, np.zeros(3, np.int64), psn=np.array([0, 2, 3]))
    transport.receive(first, 0.005)
    answers = transport.transmit(0.005, np.zeros(2, np.int64))
    assert answers.kind.tolist() == [Kind.ACK, Kind.NAK]
    assert answers.psn.tolist() == [0, 1]
    # More of the same gap draws no second NAK.
    transport.receive(Packets.of(Kind.DATA, np.zeros(2, np.int64), psn=np.array([4, 5])), 0.006)
    assert len(transport.transmit(0.006, np.zeros(2, np.int64))) == 0
    transport.receive(answers, 0.010)
    again = transport.transmit(0.010, np.array([4, 0]))
    assert again.psn[again.kind == Kind.DATA].tolist() == [1, 2, 3, 4]
    assert transport.counters["retransmitted"] == 3
    assert network.take(1.0).kind.tolist() == []


def test_a_sprayed_reliable_connection_collapses_and_mrc_does_not():
    """Claim 16: spraying needs a NIC that takes packets in any order."""
    graph = permutation(range(2), 300_000, 1)
    space = space_of(graph)
    sprayed = Weather(jitter_s=RTT_S / 2)
    took = {}
    for kind in ("rc", "mrc"):
        transport = recipe(kind, space).make(graph, space, np.ones(2, bool))
        took[kind] = run(transport, 2, Network(sprayed, 1), until_s=60.0)
        if kind == "rc":
            assert transport.counters["nak"] > 50
            assert transport.counters["retransmitted"] > space.packets
        else:
            assert transport.counters["retransmitted"] == 0
    assert took["rc"] > 3 * took["mrc"]


def test_a_queue_pair_without_answers_fails_after_its_retries():
    graph = permutation(range(2), 5_000, 1)
    space = space_of(graph)
    for kind in ("rc", "mrc", "uet"):
        transport = recipe(kind, space, retries=3).make(graph, space, np.ones(2, bool))
        now = 0.0
        while not transport.finished() and now < 60.0:
            transport.transmit(now, np.full(2, ROOM))
            now += TICK_S
        assert transport.failed.all(), kind
        assert np.isnan(transport.ledger.finished_s).all()


def test_packets_of_one_outage_count_as_one_timeout_however_often_their_sender_looks():
    graph = permutation(range(2), 400_000, 1)
    space = space_of(graph)
    transport = recipe("mrc", space, retries=1).make(graph, space, np.ones(2, bool))
    timeout_s, now, sent = 5 * RTT_S, 0.0, 0
    while now < timeout_s:  # one packet a tick of either host, and nothing comes back
        sent += len(transport.transmit(now, np.ones(2, np.int64)))
        now += TICK_S
    assert 2 * (transport._settings.retries + 2) < sent
    while now < 2 * timeout_s:
        transport.transmit(now, np.zeros(2, np.int64))
        now += TICK_S
    assert transport.counters["timeouts"] == sent
    assert not transport.failed.any()
    noticed_s = np.concatenate(transport.noticed_s)
    assert noticed_s == pytest.approx(np.full(sent, timeout_s), abs=1.01 * TICK_S)


def test_acknowledgements_can_be_coalesced():
    graph = permutation(range(2), 64_000, 1)
    space = space_of(graph)
    for kind, counter in (("rc", None), ("mrc", "sack")):
        transport = recipe(kind, space, ack_every=8).make(graph, space, np.ones(2, bool))
        run(transport, 2, Network(Weather(), 1), until_s=10.0)
        if counter:
            assert transport.counters[counter] == 2 * 64 / 8


def test_a_responder_holds_no_more_than_the_reach():
    graph = permutation(range(2), 500_000, 1)
    space = space_of(graph)
    transport = recipe("mrc", space).make(graph, space, np.ones(2, bool))
    run(transport, 2, Network(Weather(loss=0.05, jitter_s=RTT_S), 3), until_s=60.0)
    assert 0 < transport.reach_max <= transport._settings.reach_packets


def test_rc_drops_what_is_trimmed():
    graph = permutation(range(2), 5_000, 1)
    space = space_of(graph)
    transport = Rc(
        graph, space, np.ones(2, bool), np.full(2, 0xC000, np.uint16), RcSettings(8, 1.0)
    )
    transport.receive(Packets.of(Kind.DATA, np.zeros(1, np.int64), trimmed=True), 0.0)
    assert not transport.ledger.received.any()
    assert transport.counters["trimmed_received"] == 1


class Severed(Network):
    """Loses all that carries some entropy values, for a time."""

    def __init__(self, values, from_s, until_s):
        super().__init__(Weather(), 1)
        self._values, self._from_s, self._until_s = values, from_s, until_s

    def send(self, packets, now_s):
        if self._from_s <= now_s < self._until_s:
            packets = packets.take(~np.isin(packets.entropy, self._values))
        super().send(packets, now_s)


def test_a_broken_path_is_left_probed_and_taken_again_once_it_is_whole():
    graph = permutation(range(2), 4_000_000, 1)
    space = space_of(graph)
    transport = recipe("mrc", space).make(graph, space, np.ones(2, bool))
    values = transport._entropy
    bad = np.arange(0xC000, 0xC008)
    broken, whole, now = 0.1, 0.5, 0.0
    network = Severed(bad, broken, whole)
    late_on_bad = again_on_bad = 0
    while now < 2.0 and not transport.finished():
        transport.receive(network.take(now), now)
        sent = transport.transmit(now, np.full(2, ROOM))
        on_bad = np.isin(sent.entropy, bad)[sent.kind == Kind.DATA].sum()
        # 64 values have had their turn after 16 ms of 4 packets each, and a loss is noticed by the
        # timeout of 5 round trips at the latest; from then on only probes go that way.
        late_on_bad += on_bad * (broken + 10 * RTT_S <= now < whole)
        again_on_bad += on_bad * (now > whole)
        if now < whole:
            restored_before = values.restored
        network.send(sent, now)
        now += TICK_S
    assert transport.finished()
    assert_complete(transport, graph, space)
    assert late_on_bad == 0
    assert values.exclusions >= 2 * len(bad)
    assert restored_before == 0
    # All that was left out has come back by an answered probe, and carries data.
    assert transport.counters["probe"] > transport.counters["probe_ack"] >= values.restored
    assert values.restored == values.exclusions
    assert (values.state == EvState.GOOD).all()
    assert again_on_bad > 0


@pytest.mark.parametrize(("queue_pairs", "split"), [(1, False), (4, False), (4, True)])
def test_packets_are_laid_out_over_queue_pairs(queue_pairs, split):
    graph = permutation(range(3), 10_500, 1, 4_000)
    space = space_of(graph, queue_pairs, split)
    assert space.queue_pairs == 3 * queue_pairs
    assert space.size_bytes.sum() == 3 * 10_500
    assert (space.first[1:] - space.first[:-1]).sum() == space.packets
    pairs = space.part_queue_pair[space.part_of]
    assert (np.diff(pairs) >= 0).all()
    ends = np.flatnonzero(np.diff(space.part_of, append=-1))
    assert (space.part_end[space.part_of[ends]] == ends + 1 - space.first[pairs[ends]]).all()
    # Messages of 4, 4 and 2.5 packets.
    by_message = np.bincount(space.part_message[space.part_of])
    assert sorted(by_message.tolist()) == [3, 3, 3, 4, 4, 4, 4, 4, 4]
