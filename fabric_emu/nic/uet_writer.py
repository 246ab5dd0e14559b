"""From transports' packets to Ultra Ethernet frames, one after the other."""

from __future__ import annotations

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.nic.formats import TAIL, Frames, PartOf, part_starts, place_of
from fabric_emu.nic.templates import Templates, start
from fabric_emu.nic.transport.packets import Kind, Packets, Rows
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.layout import SOURCE_PORT, TIMESTAMP_LENGTH
from fabric_emu.wire.patch import put, set_length
from fabric_emu.wire.uet_layout import (
    ACK_REQUEST,
    ANSWER,
    ANSWER_ENTROPY,
    CREDIT_MASK,
    CREDIT_TARGET,
    MARKED,
    PROLOGUE,
    PSN,
    PSN_OFFSET,
    REQUEST,
    RETRANSMITTED,
    SACK_BITMAP,
    SEND_TIME,
    NackCode,
    NextHeader,
    PdsType,
    prologue,
)

_FARTHEST = 1 << 15
"""Packets from the cumulative number, as far as 16 signed bits reach."""

_WRITE = 1 << 24
_REQUEST_PROLOGUE = prologue(PdsType.RUD_CC_REQ, NextHeader.STUB_REQUEST, ACK_REQUEST)
_SACK_PROLOGUE = prologue(PdsType.ACK_CC, NextHeader.STUB_RESPONSE)
_NACK_PROLOGUE = prologue(PdsType.NACK, NextHeader.STUB_RESPONSE)
_TRIMMED, _TRIMMED_LAST_HOP = int(NackCode.TRIMMED), int(NackCode.TRIMMED_LAST_HOP)
_SACK_ENTROPY = ANSWER["ACK_CC"] + ANSWER_ENTROPY
_NACK_ENTROPY = ANSWER["NACK"] + ANSWER_ENTROPY
_ACK_ENTROPY = ANSWER["ACK"] + ANSWER_ENTROPY


class UetWriter:
    """Writes packets of Ultra Ethernet RUD queue pairs.

    Args:
        space: all packets of the run.
        templates: of every kind that will be written.
        udp: where the UDP header starts.
        fill: what payloads hold.
    """

    def __init__(self, space: PacketSpace, templates: Templates, udp: int, fill: int) -> None:
        self._space, self._templates = space, templates
        self._starts = part_starts(space)
        self._udp, self._fill = udp, fill

    def write(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""
        space, templates = self._space, self._templates
        frames = Frames.room(len(packets), templates.rows.shape[1])
        _write(
            packets.rows,
            now_ns,
            space.first,
            space.size_bytes,
            space.payload,
            space.part_of,
            self._starts,
            space.part_message,
            templates.rows,
            templates.first,
            templates.lengths,
            templates.pair,
            templates.planes,
            self._udp,
            self._fill,
            frames.rows,
            frames.lengths,
            frames.tails,
        )
        return frames


@compiled
def _put_request(
    udp: Bytes, place: int, message: int, offset: int, credit: int, again: bool, now_ns: int
) -> None:
    put(udp, PROLOGUE, 2, _REQUEST_PROLOGUE | (RETRANSMITTED if again else 0))
    put(udp, CREDIT_TARGET, 4, credit & CREDIT_MASK)
    put(udp, REQUEST, 4, _WRITE | place << 16 | message & 0xFFFF)
    put(udp, REQUEST + 4, 4, offset)
    put(udp, SEND_TIME, TIMESTAMP_LENGTH, now_ns)


@compiled
def _write(
    packets: Rows,
    now_ns: int,
    first: Ints,
    sizes: Ints,
    full: int,
    part_of: PartOf,
    starts: Ints,
    messages: Ints,
    templates: ByteTable,
    first_template: Ints,
    kind_lengths: Ints,
    pair_template: Ints,
    planes: int,
    at: int,
    fill: int,
    rows: ByteTable,
    lengths: Ints,
    tails: ByteTable,
) -> None:
    for number in range(len(packets)):
        packet, row = packets[number], rows[number]
        kind, pair, psn = packet.kind, packet.queue_pair, packet.psn
        start(row, kind, pair, packet.entropy, templates, first_template, pair_template, planes)
        length, udp = kind_lengths[kind], row[at:]
        mark = MARKED if packet.echo_marked else 0
        put(udp, SOURCE_PORT, 2, packet.entropy)
        if kind == Kind.DATA:
            flat = first[pair] + psn
            part, rank, place = place_of(flat, part_of, starts)
            _put_request(
                udp,
                place,
                messages[part],
                rank * full,
                packet.value,
                packet.retransmission,
                now_ns,
            )
            size = sizes[flat]
            if size != full:
                put(udp, REQUEST + 8, 4, size)
                length = at + SEND_TIME + size + -size % 4
                set_length(row, at, length)
        elif kind == Kind.SACK:
            psn -= 1
            offset = packet.echo_psn - psn
            if not -_FARTHEST <= offset < _FARTHEST:
                offset = 0  # answers the cumulative number, which has arrived too
            put(udp, PROLOGUE, 2, _SACK_PROLOGUE | mark)
            put(udp, PSN_OFFSET, 2, offset)
            put(udp, SACK_BITMAP, 8, packet.bitmap)
            put(udp, _SACK_ENTROPY, 2, packet.echo)
        elif kind == Kind.TRIM_NACK:
            psn = packet.echo_psn
            put(udp, PROLOGUE, 2, _NACK_PROLOGUE | mark)
            udp[PSN_OFFSET] = _TRIMMED_LAST_HOP if packet.last_hop else _TRIMMED
            put(udp, _NACK_ENTROPY, 2, packet.echo)
        elif kind == Kind.CREDIT:
            psn = 0
            put(udp, CREDIT_TARGET, 4, packet.value & CREDIT_MASK)
        elif kind == Kind.PROBE or kind == Kind.PROBE_ACK:
            put(udp, PSN_OFFSET, 2, packet.echo)
            if kind == Kind.PROBE_ACK:
                put(udp, _ACK_ENTROPY, 2, packet.echo)
        put(udp, PSN, 4, psn)
        lengths[number] = length
        if length <= len(row):
            tails[number] = row[length - TAIL : length]
        else:
            tails[number] = fill
