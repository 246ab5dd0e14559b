"""Ultra Ethernet frames of transports' packets: encoding to send, decoding what arrived.

Queue pair row q is a packet delivery context with id ``QPN_BASE + q`` at its target, which data
is sent to, and ``QPN_BASE + queue pairs + q`` at its initiator, which answers are sent to; so the
switches count both directions apart. The entropy value is the UDP source port. Packets by kind:
DATA is a RUD_CC_REQ with the sender's credit target, SACK an ACK_CC, TRIM_NACK a NACK, CREDIT a
control packet with the credit granted in all, PROBE a control packet that an ACK with the probe
flag answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet, Raw

from fabric_emu.model.queue_pair import QPN_BASE, plane_of
from fabric_emu.nic.formats import TAIL, Bytes, Ends, FrameBatch, Frames, Ints, Lengths, Places
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.uet_reader import UetReader
from fabric_emu.wire.layout import IPV4, IPV6, SOURCE_PORT, TIMESTAMP_LENGTH
from fabric_emu.wire.patch import Field, PatchedFrames, column
from fabric_emu.wire.replicate import heads_of, replicate, set_lengths
from fabric_emu.wire.uet import (
    PdsAck,
    PdsAckCc,
    PdsControl,
    PdsNack,
    RudCcRequest,
    SesRequest,
    SesResponse,
)
from fabric_emu.wire.uet_decode import UetColumns, decode_uet
from fabric_emu.wire.uet_layout import (
    ACK_REQUEST,
    ANSWER,
    ANSWER_ENTROPY,
    CREDIT_MASK,
    CREDIT_TARGET,
    DESTINATION_PDC,
    MARKED,
    PROLOGUE,
    PSN,
    PSN_OFFSET,
    REQUEST,
    RETRANSMITTED,
    SACK_BITMAP,
    SEND_TIME,
    SOURCE_PDC,
    UET_PORT,
    ControlType,
    NackCode,
    NextHeader,
    PdsType,
    prologue,
)

MOST_QUEUE_PAIRS = (1 << 15) - QPN_BASE
"""Ids of packet delivery contexts have 16 bits, and a queue pair takes two."""

MOST_PACKETS = 1 << 23
"""Of a queue pair: credit is counted in 24 bits, and packets sent again need credit again."""

_FARTHEST = 1 << 15

# From the UDP header.
_FIELDS = {
    "source_port": (SOURCE_PORT, ">u2"),
    "prologue": (PROLOGUE, ">u2"),
    "offset": (PSN_OFFSET, ">u2"),
    "psn": (PSN, ">u4"),
    "credit": (CREDIT_TARGET, ">u4"),
    "bitmap": (SACK_BITMAP, ">u8"),
    "message": (REQUEST, ">u4"),
    "message_offset": (REQUEST + 4, ">u4"),
    "message_length": (REQUEST + 8, ">u4"),
    "send_ns": (SEND_TIME, ">u8"),
    "sack_entropy": (ANSWER["ACK_CC"] + ANSWER_ENTROPY, ">u2"),
    "nack_entropy": (ANSWER["NACK"] + ANSWER_ENTROPY, ">u2"),
    "ack_entropy": (ANSWER["ACK"] + ANSWER_ENTROPY, ">u2"),
}


class UetFrames:
    """Frames of Ultra Ethernet RUD queue pairs of one address family; see ``FrameFormat``.

    Args:
        space: all packets of the run.
        rows: (local queue pairs,) which of the run's queue pairs this worker touches.
        ends: their addresses, of each queue pair one for every plane; the destination port is set
            here.
        payload_byte: what payloads are filled with, padding too.

    Raises:
        ValueError: more queue pairs, or packets in one, than the headers can number, or payloads
            of fewer than 12 bytes.
    """

    def __init__(
        self, space: PacketSpace, rows: Ints, ends: list[Ends], payload_byte: bytes
    ) -> None:
        if space.queue_pairs > MOST_QUEUE_PAIRS:
            raise ValueError(f"{space.queue_pairs} queue pairs; {MOST_QUEUE_PAIRS} are the most")
        if np.diff(space.first).max() > MOST_PACKETS:
            raise ValueError(f"a queue pair may carry {MOST_PACKETS} packets at most")
        if space.payload < TIMESTAMP_LENGTH + TAIL:
            raise ValueError(f"payloads of {space.payload} bytes are too short")
        self._space, self._places = space, Places(space)
        self._reader = UetReader(space)
        self._local = np.full(space.queue_pairs, -1, np.int64)
        self._local[rows] = np.arange(len(rows))
        self._planes = len(ends) // len(rows)
        rows = np.repeat(rows, self._planes)
        self._udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
        self._fill = payload_byte[0]
        self.header_length = self._udp + SEND_TIME + TIMESTAMP_LENGTH
        self.length = self._udp + SEND_TIME + _padded(space.payload)
        self.payload = np.full(self.length - self.header_length - TAIL, self._fill, np.uint8)

        self._example = replace(ends[0].there, destination_port=UET_PORT)
        there = heads_of([replace(end.there, destination_port=UET_PORT) for end in ends])
        back = heads_of([replace(end.back, destination_port=UET_PORT) for end in ends])
        size = _padded(space.payload)
        data = [
            RudCcRequest(),
            SesRequest(length=space.payload),
            Raw(bytes([self._fill]) * size),
        ]
        self._data = self._frames(Kind.DATA, data, rows, there)
        self._control = {
            kind: self._frames(kind, layers, rows, there if kind == Kind.PROBE else back)
            for kind, layers in _control_layers().items()
        }

    def _frames(self, kind: Kind, layers: list[Packet], rows: Ints, heads: Bytes) -> PatchedFrames:
        frames = replicate(bytes(self._example.frame(*layers)), heads)
        target, initiator = rows + QPN_BASE, rows + QPN_BASE + self._space.queue_pairs
        forth = kind in (Kind.DATA, Kind.PROBE)
        source, destination = (initiator, target) if forth else (target, initiator)
        column(frames, self._udp + SOURCE_PDC, ">u2")[:] = source
        column(frames, self._udp + DESTINATION_PDC, ">u2")[:] = destination
        kept = self.header_length if kind == Kind.DATA else None
        fields = {
            name: Field(self._udp + offset, dtype) for name, (offset, dtype) in _FIELDS.items()
        }
        return PatchedFrames(frames, fields, has_icrc=False, kept=kept)

    def encode(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""
        batch = FrameBatch(packets, self.header_length, self._fill)
        for kind, start, end in batch.groups:
            some = Packets(batch.packets.rows[start:end])
            local = self._local[some.queue_pair]
            if self._planes > 1:
                local = local * self._planes + plane_of(some.entropy, self._planes)
            if kind == Kind.DATA:
                self._encode_data(some, start, local, now_ns, batch)
            else:
                values = _VALUES[kind](some)
                batch.put(slice(start, end), self._control[Kind(kind)].build(local, **values))
        return batch.frames()

    def _encode_data(
        self, data: Packets, start: int, local: Ints, now_ns: int, batch: FrameBatch
    ) -> None:
        space = self._space
        flat = space.flat(data.queue_pair, data.psn)
        part, rank, place = self._places.of(flat)
        message = space.part_message[part] & 0xFFFF
        built = self._data.build(
            local,
            source_port=data.entropy,
            prologue=_REQUEST_PROLOGUE | data.retransmission * RETRANSMITTED,
            psn=data.psn,
            credit=data.value & CREDIT_MASK,
            message=_WRITE | place << 16 | message,
            message_offset=rank * space.payload & 0xFFFFFFFF,
            send_ns=now_ns,
        )
        where = slice(start, start + len(data))
        batch.rows[where] = built
        batch.lengths[where] = self.length
        batch.tails[where] = self._fill
        size = space.size_bytes[flat]
        short = (size != space.payload).nonzero()[0]
        if len(short):
            self._shorten(batch, start + short, size[short])

    def _shorten(self, batch: FrameBatch, where: Ints, size: NDArray[np.int32]) -> None:
        """Turn full data frames into frames with these bytes of payload."""
        lengths = self._udp + SEND_TIME + _padded(size)
        rows = batch.rows[where]
        set_lengths(rows, self._udp, lengths)
        column(rows, self._udp + REQUEST + 8, ">u4")[:] = size
        batch.rows[where] = rows
        batch.lengths[where] = lengths
        # The last four bytes of the shortest are in the row.
        within = (lengths < self.header_length + TAIL).nonzero()[0]
        at = lengths[within][:, np.newaxis] + np.arange(-TAIL, 0)
        batch.tails[where[within]] = rows[within[:, np.newaxis], at]

    def columns(self, headers: Bytes, lengths: NDArray[np.integer]) -> UetColumns:
        """Return the header fields of received frames."""
        return decode_uet(headers, lengths)

    def received(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames, without those of no queue pair of the run."""
        return self._reader.read(headers, lengths, trimmed_dscp, last_hop_dscp)


