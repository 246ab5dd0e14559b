"""The path stamp: six bits of the BTH that the ICRC does not cover, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from fabric_emu.switch.ports import PortConstants, PortTable

pytestmark = pytest.mark.root

PORT = 0
CONSTANTS = PortConstants(ifindex_base=1, port_count=2)  # test runs come from interface 1
STAMP_BYTE = 4  # of the BTH: FECN, BECN, and the six reserved bits that hold the path
UDP4, BTH4, BTH6 = 14 + 20, 14 + 20 + 8, 14 + 40 + 8
# Both addresses are given: else scapy asks the network for them.
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
IPV4 = ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2")
IPV4_OPTIONS = ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_NOP()] * 40)
IPV6 = ETHERNET / IPv6(src="fd00::1", dst="fd00::2")


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        yield table


def roce(network: Packet, *, udp_checksum: int | None = 0, **fields: Any) -> bytes:
    """Return a RoCEv2 frame; a `udp_checksum` of None is computed."""
    udp = UDP(sport=0xC123, dport=4791, chksum=udp_checksum)
    return bytes(network / udp / BTH(opcode=4, dqpn=0x101, psn=7, **fields) / Raw(b"A" * 64))


def with_icrc_recomputed(frame: bytes) -> bytes:
    packet = Ether(frame)
    packet[BTH].icrc = None
    return bytes(packet)


def patched(frame: bytes, offset: int, new: int) -> bytes:
    return frame[:offset] + bytes([new]) + frame[offset + 1 :]


@pytest.mark.parametrize(
    ("network", "bth"),
    [
        (IPV4, BTH4),
        (IPV4_OPTIONS, BTH4 + 40),
        (IPV6, BTH6),
    ],
    ids=["ipv4", "ipv4 options", "ipv6"],
)
@pytest.mark.parametrize("congestion", [{}, {"fecn": 1}, {"becn": 1}, {"fecn": 1, "becn": 1}])
def test_stamp_changes_the_reserved_bits_only(
    table: PortTable, network: Packet, bth: int, congestion: dict[str, int]
) -> None:
    table.configs[PORT]["path_stamp"] = 0b101101
    frame = roce(network, **congestion)
    stamped = table.bpf.test_run("port_egress", frame).frame

    byte = frame[bth + STAMP_BYTE]
    assert byte & 0x3F == 0
    assert stamped == patched(frame, bth + STAMP_BYTE, byte | 0b101101)
    assert with_icrc_recomputed(stamped) == stamped


@pytest.mark.parametrize(
    "frame",
    [
        roce(IPV4, resv6=1),
        roce(IPV4, resv6=32, fecn=1),
        roce(IPV6, resv6=63),
        roce(IPV4)[: BTH4 + 11],
        patched(roce(IPV4), UDP4 + 5, 19),
        roce(ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", frag=100)),
        bytes(IPV4 / UDP(dport=4794) / Raw(bytes(40))),
        bytes(IPV4 / TCP(dport=4791) / Raw(bytes(40))),
    ],
    ids=["stamped 1", "stamped 32", "stamped 63", "cut", "padding", "fragment", "udp", "tcp"],
)
def test_stamp_leaves_other_frames(table: PortTable, frame: bytes) -> None:
    table.configs[PORT]["path_stamp"] = 63
    assert table.bpf.test_run("port_egress", frame).frame == frame


@pytest.mark.parametrize(("path_stamp", "bits"), [(64, 0), (0xFF, 63)])
def test_stamp_has_six_bits(table: PortTable, path_stamp: int, bits: int) -> None:
    table.configs[PORT]["path_stamp"] = path_stamp
    frame = roce(IPV4, becn=1)
    stamped = table.bpf.test_run("port_egress", frame).frame
    assert stamped == patched(frame, BTH4 + STAMP_BYTE, 0x40 | bits)


@pytest.mark.parametrize("path_stamp", [1, 42, 63])
@pytest.mark.parametrize("network", [IPV4, IPV6], ids=["ipv4", "ipv6"])
def test_stamp_keeps_a_udp_checksum_valid(
    table: PortTable, network: Packet, path_stamp: int
) -> None:
    table.configs[PORT]["path_stamp"] = path_stamp
    frame = roce(network, udp_checksum=None)
    stamped = table.bpf.test_run("port_egress", frame).frame

    assert stamped != frame
    addresses = stamped[26:34] if IP in network else stamped[22:54]
    udp = stamped[UDP4:] if IP in network else stamped[54:]
    pseudo_header = addresses + bytes([0, 17]) + len(udp).to_bytes(2, "big")
    assert checksum(pseudo_header + udp) == 0  # the complement of a sum of all ones


def test_a_checksum_that_becomes_zero_is_sent_as_all_ones(table: PortTable) -> None:
    # Zero would mean "no checksum" (RFC 768). Stamp 42 takes 42 << 8 from the checksum, so that is
    # what the frame's must be; its last word, of the ICRC, makes up the difference.
    table.configs[PORT]["path_stamp"] = 42
    frame = bytearray(roce(IPV4, udp_checksum=None))
    computed = int.from_bytes(frame[UDP4 + 6 : UDP4 + 8], "big")
    last = int.from_bytes(frame[-2:], "big")
    frame[UDP4 + 6 : UDP4 + 8] = (42 << 8).to_bytes(2, "big")
    frame[-2:] = ((last + computed - (42 << 8)) % 0xFFFF).to_bytes(2, "big")

    stamped = table.bpf.test_run("port_egress", bytes(frame)).frame
    assert stamped[BTH4 + STAMP_BYTE] == 42
    assert stamped[UDP4 + 6 : UDP4 + 8] == b"\xff\xff"
