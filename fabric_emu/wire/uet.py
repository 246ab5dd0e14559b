"""Ultra Ethernet packets as scapy layers: the packet delivery sublayer and short semantic headers.

Importing this module binds the layers to UDP port 4793; the type in a packet's first five bits
decides which one a dissected packet shows.

Source: Ultra Ethernet Specification 1.0, section 3.5.10; Wireshark
``epan/dissectors/packet-uet.c``.
Fidelity: a packet delivery context needs no set-up (no SYN): both ends know its ids. No CRC of
Ultra Ethernet's covers a frame here, so a switch may write its path stamp into any byte; it takes
one that these packets leave at zero. The semantic sublayer is cut down to two stubs, under next
header values that the specification leaves free: 12 bytes instead of 44 in requests, 4 instead
of 12 in answers. The stub of answers names the entropy value of the packet answered, which a
real sender remembers by packet number. Payloads are padded to four bytes, as RoCEv2's are.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    IntField,
    ShortField,
    SignedShortField,
    ThreeBytesField,
    XLongField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw, bind_bottom_up, bind_top_down

from fabric_emu.wire.uet_layout import UET_PORT, ControlType, NackCode, NextHeader, PdsType

__all__ = [
    "PdsAck",
    "PdsAckCc",
    "PdsControl",
    "PdsNack",
    "PdsPacket",
    "RudCcRequest",
    "RudRequest",
    "SesRequest",
    "SesResponse",
]

_TYPES = {int(each): each.name for each in PdsType}
_NEXT = {int(each): each.name for each in NextHeader}
_CONTROL = {int(each): each.name for each in ControlType}
_NACK = {int(each): each.name for each in NackCode}
_WRITE = 1


class PdsPacket(Packet):
    """A packet of the packet delivery sublayer whose type has no layer of its own here."""

    name = "PDS"
    fields_desc = [  # noqa: RUF012
        BitEnumField("type", 0, 5, _TYPES),
        BitEnumField("next_header", int(NextHeader.NONE), 4, _NEXT),
        BitField("flags", 0, 7),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """Return the layer for the type that the bytes begin with."""
        return _LAYERS.get(_pkt[0] >> 3, PdsPacket) if _pkt else cls

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the semantic header that the next header field names."""
        following = getattr(self, "next_header", NextHeader.NONE)
        if following == NextHeader.STUB_REQUEST:
            return SesRequest
        return SesResponse if following == NextHeader.STUB_RESPONSE else Raw


def _request_fields(pds_type: PdsType) -> list[Any]:
    return [
        BitEnumField("type", int(pds_type), 5, _TYPES),
        BitEnumField("next_header", int(NextHeader.STUB_REQUEST), 4, _NEXT),
        BitField("reserved", 0, 2),
        BitField("retransmitted", 0, 1),
        BitField("ack_request", 1, 1),
        BitField("syn", 0, 1),
        BitField("reserved2", 0, 2),
        SignedShortField("clear_psn_offset", 0),
        IntField("psn", 0),
        ShortField("source_pdc", 0),
        ShortField("destination_pdc", 0),
    ]


class RudRequest(PdsPacket):
    """Reliable unordered delivery: a data packet."""

    name = "PDS RUD_REQ"
    fields_desc = _request_fields(PdsType.RUD_REQ)


class RudCcRequest(PdsPacket):
    """A data packet with congestion control state: the credit its sender needs in all.

    Fidelity: credit is in packets, not in units of 256 bytes.
    """

    name = "PDS RUD_CC_REQ"
    fields_desc = [  # noqa: RUF012
        *_request_fields(PdsType.RUD_CC_REQ),
        ByteField("congestion_context", 0),
        ThreeBytesField("credit_target", 0),
    ]


def _ack_fields(pds_type: PdsType) -> list[Any]:
    return [
        BitEnumField("type", int(pds_type), 5, _TYPES),
        BitEnumField("next_header", int(NextHeader.STUB_RESPONSE), 4, _NEXT),
        BitField("reserved", 0, 1),
        BitField("marked", 0, 1),
        BitField("retransmitted", 0, 1),
        BitField("probe", 0, 1),
        BitField("request", 0, 2),
        BitField("reserved2", 0, 1),
        SignedShortField("ack_psn_offset", 0),
        IntField("cumulative_psn", 0),
        ShortField("source_pdc", 0),
        ShortField("destination_pdc", 0),
    ]