def _padded(size: Any) -> Any:
    """Round sizes up to four bytes."""
    return (size + 3) // 4 * 4


def _control_layers() -> dict[Kind, list[Packet]]:
    """Return the headers behind UDP of control packets."""
    return {
        Kind.SACK: [PdsAckCc(sack_psn_offset=1), SesResponse()],
        Kind.TRIM_NACK: [PdsNack(), SesResponse()],
        Kind.CREDIT: [PdsControl(control_type=int(ControlType.CREDIT))],
        Kind.PROBE: [PdsControl(control_type=int(ControlType.PROBE))],
        Kind.PROBE_ACK: [PdsAck(probe=1), SesResponse()],
    }


_WRITE = 1 << 24
_REQUEST_PROLOGUE = prologue(PdsType.RUD_CC_REQ, NextHeader.STUB_REQUEST, ACK_REQUEST)
_SACK_PROLOGUE = prologue(PdsType.ACK_CC, NextHeader.STUB_RESPONSE)
_NACK_PROLOGUE = prologue(PdsType.NACK, NextHeader.STUB_RESPONSE)


def _sack_values(packets: Packets) -> dict[str, Any]:
    cumulative = packets.psn - 1
    offset = packets.echo_psn - cumulative
    # A number too far away for 16 bits: answer the cumulative one, which has arrived too.
    offset[(offset < -_FARTHEST) | (offset >= _FARTHEST)] = 0
    return {
        "source_port": packets.entropy,
        "prologue": _SACK_PROLOGUE | packets.echo_marked * MARKED,
        "offset": offset & 0xFFFF,
        "psn": cumulative & 0xFFFFFFFF,
        "bitmap": packets.bitmap,
        "sack_entropy": packets.echo,
    }


def _nack_values(packets: Packets) -> dict[str, Any]:
    code = np.where(packets.last_hop, NackCode.TRIMMED_LAST_HOP, NackCode.TRIMMED)
    return {
        "source_port": packets.entropy,
        "prologue": _NACK_PROLOGUE | packets.echo_marked * MARKED,
        "offset": code << 8,
        "psn": packets.echo_psn,
        "nack_entropy": packets.echo,
    }


def _credit_values(packets: Packets) -> dict[str, Any]:
    return {"source_port": packets.entropy, "credit": packets.value & CREDIT_MASK}


def _probe_values(packets: Packets) -> dict[str, Any]:
    return {"source_port": packets.entropy, "offset": packets.echo, "psn": packets.psn}


def _probe_ack_values(packets: Packets) -> dict[str, Any]:
    return _probe_values(packets) | {"ack_entropy": packets.echo}


_VALUES = {
    int(Kind.SACK): _sack_values,
    int(Kind.TRIM_NACK): _nack_values,
    int(Kind.CREDIT): _credit_values,
    int(Kind.PROBE): _probe_values,
    int(Kind.PROBE_ACK): _probe_ack_values,
}
