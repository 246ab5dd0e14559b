"""The port programs alone: a frame in, the verdict, the frame and the counters out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from fabric_emu.switch.columns import Records
from fabric_emu.switch.ports import PortConstants, PortTable, dscp_bits

pytestmark = pytest.mark.root

TC_ACT_OK, TC_ACT_SHOT = 0, 2
PORT, PEER = 2, 3
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=4,
    flow_count=5,
    qpn_base=0x100,
    control_dscps=dscp_bits(48),
    control_classid=0x10007,
    data_classid=0x10009,
)
UDP4, BTH4, BTH6 = 14 + 20, 14 + 20 + 8, 14 + 40 + 8


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        yield table


# Both addresses are given: else scapy asks the network for them.
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def ipv4(**fields: Any) -> Packet:
    return ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", **fields)


def ipv6(**fields: Any) -> Packet:
    return ETHERNET / IPv6(src="fd00::1", dst="fd00::2", **fields)


def roce(network: Packet, qpn: int = 0x101, **fields: Any) -> bytes:
    bth = BTH(opcode=4, dqpn=qpn, psn=7, **fields)
    return bytes(network / UDP(sport=0xC123, dport=4791, chksum=0) / bth / Raw(b"A" * 64))


def patched(frame: bytes, offset: int, new: bytes) -> bytes:
    return frame[:offset] + new + frame[offset + len(new) :]


@dataclass(frozen=True)
class Case:
    """A frame and what must be made of it.

    Attributes:
        flow: the flow it is counted for; None: none.
        unknown_flow: counted as of an unknown flow.
        is_roce: a host's ingress consumes it.
        control: sent in the control class.
    """

    frame: bytes
    flow: int | None = None
    unknown_flow: bool = False
    is_roce: bool = False
    control: bool = False


def of_flow(frame: bytes, flow: int = 1) -> Case:
    return Case(frame, flow=flow, is_roce=True)


ROCE4, ROCE6 = roce(ipv4()), roce(ipv6())
TCP4 = bytes(ipv4() / TCP(dport=4791) / Raw(bytes(40)))
CASES = {
    "ipv4": of_flow(ROCE4),
    "ipv6": of_flow(ROCE6),
    "first flow": of_flow(roce(ipv4(), 0x100), 0),
    "last flow": of_flow(roce(ipv4(), 0x104), 4),
    "qp below the first": Case(roce(ipv4(), 0xFF), unknown_flow=True, is_roce=True),
    "qp above the last": Case(roce(ipv4(), 0x105), unknown_flow=True, is_roce=True),
    "qp of all ones": Case(roce(ipv6(), 0xFFFFFF), unknown_flow=True, is_roce=True),
    "stamped and FECN": of_flow(roce(ipv4(), fecn=1, resv6=63)),
    "ipv4 options": of_flow(roce(ipv4(options=[IPOption_NOP()] * 12))),
    "ipv4 longest header": of_flow(roce(ipv4(options=[IPOption_NOP()] * 40))),
    "ipv4 header of 16 bytes": Case(patched(ROCE4[: UDP4 - 4], 14, b"\x44") + ROCE4[UDP4:]),
    "ipv4 header length 0": Case(patched(ROCE4, 14, b"\x40")),
    "ipv4 header past the end": Case(patched(ROCE4[: UDP4 + 20], 14, b"\x4f")),
    "ipv4 first fragment": Case(roce(ipv4(flags="MF"))),
    "ipv4 later fragment": Case(roce(ipv4(frag=100))),
    "ipv4 do not fragment": of_flow(roce(ipv4(flags="DF"))),
    "ipv6 fragment": Case(bytes(ipv6() / IPv6ExtHdrFragment(nh=17) / Raw(ROCE6[54:]))),
    "ipv6 hop by hop": Case(bytes(ipv6() / IPv6ExtHdrHopByHop(nh=17) / Raw(ROCE6[54:]))),
    "ipv4 length too great": of_flow(patched(ROCE4, 16, b"\xff\xff")),
    "ipv4 length 0": of_flow(patched(ROCE4, 16, b"\0\0")),
    "udp length too great": of_flow(patched(ROCE4, UDP4 + 4, b"\xff\xff")),
    "udp ends before the bth": Case(patched(ROCE4, UDP4 + 4, b"\0\x13"), is_roce=True),
    "udp just holds the bth": of_flow(patched(ROCE4, UDP4 + 4, b"\0\x14")),
    "tcp": Case(TCP4),
    "udp to another port": Case(bytes(ipv4() / UDP(dport=4794) / Raw(bytes(40)))),
    "udp from port 4791": Case(bytes(ipv4() / UDP(sport=4791, dport=53) / Raw(bytes(40)))),
    "vlan": Case(ROCE4[:12] + bytes(Dot1Q(vlan=5, type=0x0800)) + ROCE4[14:]),
    "arp": Case(bytes(ETHERNET / ARP(psrc="10.0.0.1", hwsrc="02:00:00:00:00:01"))),
    "control ipv4": replace(of_flow(roce(ipv4(tos=48 << 2))), control=True),
    "control ipv4, CE": replace(of_flow(roce(ipv4(tos=48 << 2 | 3))), control=True),
    "control ipv6": replace(of_flow(roce(ipv6(tc=48 << 2, fl=0xFFFFF))), control=True),
    "control tcp": Case(bytes(ipv4(tos=48 << 2) / TCP()), control=True),
    "dscp next to control": of_flow(roce(ipv6(tc=49 << 2))),
    "bth cut by a byte": Case(ROCE4[: BTH4 + 11], is_roce=True),
    "bth and no more": of_flow(ROCE4[: BTH4 + 12]),
    "udp header and no more": Case(ROCE4[:BTH4], is_roce=True),
    "udp header cut": Case(ROCE4[: BTH4 - 1]),
    "no udp header": Case(ROCE4[:UDP4]),
    "ipv6 bth cut by a byte": Case(ROCE6[: BTH6 + 11], is_roce=True),
    "ipv6 header and no more": Case(ROCE6[: 14 + 40]),
    "unknown ethertype": Case(bytes(12) + b"\x88\xb5" + bytes(50)),
    "ethernet header and no more": Case(bytes(12) + b"\x88\xb5"),
}
EACH_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def total(records: Records) -> dict[str, int]:
    """Return the sum of every column that is not zero."""
    sums = {name: int(records[name].sum()) for name in records.dtype.names or ()}
    return {name: value for name, value in sums.items() if value}


@EACH_CASE
def test_egress_counts_and_classifies(table: PortTable, case: Case) -> None:
    run = table.bpf.test_run("port_egress", case.frame, priority=5, mark=9)

    assert (run.verdict, run.frame, run.mark) == (TC_ACT_OK, case.frame, 9)
    assert run.priority == (CONSTANTS.control_classid if case.control else CONSTANTS.data_classid)
    length = len(case.frame)
    expected = {"enqueued_bytes": length, "enqueued_packets": 1, "high_water_bytes": length}
    if case.unknown_flow:
        expected["unknown_flow_packets"] = 1
    if case.control:
        expected["control_enqueued_bytes"] = length
    assert total(table.ports[PORT]) == expected
    assert total(table.ports) == expected
    if case.flow is None:
        assert total(table.flow_ports) == {}
    else:
        expected = {"offered_packets": 1, "offered_bytes": length}
        assert total(table.flow_ports[case.flow, PORT]) == expected
        assert total(table.flow_ports) == expected


@EACH_CASE
def test_ingress_counts_at_the_other_end(table: PortTable, case: Case) -> None:
    run = table.bpf.test_run("port_ingress", case.frame, priority=5)

    assert (run.verdict, run.frame, run.priority) == (TC_ACT_OK, case.frame, 5)
    expected = {"departed_bytes": len(case.frame), "departed_packets": 1}
    if case.control:
        expected["control_departed_bytes"] = len(case.frame)
    assert total(table.ports[PEER]) == expected
    assert total(table.ports) == total(table.ports[PEER])


@EACH_CASE
def test_host_ingress_consumes_roce_only(table: PortTable, case: Case) -> None:
    run = table.bpf.test_run("host_ingress", case.frame)

    assert run.verdict == (TC_ACT_SHOT if case.is_roce else TC_ACT_OK)
    assert run.frame == case.frame
    length = len(case.frame)
    expected = {"departed_bytes": length, "departed_packets": 1}
    if case.control:
        expected["control_departed_bytes"] = length
    if case.is_roce:
        expected |= {"delivered_bytes": length, "delivered_packets": 1}
    assert total(table.ports[PEER]) == expected
    assert total(table.ports) == expected


@pytest.mark.parametrize("program", ["port_egress", "port_ingress", "host_ingress"])
@pytest.mark.parametrize("port", [-3, 4, 5])  # of ports 0 to 3; -3 ^ 1 and 5 ^ 1 are none either
def test_unknown_ports_are_left_alone(program: str, port: int) -> None:
    base = (1 - port) % 2**32
    with PortTable(replace(CONSTANTS, ifindex_base=base)) as table:
        table.configs["blackhole"] = 1
        run = table.bpf.test_run(program, ROCE4, priority=5)
        assert (run.verdict, run.frame, run.priority) == (TC_ACT_OK, ROCE4, 5)
        assert total(table.ports) == total(table.flow_ports) == {}


TCP4_OPTIONS = bytes(ipv4() / TCP(options=[("Timestamp", (1, 2)), ("NOP", None)]) / Raw(bytes(999)))
TCP6 = bytes(ipv6() / TCP() / Raw(bytes(999)))


@pytest.mark.parametrize(
    ("frame", "headers"),
    [(TCP4, 14 + 20 + 20), (TCP4_OPTIONS, 14 + 20 + 32), (TCP6, 14 + 40 + 20), (ROCE4, BTH4)],
    ids=["ipv4 tcp", "ipv4 tcp options", "ipv6 tcp", "ipv4 udp"],
)
def test_segments_count_as_on_the_wire(table: PortTable, frame: bytes, headers: int) -> None:
    for program in ("port_egress", "port_ingress"):
        run = table.bpf.test_run(program, frame, gso_size=100, gso_segs=10)
        assert (run.verdict, run.frame) == (TC_ACT_OK, frame)
    on_the_wire = len(frame) + 9 * headers
    assert table.ports[PORT]["enqueued_packets"] == table.ports[PEER]["departed_packets"] == 10
    assert table.ports[PORT]["enqueued_bytes"] == on_the_wire
    assert table.ports[PEER]["departed_bytes"] == on_the_wire


def is_runnable(frame: bytes) -> bool:
    """Tell whether the kernel takes the frame for a test run: not without its whole IP header."""
    header_bytes = {b"\x08\x00": 20, b"\x86\xdd": 40}.get(frame[12:14], 0)
    return len(frame) >= 14 + header_bytes


def cut_and_overwritten(frame: bytes) -> st.SearchStrategy[bytes]:
    """Return frames like `frame` with up to four bytes replaced and the end cut off."""
    changes = st.dictionaries(st.integers(12, len(frame) - 1), st.integers(0, 255), max_size=4)

    def change(new: dict[int, int], length: int) -> bytes:
        return bytes(new.get(at, byte) for at, byte in enumerate(frame))[:length]

    return st.builds(change, changes, st.integers(14, len(frame)))


ANY_FRAME = st.one_of(
    st.binary(min_size=14, max_size=256),
    *(cut_and_overwritten(frame) for frame in (ROCE4, ROCE6, TCP4)),
).filter(is_runnable)


@pytest.mark.parametrize("program", ["port_egress", "port_ingress", "host_ingress"])
def test_no_frame_is_altered(table: PortTable, program: str) -> None:
    table.configs[PORT]["drop_at_bytes"] = 10_000

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(ANY_FRAME)
    def check(frame: bytes) -> None:
        run = table.bpf.test_run(program, frame)
        assert run.frame == frame
        assert run.verdict in (TC_ACT_OK, TC_ACT_SHOT)

    check()
    counted = table.ports["enqueued_packets"] + table.ports["dropped_packets"].sum(axis=1)
    assert (counted + table.ports["departed_packets"]).sum() >= 300