class PdsAck(PdsPacket):
    """Acknowledgement; with ``probe`` set its offset repeats the probe's opaque value."""

    name = "PDS ACK"
    fields_desc = _ack_fields(PdsType.ACK)


class PdsAckCc(PdsPacket):
    """Selective acknowledgement with congestion control state.

    Fields: ``cumulative_psn`` and everything before it has arrived; the packet answered is
    ``ack_psn_offset`` further, bit 0 of the bitmap ``sack_psn_offset`` further.

    Fidelity: the state is NSCC's, left at zero but for the mark of the packet answered; credit
    goes in control packets.
    """

    name = "PDS ACK_CC"
    fields_desc = [  # noqa: RUF012
        *_ack_fields(PdsType.ACK_CC),
        BitField("cc_type", 0, 4),
        BitField("cc_flags", 0, 4),
        ByteField("maximum_psn_range", 0),
        SignedShortField("sack_psn_offset", 0),
        XLongField("sack_bitmap", 0),
        ShortField("service_time", 0),
        BitField("restore_window", 0, 1),
        BitField("window_penalty", 0, 7),
        ThreeBytesField("received", 0),
        ShortField("out_of_order", 0),
    ]


class PdsNack(PdsPacket):
    """Negative acknowledgement of one packet."""

    name = "PDS NACK"
    fields_desc = [  # noqa: RUF012
        BitEnumField("type", int(PdsType.NACK), 5, _TYPES),
        BitEnumField("next_header", int(NextHeader.STUB_RESPONSE), 4, _NEXT),
        BitField("reserved", 0, 1),
        BitField("marked", 0, 1),
        BitField("retransmitted", 0, 1),
        BitField("nack_type", 0, 1),
        BitField("reserved2", 0, 3),
        ByteEnumField("code", int(NackCode.TRIMMED), _NACK),
        ByteField("vendor_code", 0),
        IntField("psn", 0),
        ShortField("source_pdc", 0),
        ShortField("destination_pdc", 0),
        IntField("code_payload", 0),
    ]


class PdsControl(PdsPacket):
    """Control packet: among others a receiver's credit (its payload), a probe of a path."""

    name = "PDS control"
    fields_desc = [  # noqa: RUF012
        BitEnumField("type", int(PdsType.CONTROL), 5, _TYPES),
        BitEnumField("control_type", int(ControlType.CREDIT), 4, _CONTROL),
        BitField("reserved", 0, 1),
        BitField("ordered", 0, 1),
        BitField("retransmitted", 0, 1),
        BitField("ack_request", 0, 1),
        BitField("syn", 0, 1),
        BitField("reserved2", 0, 2),
        ShortField("probe_opaque", 0),
        IntField("psn", 0),
        ShortField("source_pdc", 0),
        ShortField("destination_pdc", 0),
        IntField("control_payload", 0),
    ]


class SesRequest(Packet):
    """Semantic header of a data packet, shortened.

    Fields: ``message`` is the message's number modulo 2^16; ``offset`` and ``length`` tell which
    bytes of what its context carries of the message are in the packet, padding not counted.
    """

    name = "SES request stub"
    fields_desc = [  # noqa: RUF012
        BitField("reserved", 0, 2),
        BitField("opcode", _WRITE, 6),
        BitField("version", 0, 2),
        BitField("reserved2", 0, 4),
        BitField("end_of_message", 0, 1),
        BitField("start_of_message", 0, 1),
        ShortField("message", 0),
        IntField("offset", 0),
        IntField("length", 0),
    ]


class SesResponse(Packet):
    """Semantic header of an answer, shortened; ``entropy`` is that of the packet answered."""

    name = "SES response stub"
    fields_desc = [  # noqa: RUF012
        ByteField("opcode", 0),
        ByteField("return_code", 0),
        ShortField("entropy", 0),
    ]


_LAYERS: dict[int, type[Packet]] = {
    PdsType.RUD_REQ: RudRequest,
    PdsType.RUD_CC_REQ: RudCcRequest,
    PdsType.ACK: PdsAck,
    PdsType.ACK_CC: PdsAckCc,
    PdsType.NACK: PdsNack,
    PdsType.CONTROL: PdsControl,
}

bind_bottom_up(UDP, PdsPacket, dport=UET_PORT)
for _layer in _LAYERS.values():
    bind_top_down(UDP, _layer, dport=UET_PORT)
