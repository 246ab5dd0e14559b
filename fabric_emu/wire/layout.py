"""Where every field of a RoCEv2 frame lies: opcodes, header lengths and byte offsets.

The only module that knows offsets. It imports no scapy, so that the data path can use it freely.

Source: InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17 (RoCEv2);
Linux ``include/rdma/ib_pack.h`` and ``drivers/infiniband/sw/rxe/rxe_hdr.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

ROCEV2_PORT = 4791
ICRC_LENGTH = 4
TIMESTAMP_LENGTH = 8
PAYLOAD_BYTE = b"\xa5"
"""What payloads are filled with, behind the send time."""

# Ethernet and IP, from the start of the frame.
ETHERTYPE = 12
IP = 14
IPV4_TOS = IP + 1
IPV4_LENGTH = IP + 2
IPV4_FRAGMENT = IP + 6
IPV4_TTL = IP + 8
IPV4_PROTOCOL = IP + 9
IPV4_CHECKSUM = IP + 10
IPV6_LENGTH = IP + 4
IPV6_NEXT_HEADER = IP + 6
IPV6_HOP_LIMIT = IP + 7

# UDP and BTH, from the start of the UDP header (as switches with user-defined fields count).
SOURCE_PORT = 0
DESTINATION_PORT = 2
UDP_LENGTH = 4
UDP_CHECKSUM = 6
OPCODE = 8
PAD_COUNT = 9
PATH_STAMP = 12
DESTINATION_QP = 13
ACK_REQUEST = 16
PSN = 17
EXTENSION = 20

# BTH byte 4 is outside the ICRC: FECN, BECN, and six reserved bits that carry the path stamp.
FECN_BIT = 0x80
BECN_BIT = 0x40
PATH_STAMP_MASK = 0x3F
ACK_REQUEST_BIT = 0x80


class Opcode(IntEnum):
    """BTH opcodes under their IBTA names; the top three bits are the transport service."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05
    RC_RDMA_WRITE_FIRST = 0x06
    RC_RDMA_WRITE_MIDDLE = 0x07
    RC_RDMA_WRITE_LAST = 0x08
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RC_RDMA_WRITE_ONLY = 0x0A
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RC_RDMA_READ_REQUEST = 0x0C
    RC_RDMA_READ_RESPONSE_FIRST = 0x0D
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RC_RDMA_READ_RESPONSE_LAST = 0x0F
    RC_RDMA_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_WITH_INVALIDATE = 0x16
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17
    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25
    UC_RDMA_WRITE_FIRST = 0x26
    UC_RDMA_WRITE_MIDDLE = 0x27
    UC_RDMA_WRITE_LAST = 0x28
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29
    UC_RDMA_WRITE_ONLY = 0x2A
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2B
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65
    CNP = 0x81


class Syndrome(IntEnum):
    """AETH syndromes; an ACK's low five bits are credits, 31 meaning no limit."""

    ACK = 0x1F
    RNR_NAK = 0x20
    NAK_PSN_SEQUENCE_ERROR = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS_ERROR = 0x62
    NAK_REMOTE_OPERATIONAL_ERROR = 0x63


HEADER_LENGTH = {
    "RETH": 16,
    "ImmDt": 4,
    "AETH": 4,
    "IETH": 4,
    "DETH": 8,
    "AtomicETH": 28,
    "AtomicAckETH": 8,
    "CNPPadding": 16,
}

_CONNECTED: dict[int, tuple[str, ...]] = {
    Opcode.RC_SEND_LAST_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_SEND_ONLY_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_RDMA_WRITE_FIRST: ("RETH",),
    Opcode.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE: ("RETH", "ImmDt"),
    Opcode.RC_RDMA_WRITE_ONLY: ("RETH",),
}
_UC = 0x20

