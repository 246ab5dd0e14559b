"""Ultra Ethernet frames of transports' packets: encoding to send, decoding what arrived.

Queue pair row q is a packet delivery context with id q at its target, which data is sent to, and
``queue pairs + q`` at its initiator, which answers are sent to; so the switches count both
directions apart. The entropy value is the UDP source port. Packets by kind: DATA is a RUD_CC_REQ
with the sender's credit target, SACK an ACK_CC, TRIM_NACK a NACK, CREDIT a control packet with
the credit granted in all, PROBE a control packet that an ACK with the probe flag answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet, Raw

from fabric_emu.nic.formats import TAIL, Bytes, Ends, FrameBatch, Frames, Ints, Places
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
)

MOST_QUEUE_PAIRS = 1 << 15
"""Ids of packet delivery contexts have 16 bits, and a queue pair takes two."""

MOST_PACKETS = 1 << 23
"""Of a queue pair: credit is counted in 24 bits, and packets sent again need credit again."""

_FARTHEST = 1 << 15
_CONTROL = (Kind.SACK, Kind.TRIM_NACK, Kind.CREDIT, Kind.PROBE, Kind.PROBE_ACK)


class UetFrames:
    """Frames of Ultra Ethernet RUD queue pairs of one address family; see ``FrameFormat``.

    Args:
        space: all packets of the run.
        rows: (local queue pairs,) which of the run's queue pairs this worker touches.
        ends: their addresses; the destination port is set here.
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
            kind: self._frames(
                kind, _layers(kind), rows, there if kind == Kind.PROBE else back
            )
            for kind in _CONTROL
        }

    def _frames(self, kind: Kind, layers: list[Packet], rows: Ints, heads: Bytes) -> PatchedFrames:
        frames = replicate(bytes(self._example.frame(*layers)), heads)
        target, initiator = rows, rows + self._space.queue_pairs
        forth = kind in (Kind.DATA, Kind.PROBE)
        source, destination = (initiator, target) if forth else (target, initiator)
        column(frames, self._udp + SOURCE_PDC, ">u2")[:] = source
        column(frames, self._udp + DESTINATION_PDC, ">u2")[:] = destination
        kept = self.header_length if kind == Kind.DATA else None
        flags = int(column(frames[:1], self._udp + PROLOGUE, ">u2")[0])
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
            if kind == Kind.DATA:
                self._encode_data(some, slice(start, end), local, now_ns, batch)
            else:
                values = self._values(Kind(kind), some)
                batch.put(slice(start, end), self._control[Kind(kind)].build(local, **values))
        return batch.frames()
