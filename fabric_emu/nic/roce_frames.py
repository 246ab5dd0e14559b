"""RoCEv2 frames of transports' packets, laid out by scapy before a run.

Queue pair row q has two numbers on the wire: ``QPN_BASE + q`` at its responder, which data is
sent to, and ``QPN_BASE + queue pairs + q`` at its requester, which answers are sent to; so the
switches count both directions apart.
"""

from __future__ import annotations

import numpy as np
from scapy.packet import Packet

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import TAIL, Bytes, Ends, FrameFormat, Ints
from fabric_emu.nic.roce_reader import MRC_DATA, RC_DATA, RoceReader
from fabric_emu.nic.roce_writer import RoceWriter
from fabric_emu.nic.templates import Templates
from fabric_emu.nic.transport.packets import Kind
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import decode
from fabric_emu.wire.layout import (
    DESTINATION_QP,
    EXTENSION,
    HEADER_LENGTH,
    IPV4,
    IPV6,
    TIMESTAMP_LENGTH,
)
from fabric_emu.wire.mrc import MrcNack, MrcProbe, MrcSack
from fabric_emu.wire.mrc_layout import MrcOpcode
from fabric_emu.wire.replicate import heads_of, replicate
from fabric_emu.wire.rocev2 import AETH, BTH, CNPPadding, Opcode, Syndrome, write_frame

_RETH = HEADER_LENGTH["RETH"]
_RC_CONTROL = (Kind.ACK, Kind.NAK, Kind.CNP)
_MRC_CONTROL = (Kind.SACK, Kind.TRIM_NACK, Kind.PROBE_ACK, Kind.PROBE)


def roce_frames(
    space: PacketSpace, rows: Ints, ends: list[Ends], mrc: bool, payload_byte: bytes
) -> FrameFormat:
    """Return the frames of RC or MRC queue pairs of one address family.

    Args:
        space: all packets of the run.
        rows: (local queue pairs,) which of the run's queue pairs this worker touches.
        ends: their addresses, of each queue pair one for every plane.
        mrc: MRC's opcodes and answers instead of RC's.
        payload_byte: what payloads are filled with, padding too.

    Raises:
        ValueError: more packets in a queue pair than 24-bit packet numbers tell apart, or
            payloads too short to hold what control packets are longer than data headers.
    """
    if np.diff(space.first).max() > 1 << 24:
        raise ValueError("a queue pair may carry 2^24 packets at most")
    total = space.queue_pairs
    local = np.full(total, -1, np.int64)
    local[rows] = np.arange(len(rows))
    planes = len(ends) // len(rows)
    qpn = QPN_BASE + np.repeat(rows, planes)
    example, fill = ends[0].there, payload_byte[0]
    ip = IPV6 if ":" in example.source else IPV4
    there = heads_of([end.there for end in ends])
    back = heads_of([end.back for end in ends])

    # Padding like the payload: a ring's slots hold nothing else.
    payload = bytes([fill]) * (space.payload + -space.payload % 4)
    opcode = int(MRC_DATA[0] if mrc else RC_DATA[0])
    data = write_frame(example, qpn=0, psn=0, opcode=opcode, payload=payload)
    whole = {Kind.DATA: _numbered(data, there, qpn, ip.udp)}
    for kind in _MRC_CONTROL if mrc else _RC_CONTROL:
        heads, number = (there, qpn) if kind == Kind.PROBE else (back, qpn + total)
        whole[kind] = _numbered(example.frame(*_layers(kind)), heads, number, ip.udp)
    length = whole[Kind.DATA].shape[1]
    # Control packets whole: what they leave behind is written over by the next frame.
    longest = max(whole[kind].shape[1] for kind in whole if kind != Kind.DATA)
    headers = ip.udp + EXTENSION + (_RETH if mrc else 0)
    header_length = max(headers + TIMESTAMP_LENGTH, longest)
    if header_length > length - TAIL:
        raise ValueError(f"payloads of {space.payload} bytes are too short")
    templates = Templates(whole, header_length, fill, local, planes)
    return FrameFormat(
        length,
        header_length,
        np.full(length - header_length - TAIL, fill, np.uint8),
        RoceReader(space, mrc),
        RoceWriter(space, templates, ip, mrc, fill),
        decode,
    )


def _numbered(frame: Packet, heads: Bytes, qpn: Ints, udp: int) -> Bytes:
    """Return copies of a frame for queue pairs; their numbers leave congestion bits alone."""
    frames = replicate(bytes(frame), heads)
    at = udp + DESTINATION_QP
    for byte, shift in enumerate((16, 8, 0)):
        frames[:, at + byte] = qpn >> shift & 0xFF
    return frames


def _layers(kind: Kind) -> list[Packet]:
    """Return the headers behind UDP of a control packet."""
    opcodes = {
        Kind.ACK: Opcode.RC_ACKNOWLEDGE,
        Kind.NAK: Opcode.RC_ACKNOWLEDGE,
        Kind.CNP: Opcode.CNP,
        Kind.SACK: MrcOpcode.SACK,
        Kind.TRIM_NACK: MrcOpcode.NACK,
        Kind.PROBE: MrcOpcode.PROBE,
        Kind.PROBE_ACK: MrcOpcode.PROBE_ACK,
    }
    above: dict[Kind, Packet] = {
        Kind.ACK: AETH(syndrome=int(Syndrome.ACK)),
        Kind.NAK: AETH(syndrome=int(Syndrome.NAK_PSN_SEQUENCE_ERROR)),
        Kind.CNP: CNPPadding(),
        Kind.SACK: MrcSack(),
        Kind.TRIM_NACK: MrcNack(),
        Kind.PROBE: MrcProbe(),
        Kind.PROBE_ACK: MrcProbe(),
    }
    becn = int(kind == Kind.CNP)
    return [BTH(opcode=int(opcodes[kind]), psn=0, becn=becn), above[kind]]
