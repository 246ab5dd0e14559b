"""RoCEv2 frames of transports' packets: encoding to send, decoding what arrived.

Queue pair row q has two numbers on the wire: ``QPN_BASE + q`` at its responder, which data is
sent to, and ``QPN_BASE + queue pairs + q`` at its requester, which answers are sent to; so the
switches count both directions apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import TAIL, Bytes, Ends, Frames, Ints, Lengths
from fabric_emu.nic.roce_reader import MRC_DATA, RC_DATA, RoceReader
from fabric_emu.nic.roce_writer import RoceWriter
from fabric_emu.nic.templates import Templates
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import HeaderColumns, decode
from fabric_emu.wire.layout import (
    DESTINATION_QP,
    EXTENSION,
    HEADER_LENGTH,
    IPV4,
    IPV6,
    TIMESTAMP_LENGTH,
)
from fabric_emu.wire.mrc import MrcNack, MrcOpcode, MrcProbe, MrcSack
from fabric_emu.wire.replicate import heads_of, replicate
from fabric_emu.wire.rocev2 import AETH, BTH, CNPPadding, Opcode, Syndrome, write_frame

__all__ = ["Ends", "Frames", "RoceFrames"]

_RETH = HEADER_LENGTH["RETH"]
_RC_CONTROL = (Kind.ACK, Kind.NAK, Kind.CNP)
_MRC_CONTROL = (Kind.SACK, Kind.TRIM_NACK, Kind.PROBE_ACK, Kind.PROBE)


class RoceFrames:
    """Frames of RC or MRC queue pairs of one address family; see ``FrameFormat``.

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

    def __init__(
        self, space: PacketSpace, rows: Ints, ends: list[Ends], mrc: bool, payload_byte: bytes
    ) -> None:
        if np.diff(space.first).max() > 1 << 24:
            raise ValueError("a queue pair may carry 2^24 packets at most")
        self._total = space.queue_pairs
        self._reader = RoceReader(space, mrc)
        local = np.full(self._total, -1, np.int64)
        local[rows] = np.arange(len(rows))
        planes = len(ends) // len(rows)
        qpn = QPN_BASE + np.repeat(rows, planes)
        self._example, fill = ends[0].there, payload_byte[0]
        ip = IPV6 if ":" in self._example.source else IPV4
        there = heads_of([end.there for end in ends])
        back = heads_of([end.back for end in ends])

        whole = {Kind.DATA: self._whole(self._data(space.payload, mrc, fill), there, qpn, ip.udp)}
        for kind in _MRC_CONTROL if mrc else _RC_CONTROL:
            frame = self._example.frame(*self._layers(kind))
            forth = kind == Kind.PROBE
            heads, number = (there, qpn) if forth else (back, qpn + self._total)
            whole[kind] = self._whole(frame, heads, number, ip.udp)
        self.length = whole[Kind.DATA].shape[1]
        headers = ip.udp + EXTENSION + (_RETH if mrc else 0)
        # Control packets whole: what they leave behind is written over by the next frame.
        longest = max(whole[kind].shape[1] for kind in whole if kind != Kind.DATA)
        self.header_length = max(headers + TIMESTAMP_LENGTH, longest)
        if self.header_length > self.length - TAIL:
            raise ValueError(f"payloads of {space.payload} bytes are too short")
        self.payload = np.full(self.length - self.header_length - TAIL, fill, np.uint8)
        templates = Templates(whole, self.header_length, fill, local, planes)
        self._writer = RoceWriter(space, templates, ip, mrc, fill)

    def _data(self, size: int, mrc: bool, fill: int) -> Packet:
        """Return a full data frame."""
        # Padding like the payload: a ring's slots hold nothing else.
        payload = bytes([fill]) * (size + -size % 4)
        opcode = int(MRC_DATA[0] if mrc else RC_DATA[0])
        return write_frame(self._example, qpn=0, psn=0, opcode=opcode, payload=payload)

    @staticmethod
    def _whole(frame: Packet, heads: Bytes, qpn: Ints, udp: int) -> Bytes:
        """Return copies of a frame for queue pairs; their numbers leave congestion bits alone."""
        frames = replicate(bytes(frame), heads)
        at = udp + DESTINATION_QP
        for byte, shift in enumerate((16, 8, 0)):
            frames[:, at + byte] = qpn >> shift & 0xFF
        return frames

    @staticmethod
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

    def encode(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""
        return self._writer.write(packets, now_ns)

    def columns(self, headers: Bytes, lengths: NDArray[np.integer]) -> HeaderColumns:
        """Return the header fields of received frames."""
        return decode(headers, lengths)

    def received(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames, without those of no queue pair of the run."""
        return self._reader.read(headers, lengths, trimmed_dscp, last_hop_dscp)