EXTENSION_HEADERS: dict[int, tuple[str, ...]] = {
    Opcode.RC_RDMA_READ_REQUEST: ("RETH",),
    Opcode.RC_RDMA_READ_RESPONSE_FIRST: ("AETH",),
    Opcode.RC_RDMA_READ_RESPONSE_LAST: ("AETH",),
    Opcode.RC_RDMA_READ_RESPONSE_ONLY: ("AETH",),
    Opcode.RC_ACKNOWLEDGE: ("AETH",),
    Opcode.RC_ATOMIC_ACKNOWLEDGE: ("AETH", "AtomicAckETH"),
    Opcode.RC_COMPARE_SWAP: ("AtomicETH",),
    Opcode.RC_FETCH_ADD: ("AtomicETH",),
    Opcode.RC_SEND_LAST_WITH_INVALIDATE: ("IETH",),
    Opcode.RC_SEND_ONLY_WITH_INVALIDATE: ("IETH",),
    Opcode.UD_SEND_ONLY: ("DETH",),
    Opcode.UD_SEND_ONLY_WITH_IMMEDIATE: ("DETH", "ImmDt"),
    Opcode.CNP: ("CNPPadding",),
    **{opcode + _UC: headers for opcode, headers in _CONNECTED.items()},
    **_CONNECTED,
}
"""Headers between the BTH and the payload, by opcode; opcodes not listed have none."""

# Multipath Reliable Connection: the writes of the manufacturer's opcode range, every one of them
# with a RETH, so that the receiver can place packets in any order.
# Source: Open Compute Project, OCP-Multipath-Reliable-Connection, README.
EXTENSION_HEADERS |= {
    0xC6: ("RETH",),
    0xC7: ("RETH",),
    0xC8: ("RETH",),
    0xC9: ("RETH", "ImmDt"),
    0xCA: ("RETH",),
    0xCB: ("RETH", "ImmDt"),
}

MRC_PROBE = 0xDE
"""BTH opcode of an MRC probe, which carries no data."""

EXTENSION_LENGTH: npt.NDArray[np.uint8] = np.array(
    [
        sum(HEADER_LENGTH[header] for header in EXTENSION_HEADERS.get(opcode, ()))
        for opcode in range(256)
    ],
    dtype=np.uint8,
)
"""(256,) bytes between the end of the BTH and the payload, by opcode."""


@dataclass(frozen=True)
class IpLayout:
    """Offsets of one IP version, from the start of the Ethernet frame.

    Attributes:
        udp: where the UDP header starts.
        masked: (offset, bits) of each byte the ICRC takes as if those bits were ones.
    """

    version: int
    ethertype: int
    udp: int
    masked: tuple[tuple[int, int], ...]


def _masked_after_ip(udp: int) -> tuple[tuple[int, int], ...]:
    return ((udp + UDP_CHECKSUM, 0xFF), (udp + UDP_CHECKSUM + 1, 0xFF), (udp + PATH_STAMP, 0xFF))


IPV4 = IpLayout(
    version=4,
    ethertype=0x0800,
    udp=IP + 20,
    masked=(
        (IPV4_TOS, 0xFF),
        (IPV4_TTL, 0xFF),
        (IPV4_CHECKSUM, 0xFF),
        (IPV4_CHECKSUM + 1, 0xFF),
        *_masked_after_ip(IP + 20),
    ),
)
# Traffic class and flow label fill the 28 bits after the version.
IPV6 = IpLayout(
    version=6,
    ethertype=0x86DD,
    udp=IP + 40,
    masked=(
        (IP, 0x0F),
        (IP + 1, 0xFF),
        (IP + 2, 0xFF),
        (IP + 3, 0xFF),
        (IPV6_HOP_LIMIT, 0xFF),
        *_masked_after_ip(IP + 40),
    ),
)


def ip_layout(frame: bytes | bytearray | memoryview) -> IpLayout:
    """Return the offsets that hold for one RoCEv2 frame.

    Raises:
        ValueError: not Ethernet with a bare IPv4 or IPv6 header, UDP port 4791 and a whole BTH.
    """
    for layout in (IPV4, IPV6):
        udp = layout.udp
        if int.from_bytes(frame[ETHERTYPE : ETHERTYPE + 2], "big") != layout.ethertype:
            continue
        if len(frame) < udp + EXTENSION + ICRC_LENGTH:
            raise ValueError(f"{len(frame)} bytes are too few for a RoCEv2 frame")
        bare = frame[IP] == 0x45 if layout is IPV4 else frame[IP] >> 4 == 6
        protocol = frame[IPV4_PROTOCOL if layout is IPV4 else IPV6_NEXT_HEADER]
        port = int.from_bytes(frame[udp + DESTINATION_PORT : udp + UDP_LENGTH], "big")
        if bare and protocol == 17 and port == ROCEV2_PORT:
            return layout
    raise ValueError("not a RoCEv2 frame: Ethernet, bare IPv4 or IPv6, UDP to port 4791 expected")
