"""ECN: which packets are marked, above which queue, and that nothing else changes."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from fabric_emu.switch.columns import Records, map_entries
from fabric_emu.switch.ports import PORT_DTYPE, PortConstants, PortTable

pytestmark = pytest.mark.root

PORT = 0
CONSTANTS = PortConstants(ifindex_base=1, port_count=2, flow_count=2, qpn_base=0x100)
NOT_ECT, ECT1, ECT0, CE = range(4)
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        table.configs["mark_above_bytes"] = 10_000
        table.configs["mark_all_above_bytes"] = 10_000
        yield table


@pytest.fixture
def ports(table: PortTable) -> Records:
    mappings: list[mmap.mmap] = []
    return map_entries(table.bpf.map_fds["ports"], PORT_DTYPE, 2, mappings)


def roce(family: int, ecn: int, dscp: int = 0, **fields: Any) -> bytes:
    tos = dscp << 2 | ecn
    network: Packet = IP(src="10.0.0.1", dst="10.0.0.2", tos=tos, **fields)
    if family == 6:
        network = IPv6(src="fd00::1", dst="fd00::2", tc=tos, fl=0xABCDE)
    udp = UDP(sport=0xC123, dport=4791, chksum=0)
    return bytes(ETHERNET / network / udp / BTH(opcode=4, dqpn=0x101) / Raw(bytes(64)))


EACH_FAMILY = pytest.mark.parametrize("family", [4, 6])


@EACH_FAMILY
@pytest.mark.parametrize("ecn", [ECT0, ECT1])
@pytest.mark.parametrize("dscp", [0, 10, 63])
def test_marks_above_the_threshold(
    table: PortTable, ports: Records, family: int, ecn: int, dscp: int
) -> None:
    frame = roce(family, ecn, dscp)
    ports["enqueued_bytes"][PORT] = 10_001 - len(frame)
    run = table.bpf.test_run("port_egress", frame)

    assert run.verdict == 0
    assert run.frame == roce(family, CE, dscp)  # scapy computes the header checksum anew
    assert table.ports["marked_packets"].tolist() == [1, 0]
    assert table.flow_ports["marked_packets"].tolist() == [[0, 0], [1, 0]]


@EACH_FAMILY
def test_does_not_mark_up_to_the_threshold(table: PortTable, ports: Records, family: int) -> None:
    frame = roce(family, ECT0)
    ports["enqueued_bytes"][PORT] = 10_000 - len(frame)
    assert table.bpf.test_run("port_egress", frame).frame == frame
    assert not table.ports["marked_packets"].any()


TCP_ECT = bytes(ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", tos=ECT0) / TCP() / Raw(bytes(99)))


@pytest.mark.parametrize(
    "frame",
    [
        roce(4, NOT_ECT),
        roce(6, NOT_ECT),
        roce(4, CE),
        roce(6, CE),
        roce(4, ECT0, dscp=48),
        roce(6, ECT1, dscp=48),
        bytes(ETHERNET / ARP(psrc="10.0.0.1", hwsrc="02:00:00:00:00:01")),
        bytes(12) + b"\x88\xb5" + b"\xaa" * 50,
        roce(4, ECT0)[:12] + bytes(Dot1Q(vlan=5, type=0x0800)) + roce(4, ECT0)[14:],
    ],
    ids=["not ECT", "not ECT 6", "CE", "CE 6", "control", "control 6", "arp", "other", "vlan"],
)
def test_marks_nothing_else(table: PortTable, ports: Records, frame: bytes) -> None:
    ports["enqueued_bytes"][PORT] = 1_000_000
    run = table.bpf.test_run("port_egress", frame)
    assert (run.verdict, run.frame) == (0, frame)
    assert not table.ports["marked_packets"].any()


def test_segments_count_each(table: PortTable, ports: Records) -> None:
    ports["enqueued_bytes"][PORT] = 1_000_000
    table.bpf.test_run("port_egress", TCP_ECT, gso_size=10, gso_segs=10)
    assert table.ports["marked_packets"][PORT] == 10


def test_fragments_are_marked_too(table: PortTable, ports: Records) -> None:
    ports["enqueued_bytes"][PORT] = 1_000_000
    for fields in ({"flags": "MF"}, {"frag": 100}):
        run = table.bpf.test_run("port_egress", roce(4, ECT0, **fields))
        assert run.frame == roce(4, CE, **fields)


def test_only_the_data_class_makes_the_queue(table: PortTable, ports: Records) -> None:
    frame = roce(4, ECT0)
    ports["enqueued_bytes"][PORT] = ports["control_enqueued_bytes"][PORT] = 1_000_000
    assert table.bpf.test_run("port_egress", frame).frame == frame
    ports["control_departed_bytes"][PORT] = 500_000  # of a million, half is data now
    assert table.bpf.test_run("port_egress", frame).frame != frame


def test_a_port_may_not_mark_at_all(table: PortTable, ports: Records) -> None:
    table.configs["mark_above_bytes"] = 0
    ports["enqueued_bytes"][PORT] = 1_000_000
    frame = roce(4, ECT0)
    assert table.bpf.test_run("port_egress", frame).frame == frame


def test_what_is_dropped_is_not_marked(table: PortTable, ports: Records) -> None:
    ports["enqueued_bytes"][PORT] = 1_000_000
    table.configs["drop_at_bytes"] = 1_000_000
    table.bpf.test_run("port_egress", roce(4, ECT0))
    assert not table.ports["marked_packets"].any()


@pytest.mark.parametrize(
    ("queue", "chance"),
    [(10_000, 0.0), (11_000, 0.02), (15_000, 0.1), (19_000, 0.18), (20_000, 0.2), (20_001, 1.0)],
)
def test_a_ramp_marks_with_a_rising_probability(
    table: PortTable, ports: Records, queue: int, chance: float
) -> None:
    table.configs["mark_all_above_bytes"] = 20_000
    table.configs["mark_per_million"] = 200_000
    frame = roce(4, ECT0)
    runs = 4000
    for _ in range(runs):
        ports["enqueued_bytes"][PORT] = queue - len(frame)
        table.bpf.test_run("port_egress", frame)
    marked = int(table.ports["marked_packets"][PORT])
    # Binomial; six standard deviations miss once in 500 million.
    assert abs(marked - chance * runs) <= 6 * (runs * chance * (1 - chance)) ** 0.5
