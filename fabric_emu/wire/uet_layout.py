"""Where every field of an Ultra Ethernet frame lies: packet types, codes and byte offsets.

What ``layout`` is for RoCEv2. It imports no scapy, so that the data path can use it freely.

Source: Ultra Ethernet Specification 1.0, section 3.5.10 (headers of the packet delivery
sublayer); Wireshark ``epan/dissectors/packet-uet.c``.
"""

from __future__ import annotations

from enum import IntEnum

UET_PORT = 4793

# From the start of the UDP header, as in ``layout``.
PROLOGUE = 8
"""Packet type 5 bits, next header or control type 4, flags 7."""

PSN_OFFSET = 10
"""Signed 16 bits: of a request to the cleared PSN, of an ACK from the cumulative to the answered
one. A NACK has its code here, a probe and its answer an opaque value."""

PSN = 12
SOURCE_PDC = 16
DESTINATION_PDC = 18
"""16 bits; the number that switches count flows by."""

PATH_STAMP = 20
"""The byte whose low six bits, zero when sent, carry the path stamp: in requests the congestion
control context, in ACK_CC the congestion control type and flags, in NACK and control packets the
first byte of their payload, in plain ACKs the first byte of the semantic header."""

PATH_STAMP_MASK = 0x3F

CREDIT_TARGET = 20
"""32-bit word whose low 24 bits are a request's credit target or a credit packet's credit."""

CREDIT_MASK = 0xFFFFFF

SACK_OFFSET = 22
SACK_BITMAP = 24

REQUEST = 24
"""Semantic header behind a request with congestion control state; see ``uet.SesRequest``."""

SEND_TIME = 36
"""Where the payload begins, with 64 bits of nanoseconds, big-endian."""

ANSWER = {"ACK": 20, "ACK_CC": 40, "NACK": 24}
"""Semantic header behind the answers; see ``uet.SesResponse``."""

ANSWER_ENTROPY = 2
"""16 bits, from the start of the semantic header of an answer."""

ANSWER_LENGTH = 4


class PdsType(IntEnum):
    """Packet types of the packet delivery sublayer."""

    TSS = 1
    RUD_REQ = 2
    ROD_REQ = 3
    RUDI_REQ = 4
    RUDI_RESP = 5
    UUD_REQ = 6
    ACK = 7
    ACK_CC = 8
    ACK_CCX = 9
    NACK = 10
    CONTROL = 11
    NACK_CCX = 12
    RUD_CC_REQ = 13
    ROD_CC_REQ = 14


class NextHeader(IntEnum):
    """What follows a header of the packet delivery sublayer.

    The two stubs stand for the semantic headers of the specification (1 to 6), which are longer.
    """

    NONE = 0
    STUB_REQUEST = 14
    STUB_RESPONSE = 15


class ControlType(IntEnum):
    """Control packets; the type stands where other packets have the next header."""

    NO_OPERATION = 0
    ACK_REQUEST = 1
    CLEAR = 2
    CLEAR_REQUEST = 3
    CLOSE = 4
    CLOSE_REQUEST = 5
    PROBE = 6
    CREDIT = 7
    CREDIT_REQUEST = 8
    NEGOTIATION = 9


class NackCode(IntEnum):
    """Why a packet was not taken."""

    TRIMMED = 0x01
    TRIMMED_LAST_HOP = 0x02
    TRIMMED_ACK = 0x03
    NO_PDC = 0x04
    NO_CCC = 0x05
    NO_BITMAP = 0x06
    NO_PACKET_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OUT_OF_WINDOW = 0x0B
    ROD_OUT_OF_ORDER = 0x0D
    RECEIVER_INFERRED_LOSS = 0x1A


# Bits of the prologue; what a bit means depends on the packet type.
MARKED = 0x20
RETRANSMITTED = 0x10
ACK_REQUEST = 0x08
PROBE_ANSWER = 0x08
RUDI_NACK = 0x08
SYN = 0x04


def prologue(pds_type: int, next_header: int, flags: int = 0) -> int:
    """Return the first 16 bits of a packet."""
    return pds_type << 11 | next_header << 7 | flags
