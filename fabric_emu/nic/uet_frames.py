"""Ultra Ethernet frames of transports' packets, laid out by scapy before a run.

Queue pair row q is a packet delivery context with id ``QPN_BASE + q`` at its target, which data
is sent to, and ``QPN_BASE + queue pairs + q`` at its initiator, which answers are sent to; so the
switches count both directions apart. The entropy value is the UDP source port. Packets by kind:
DATA is a RUD_CC_REQ with the sender's credit target, SACK an ACK_CC, TRIM_NACK a NACK, CREDIT a
control packet with the credit granted in all, PROBE a control packet that an ACK with the probe
flag answers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scapy.packet import Packet, Raw

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import TAIL, Ends, FrameFormat, Ints
from fabric_emu.nic.templates import Templates
from fabric_emu.nic.transport.packets import Kind
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.uet_reader import UetReader
from fabric_emu.nic.uet_writer import UetWriter
from fabric_emu.wire.layout import IPV4, IPV6, TIMESTAMP_LENGTH
from fabric_emu.wire.patch import column
from fabric_emu.wire.replicate import heads_of, replicate
from fabric_emu.wire.uet import (
    PdsAck,
    PdsAckCc,
    PdsControl,
    PdsNack,
    RudCcRequest,
    SesRequest,
    SesResponse,
)
from fabric_emu.wire.uet_decode import decode_uet
from fabric_emu.wire.uet_layout import DESTINATION_PDC, SEND_TIME, SOURCE_PDC, UET_PORT, ControlType

MOST_QUEUE_PAIRS = (1 << 15) - QPN_BASE
"""Ids of packet delivery contexts have 16 bits, and a queue pair takes two."""

MOST_PACKETS = 1 << 23
"""Of a queue pair: credit is counted in 24 bits, and packets sent again need credit again."""

_FORTH = (Kind.DATA, Kind.PROBE)


def uet_frames(
    space: PacketSpace, rows: Ints, ends: list[Ends], payload_byte: bytes
) -> FrameFormat:
    """Return the frames of Ultra Ethernet RUD queue pairs of one address family.

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
    if space.queue_pairs > MOST_QUEUE_PAIRS:
        raise ValueError(f"{space.queue_pairs} queue pairs; {MOST_QUEUE_PAIRS} are the most")
    if np.diff(space.first).max() > MOST_PACKETS:
        raise ValueError(f"a queue pair may carry {MOST_PACKETS} packets at most")
    if space.payload < TIMESTAMP_LENGTH + TAIL:
        raise ValueError(f"payloads of {space.payload} bytes are too short")
    local = np.full(space.queue_pairs, -1, np.int64)
    local[rows] = np.arange(len(rows))
    planes = len(ends) // len(rows)
    target, fill = QPN_BASE + np.repeat(rows, planes), payload_byte[0]
    udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
    header_length = udp + SEND_TIME + TIMESTAMP_LENGTH
    padded = space.payload + -space.payload % 4
    length = udp + SEND_TIME + padded

    example = replace(ends[0].there, destination_port=UET_PORT)
    there = heads_of([replace(end.there, destination_port=UET_PORT) for end in ends])
    back = heads_of([replace(end.back, destination_port=UET_PORT) for end in ends])
    data = [RudCcRequest(), SesRequest(length=space.payload), Raw(bytes([fill]) * padded)]
    whole = {}
    for kind, layers in ({Kind.DATA: data} | _control_layers()).items():
        forth = kind in _FORTH
        frames = replicate(bytes(example.frame(*layers)), there if forth else back)
        numbers = (target + space.queue_pairs, target)
        source, destination = numbers if forth else numbers[::-1]
        column(frames, udp + SOURCE_PDC, ">u2")[:] = source
        column(frames, udp + DESTINATION_PDC, ">u2")[:] = destination
        whole[kind] = frames
    templates = Templates(whole, header_length, fill, local, planes)
    return FrameFormat(
        length,
        header_length,
        np.full(length - header_length - TAIL, fill, np.uint8),
        UetReader(space),
        UetWriter(space, templates, udp, fill),
        decode_uet,
    )


def _control_layers() -> dict[Kind, list[Packet]]:
    """Return the headers behind UDP of control packets."""
    return {
        Kind.SACK: [PdsAckCc(sack_psn_offset=1), SesResponse()],
        Kind.TRIM_NACK: [PdsNack(), SesResponse()],
        Kind.CREDIT: [PdsControl(control_type=int(ControlType.CREDIT))],
        Kind.PROBE: [PdsControl(control_type=int(ControlType.PROBE))],
        Kind.PROBE_ACK: [PdsAck(probe=1), SesResponse()],
    }
