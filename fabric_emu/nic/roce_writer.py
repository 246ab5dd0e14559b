"""From transports' packets to RoCEv2 frames, one after the other."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.nic.formats import TAIL, Frames, PartOf, part_starts, place_of
from fabric_emu.nic.roce_reader import MRC_DATA, RC_DATA
from fabric_emu.nic.templates import Templates, start
from fabric_emu.nic.transport.packets import Kind, Packets, Rows
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.layout import (
    EXTENSION,
    HEADER_LENGTH,
    OPCODE,
    PAD_COUNT,
    PSN,
    SOURCE_PORT,
    TIMESTAMP_LENGTH,
    IpLayout,
)
from fabric_emu.wire.mrc_layout import NackCode
from fabric_emu.wire.patch import put, set_length
from fabric_emu.wire.row_icrc import IcrcTable, fillings, icrc_masks, row_icrc

_RETH = HEADER_LENGTH["RETH"]
_TRIMMED, _TRIMMED_LAST_HOP = int(NackCode.TRIMMED), int(NackCode.TRIMMED_LAST_HOP)


class RoceWriter:
    """Writes packets of RC or MRC queue pairs.

    Args:
        space: all packets of the run.
        templates: of every kind that will be written; payloads are filling throughout.
        ip: version of all frames.
        mrc: MRC's opcodes and headers instead of RC's.
        fill: what payloads hold.
    """

    def __init__(
        self, space: PacketSpace, templates: Templates, ip: IpLayout, mrc: bool, fill: int
    ) -> None:
        self._space, self._templates = space, templates
        self._starts = part_starts(space)
        self._udp, self._mrc = ip.udp, mrc
        self._opcodes = np.array(MRC_DATA if mrc else RC_DATA, np.int64)
        length = templates.rows.shape[1]
        self._masks = icrc_masks(ip, length)
        behind = int(templates.lengths[Kind.DATA]) - TAIL - length
        self._fillings = fillings(behind // 4, fill)

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
            templates.rows,
            templates.first,
            templates.lengths,
            templates.pair,
            templates.planes,
            self._udp,
            self._mrc,
            self._opcodes,
            self._masks,
            self._fillings,
            frames.rows,
            frames.lengths,
            frames.tails,
        )
        return frames


@compiled
def _put_payload(row: Bytes, udp: int, at: int, size: int, full: bool, now_ns: int) -> int:
    """Write what a payload's size changes, and the send time; return the frame's length."""
    pad = -size % 4
    row[udp + PAD_COUNT] |= pad << 4
    length = at + size + pad + TAIL
    if not full:
        set_length(row, udp, length)
    if size >= TIMESTAMP_LENGTH:
        put(row, at, TIMESTAMP_LENGTH, now_ns)
    return length


@compiled
def _write(
    packets: Rows,
    now_ns: int,
    first: Ints,
    sizes: Ints,
    full: int,
    part_of: PartOf,
    starts: Ints,
    templates: ByteTable,
    first_template: Ints,
    kind_lengths: Ints,
    pair_template: Ints,
    planes: int,
    udp: int,
    mrc: bool,
    opcodes: Ints,
    masks: Bytes,
    fillings: IcrcTable,
    rows: ByteTable,
    lengths: Ints,
    tails: ByteTable,
) -> None:
    at = udp + EXTENSION
    for number in range(len(packets)):
        packet, row = packets[number], rows[number]
        kind, pair, psn = packet.kind, packet.queue_pair, packet.psn
        start(row, kind, pair, packet.entropy, templates, first_template, pair_template, planes)
        length = kind_lengths[kind]
        if kind == Kind.DATA:
            flat = first[pair] + psn
            size = sizes[flat]
            row[udp + OPCODE] = opcodes[place_of(flat, part_of, starts)[2]]
            body = at
            if mrc:
                put(row, at, 8, psn * full)
                put(row, at + 12, 4, size)
                body += _RETH
            length = _put_payload(row, udp, body, size, size == full, now_ns)
        elif kind == Kind.SACK:
            put(row, at, 4, packet.echo_psn)
            put(row, at + 4, 2, packet.echo)
            put(row, at + 6, 2, packet.echo_marked << 15)
            put(row, at + 8, 8, packet.bitmap)
            put(row, at + 16, 8, packet.value)
        elif kind == Kind.TRIM_NACK:
            psn = packet.echo_psn
            put(row, at, 2, packet.echo)
            row[at + 2] = _TRIMMED_LAST_HOP if packet.last_hop else _TRIMMED
        elif kind == Kind.PROBE or kind == Kind.PROBE_ACK:
            put(row, at, 2, packet.echo)
        put(row, udp + SOURCE_PORT, 2, packet.entropy)
        put(row, udp + PSN, 3, psn)
        lengths[number] = length
        icrc = row_icrc(row, length, masks, fillings)
        for byte in range(TAIL):
            tails[number, byte] = icrc >> 8 * byte & 0xFF
