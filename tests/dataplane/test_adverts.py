"""Adverts: what a switch says of its paths, as packets, and what the one that hears them keeps."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fabric_emu.model.policies import Glb
from fabric_emu.model.scheme import Switch
from fabric_emu.model.topology import Topology
from fabric_emu.switch.adverts import advert_plan
from fabric_emu.switch.glb import (
    ADVERT_MAGIC,
    ADVERT_PORT,
    Qualities,
    advert_payloads,
    best_qualities,
    heard,
    sealed,
)
from fabric_emu.switch.policies import SwitchPlan
from fabric_emu.switch.ports import DropReason, PortConstants, PortTable
from fabric_emu.switch.switches import ADVERT_DTYPE, ADVERT_LEAVES, SwitchSizes

TC_ACT_OK, TC_ACT_SHOT, TC_ACT_STOLEN = 0, 2, 4
PORT = 2
LEAVES = ADVERT_LEAVES + 6
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=4,
    leaf_count=LEAVES,
    advert_blocks=2,
)
QUALITIES = (np.arange(LEAVES) % 8).astype(np.uint8)
MAC = Ether(src="02:00:00:00:00:01", dst="00:00:00:00:00:00")
NETWORKS = {
    4: MAC / IP(src="10.242.0.1", dst="10.241.0.1", tos=48 << 2, ttl=1),
    6: MAC / IPv6(src="fd00:ffff:2::1", dst="fd00:ffff:1::1", tc=48 << 2, hlim=1),
}


def envelope(network: Packet) -> bytes:
    return bytes(network / UDP(sport=ADVERT_PORT, dport=ADVERT_PORT, chksum=0))


def advert_frames(envelope: bytes, qualities: Qualities) -> list[bytes]:
    return [sealed(envelope, payload) for payload in advert_payloads(qualities)]


@pytest.mark.parametrize("family", [4, 6])
def test_frames_are_as_scapy_would_build_them(family: int) -> None:
    frames = advert_frames(envelope(NETWORKS[family]), QUALITIES)
    assert len(frames) == 2
    for block, frame in enumerate(frames):
        part = QUALITIES[block * ADVERT_LEAVES :][:ADVERT_LEAVES].tobytes()
        payload = struct.pack("!IHH", ADVERT_MAGIC, block, len(part)) + part
        udp = UDP(sport=ADVERT_PORT, dport=ADVERT_PORT)
        assert frame == bytes(NETWORKS[family] / udp / Raw(payload))


@pytest.mark.root
class TestHearing:
    """What ``switch_ingress`` makes of them."""

    @pytest.fixture
    def table(self) -> Iterator[PortTable]:
        with PortTable(CONSTANTS, SwitchSizes(switches=1)) as table:
            yield table

    @pytest.mark.parametrize("family", [4, 6])
    def test_an_advert_is_kept(self, table: PortTable, family: int) -> None:
        before = time.monotonic_ns()
        for frame in advert_frames(envelope(NETWORKS[family]), QUALITIES):
            run = table.bpf.test_run("switch_ingress", frame)
            assert (run.verdict, run.frame) == (TC_ACT_SHOT, frame)
        kept = table.switches.adverts
        assert kept["quality"][PORT].ravel()[:LEAVES].tolist() == QUALITIES.tolist()
        assert (before <= kept["heard_ns"][PORT]).all()
        assert (kept["heard_ns"][PORT] <= time.monotonic_ns()).all()
        assert not kept["heard_ns"][[0, 1, 3]].any()
        assert table.switches.totals()["adverts_received"] == 2
        sender = table.ports[PORT ^ 1]
        assert sender["advert_departed_packets"] == sender["departed_packets"] == 2

    def test_a_later_advert_takes_its_place(self, table: PortTable) -> None:
        for qualities in (QUALITIES, 7 - QUALITIES):
            for frame in advert_frames(envelope(NETWORKS[4]), qualities):
                table.bpf.test_run("switch_ingress", frame)
        kept = table.switches.adverts["quality"][PORT].ravel()[:LEAVES]
        assert kept.tolist() == (7 - QUALITIES).tolist()

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            struct.pack("!IHH", ADVERT_MAGIC, 0, 4),
            struct.pack("!IHH", ADVERT_MAGIC, 0, 4) + bytes(3),
            struct.pack("!IHH", ADVERT_MAGIC + 1, 0, 4) + bytes(4),
            struct.pack("!IHH", ADVERT_MAGIC, 2, 4) + bytes(4),
            struct.pack("!IHH", ADVERT_MAGIC, 65535, 4) + bytes(4),
            struct.pack("!IHH", ADVERT_MAGIC, 0, 0) + bytes(4),
            struct.pack("!IHH", ADVERT_MAGIC, 0, ADVERT_LEAVES + 1) + bytes(99),
            struct.pack("!IHH", ADVERT_MAGIC, 0, 65535) + bytes(99),
        ],
        ids=["empty", "no qualities", "one short", "magic", "block", "last block", "no leaves",
             "a leaf too many", "all ones"],
    )  # fmt: skip
    def test_nonsense_is_refused_and_goes_no_further(
        self, table: PortTable, payload: bytes
    ) -> None:
        frame = bytes(NETWORKS[4] / UDP(sport=ADVERT_PORT, dport=ADVERT_PORT) / Raw(payload))
        assert table.bpf.test_run("switch_ingress", frame).verdict == TC_ACT_SHOT
        totals = table.switches.totals()
        assert (totals["adverts_refused"], totals["adverts_received"]) == (1, 0)
        assert not table.switches.adverts["heard_ns"].any()

    @pytest.mark.parametrize("change", ["dscp", "port", "fragment"])
    def test_what_only_looks_like_one_passes(self, table: PortTable, change: str) -> None:
        network = NETWORKS[4].copy()
        udp = UDP(sport=ADVERT_PORT, dport=ADVERT_PORT)
        if change == "dscp":
            network[IP].tos = 0
        elif change == "port":
            udp.dport = ADVERT_PORT + 1
        else:
            network[IP].frag = 100
        payload = struct.pack("!IHH", ADVERT_MAGIC, 0, 4) + bytes(4)
        run = table.bpf.test_run("switch_ingress", bytes(network / udp / Raw(payload)))
        assert run.verdict == TC_ACT_OK
        assert not table.switches.adverts["heard_ns"].any()

    def test_a_table_without_adverts_refuses_them(self) -> None:
        constants = PortConstants(ifindex_base=CONSTANTS.ifindex_base, port_count=4, leaf_count=4)
        with PortTable(constants, SwitchSizes(switches=1)) as table:
            (frame,) = advert_frames(envelope(NETWORKS[4]), QUALITIES[:4])
            assert table.bpf.test_run("switch_ingress", frame).verdict == TC_ACT_SHOT
            assert table.switches.totals()["adverts_refused"] == 1

    def test_a_port_counts_the_adverts_it_sends(self, table: PortTable) -> None:
        (frame, _) = advert_frames(envelope(NETWORKS[6]), QUALITIES)
        run = table.bpf.test_run("port_egress", frame)
        assert (run.verdict, run.priority) == (TC_ACT_OK, CONSTANTS.control_classid)
        port = table.ports[PORT]
        assert (port["advert_packets"], port["advert_bytes"]) == (1, len(frame))
        assert port["enqueued_bytes"] == port["control_enqueued_bytes"] == len(frame)

    @pytest.mark.parametrize(
        ("setting", "verdict"),
        [("blackhole", TC_ACT_STOLEN), ("control_limit_bytes", TC_ACT_SHOT)],
    )
    def test_a_lost_advert_is_no_hosts_packet(
        self, table: PortTable, setting: str, verdict: int
    ) -> None:
        table.configs[setting] = 1
        (frame, _) = advert_frames(envelope(NETWORKS[4]), QUALITIES)
        assert table.bpf.test_run("port_egress", frame).verdict == verdict
        dropped = table.ports["dropped_packets"][PORT]
        assert dropped[DropReason.ADVERT_LOST] == dropped.sum() == 1

    def test_adverts_in_the_queue_of_a_dead_link_are_written_off_apart(
        self, table: PortTable
    ) -> None:
        (frame, _) = advert_frames(envelope(NETWORKS[4]), QUALITIES)
        table.bpf.test_run("port_egress", frame)
        table.bpf.test_run("port_egress", bytes(100))
        for _ in range(2):  # the second time there is nothing left
            table.write_off(PORT)
            port = table.ports[PORT]
            assert port["dropped_packets"][DropReason.LINK_DOWN] == 2
            assert port["advert_written_off_packets"] == 1
            assert port["control_written_off_bytes"] == len(frame)
            assert table.depth_bytes[PORT] == 0


def test_the_best_path_is_as_good_as_its_worse_half() -> None:
    # Two senders, two leaves; ports 0 to 3.
    hops = np.array([[[0, 1], [2, -1]], [[3, -1], [3, 1]]])
    local = np.array([5, 7, 4, -1])  # port 3 is dead
    remote = np.array([[7, 7], [3, 6], [7, 2], [7, 7]])
    # Sender 0 to leaf 0: min(5, 7) or min(7, 3); to leaf 1: min(4, 2). Sender 1 to leaf 0 has a
    # dead port only, to leaf 1 also port 1: min(7, 6).
    assert best_qualities(hops, local, remote).tolist() == [[5, 2], [0, 6]]


def test_only_fresh_words_count() -> None:
    adverts = np.zeros((3, 2), ADVERT_DTYPE)
    adverts["quality"] = 2
    adverts["heard_ns"] = [[0, 900], [899, 1000], [1001, 1]]  # the last but one just now
    said = heard(adverts, 100, 1000, ADVERT_LEAVES + 3)
    assert said.shape == (3, ADVERT_LEAVES + 3)
    assert said[:, 0].tolist() == [7, 7, 2]  # never, too long ago, now
    assert said[:, ADVERT_LEAVES].tolist() == [2, 2, 7]


def hearers(topology: Topology) -> dict[str, list[str]]:
    """Return whom each switch tells, by the ends of the links that it sends on."""
    plan = SwitchPlan.of(topology, Switch(policy=Glb()))
    constants = PortConstants(ifindex_base=0, port_count=2 * len(topology.links), **plan.constants)
    with PortTable(constants, plan.sizes) as table:
        adverts = advert_plan(plan, table, str)
    return {sender.namespace: list(sender.interfaces) for sender in adverts.senders}


@pytest.mark.root
def test_spines_tell_their_leaves() -> None:
    told = hearers(Topology(leaves=3, spines=2, hosts_per_leaf=1))
    assert told == {"spine1": ["leaf1", "leaf2", "leaf3"], "spine2": ["leaf1", "leaf2", "leaf3"]}


@pytest.mark.root
def test_in_three_tiers_spines_and_super_spines_tell_each_other() -> None:
    topology = Topology(tiers=3, pods=2, leaves=1, spines=1, hosts_per_leaf=1, super_spines=2)
    assert hearers(topology) == {
        "spine1": ["leaf1", "super1", "super2"],
        "spine2": ["leaf2", "super1", "super2"],
        "super1": ["spine1", "spine2"],
        "super2": ["spine1", "spine2"],
    }


@pytest.mark.root
def test_one_chassis_has_nobody_to_tell() -> None:
    assert hearers(Topology(tiers=1, leaves=1, spines=0)) == {}
