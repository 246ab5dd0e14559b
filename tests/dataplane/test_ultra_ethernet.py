"""Ultra Ethernet packets in the port programs: their flow is counted, their path stamped."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fabric_emu.switch.ports import PortConstants, PortTable
from fabric_emu.wire.uet import RudCcRequest
from fabric_emu.wire.uet_layout import PATH_STAMP, UET_PORT

pytestmark = pytest.mark.root

QPN_BASE, FLOW, STAMP = 0x100, 3, 5
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NETWORKS = {
    4: (IP(src="10.0.0.1", dst="10.0.0.2"), 34),
    6: (IPv6(src="fd00::1", dst="fd00::2"), 54),
}


@pytest.fixture
def table():
    # lo has interface index 1 everywhere: port 1 of a fabric that begins at 0.
    with PortTable(
        PortConstants(ifindex_base=0, port_count=2, flow_count=8, qpn_base=QPN_BASE)
    ) as t:
        t.configs["path_stamp"][1] = STAMP
        yield t


def request(family, pdc=QPN_BASE + FLOW, payload=100):
    network, _ = NETWORKS[family]
    frame = ETHERNET / network / UDP(sport=50000, dport=UET_PORT, chksum=0)
    return bytes(frame / RudCcRequest(destination_pdc=pdc) / Raw(bytes(payload)))


@pytest.mark.parametrize("family", [4, 6])
def test_a_packet_counts_for_its_delivery_context(table, family):
    frame = request(family)
    run = table.bpf.test_run("port_egress", frame)
    cell = table.flow_ports[FLOW, 1]
    assert (run.verdict, cell["offered_packets"], cell["offered_bytes"]) == (0, 1, len(frame))
    assert table.ports["unknown_flow_packets"][1] == 0


@pytest.mark.parametrize("family", [4, 6])
def test_the_path_stamp_changes_its_byte_alone(table, family):
    frame = request(family)
    at = NETWORKS[family][1] + PATH_STAMP
    stamped = table.bpf.test_run("port_egress", frame).frame
    assert stamped[at] == STAMP
    assert stamped[:at] + bytes([frame[at]]) + stamped[at + 1 :] == frame
    # A higher tier's stamp stays.
    table.configs["path_stamp"][1] = STAMP + 1
    assert table.bpf.test_run("port_egress", stamped).frame == stamped


def test_a_context_of_no_flow_is_counted_as_unknown(table):
    table.bpf.test_run("port_egress", request(4, pdc=QPN_BASE + 8))
    assert table.ports["unknown_flow_packets"][1] == 1
    assert not table.flow_ports["offered_packets"].any()


def test_a_packet_too_short_for_the_header_has_no_flow(table):
    network, _ = NETWORKS[4]
    short = bytes(ETHERNET / network / UDP(dport=UET_PORT) / Raw(bytes(15)))
    assert table.bpf.test_run("port_egress", short).verdict == 0
    assert not table.flow_ports["offered_packets"].any()


def test_hosts_keep_it_from_their_udp_stack(table):
    assert table.bpf.test_run("host_ingress", request(4)).verdict == 2
    assert table.ports["delivered_packets"][0] == 1
