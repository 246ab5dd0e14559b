"""What routers say to each other: served first, counted apart from every figure of the data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6ND_RS, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fabric_emu.switch.ports import (
    DropReason,
    PortConstants,
    PortTable,
    carried_bytes,
    link_down_packets,
    waiting_packets,
)

pytestmark = pytest.mark.root

TC_ACT_OK, TC_ACT_SHOT, TC_ACT_STOLEN = 0, 2, 4
PORT = 2
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=4,
)
MAC = Ether(src="02:00:00:00:00:01", dst="00:00:00:00:00:00")
PEERS = IPv6(src="fe80::fe:ff:fe00:1", dst="fe80::fe:ff:fe00:2", hlim=255)
ROUTING = {
    "bgp": PEERS / TCP(sport=40000, dport=179),
    "bfd": PEERS / UDP(sport=49152, dport=3784),
    "router advertisement": IPv6(src="febf::1", dst="ff02::1", hlim=255) / ICMPv6ND_RA(),
    "before it has an address": IPv6(src="::", dst="ff02::2", hlim=255) / ICMPv6ND_RS(),
}
DATA = {
    "other IPv6": IPv6(src="fd00:0:1::1", dst="fd00:0:2::1") / TCP(dport=179),
    "just outside": IPv6(src="fec0::1", dst="fd00:0:2::1") / UDP(dport=3784),
    "other IPv4": IP(src="10.0.1.1", dst="10.0.2.1") / TCP(dport=179),
}


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        yield table


def frame(packet: Packet) -> bytes:
    return bytes(MAC / packet)


@pytest.mark.parametrize("name", ROUTING)
def test_routing_goes_with_the_control_class_and_adds_to_no_load(
    table: PortTable, name: str
) -> None:
    sent = frame(ROUTING[name])
    run = table.bpf.test_run("port_egress", sent)
    assert (run.verdict, run.priority) == (TC_ACT_OK, CONSTANTS.control_classid)
    port = table.ports[PORT]
    assert (port["routing_packets"], port["routing_bytes"]) == (1, len(sent))
    assert port["enqueued_bytes"] == port["control_enqueued_bytes"] == len(sent)
    assert table.offered_bytes[PORT] == 0
    assert waiting_packets(table.ports)[PORT] == 0
    assert table.depth_bytes[PORT] == len(sent)


@pytest.mark.parametrize("name", DATA)
def test_data_is_not_taken_for_it(table: PortTable, name: str) -> None:
    sent = frame(DATA[name])
    run = table.bpf.test_run("port_egress", sent)
    assert (run.verdict, run.priority) == (TC_ACT_OK, CONSTANTS.data_classid)
    assert table.ports[PORT]["routing_packets"] == 0
    assert table.offered_bytes[PORT] == len(sent)
    assert waiting_packets(table.ports)[PORT] == 1


def test_both_ends_of_a_link_tell_it_alike(table: PortTable) -> None:
    bgp, data = frame(ROUTING["bgp"]), frame(DATA["other IPv6"])
    for sent in (bgp, data):
        table.bpf.test_run("port_ingress", sent)
    sender = table.ports[PORT ^ 1]
    assert (sender["routing_departed_packets"], sender["departed_packets"]) == (1, 2)
    assert sender["routing_departed_bytes"] == sender["control_departed_bytes"] == len(bgp)
    assert carried_bytes(table.ports)[PORT ^ 1] == len(data)


@pytest.mark.parametrize(
    ("setting", "verdict"),
    [("blackhole", TC_ACT_STOLEN), ("control_limit_bytes", TC_ACT_SHOT)],
)
def test_what_is_lost_of_it_is_no_hosts_packet(
    table: PortTable, setting: str, verdict: int
) -> None:
    table.configs[setting] = 1
    assert table.bpf.test_run("port_egress", frame(ROUTING["bfd"])).verdict == verdict
    dropped = table.ports["dropped_packets"][PORT]
    assert dropped[DropReason.ROUTING_LOST] == dropped.sum() == 1
    assert table.offered_bytes[PORT] == 0


def test_in_the_queue_of_a_dead_link_it_is_written_off_apart(table: PortTable) -> None:
    for packet in (ROUTING["bgp"], DATA["other IPv4"], DATA["other IPv6"]):
        table.bpf.test_run("port_egress", frame(packet))
    for _ in range(2):  # the second time there is nothing left
        table.write_off(PORT)
        assert table.ports["dropped_packets"][PORT, DropReason.LINK_DOWN] == 3
        assert link_down_packets(table.ports)[PORT] == 2
        assert (waiting_packets(table.ports)[PORT], table.depth_bytes[PORT]) == (0, 0)
