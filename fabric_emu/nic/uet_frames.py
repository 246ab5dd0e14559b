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

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet, Raw

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import TAIL, Bytes, Ends, Frames, Ints, Lengths
from fabric_emu.nic.templates import Templates
from fabric_emu.nic.transport.packets import Kind, Packets
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
from fabric_emu.wire.uet_decode import UetColumns, decode_uet
from fabric_emu.wire.uet_layout import DESTINATION_PDC, SEND_TIME, SOURCE_PDC, UET_PORT, ControlType

MOST_QUEUE_PAIRS = (1 << 15) - QPN_BASE
"""Ids of packet delivery contexts have 16 bits, and a queue pair takes two."""

MOST_PACKETS = 1 << 23
"""Of a queue pair: credit is counted in 24 bits, and packets sent again need credit again."""

_FORTH = (Kind.DATA, Kind.PROBE)


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
        self._total = space.queue_pairs
        self._reader = UetReader(space)
        local = np.full(self._total, -1, np.int64)
        local[rows] = np.arange(len(rows))
        planes = len(ends) // len(rows)
        rows, fill = np.repeat(rows, planes), payload_byte[0]
        self._udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
        self.header_length = self._udp + SEND_TIME + TIMESTAMP_LENGTH
        padded = space.payload + -space.payload % 4
        self.length = self._udp + SEND_TIME + padded
        self.payload = np.full(self.length - self.header_length - TAIL, fill, np.uint8)

        self._example = replace(ends[0].there, destination_port=UET_PORT)
        there = heads_of([replace(end.there, destination_port=UET_PORT) for end in ends])
        back = heads_of([replace(end.back, destination_port=UET_PORT) for end in ends])
        data = [RudCcRequest(), SesRequest(length=space.payload), Raw(bytes([fill]) * padded)]
        whole = {
            kind: self._whole(layers, rows, there if kind in _FORTH else back, kind in _FORTH)
            for kind, layers in ({Kind.DATA: data} | _control_layers()).items()
        }
        templates = Templates(whole, self.header_length, fill, local, planes)
        self._writer = UetWriter(space, templates, self._udp, fill)

    def _whole(self, layers: list[Packet], rows: Ints, heads: Bytes, forth: bool) -> Bytes:
        """Return (rows, length) a frame for each queue pair."""
        frames = replicate(bytes(self._example.frame(*layers)), heads)
        target, initiator = rows + QPN_BASE, rows + QPN_BASE + self._total
        source, destination = (initiator, target) if forth else (target, initiator)
        column(frames, self._udp + SOURCE_PDC, ">u2")[:] = source
        column(frames, self._udp + DESTINATION_PDC, ">u2")[:] = destination
        return frames

    def encode(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""
        return self._writer.write(packets, now_ns)

    def columns(self, headers: Bytes, lengths: NDArray[np.integer]) -> UetColumns:
        """Return the header fields of received frames."""
        return decode_uet(headers, lengths)

    def received(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames, without those of no queue pair of the run."""
        return self._reader.read(headers, lengths, trimmed_dscp, last_hop_dscp)


def _control_layers() -> dict[Kind, list[Packet]]:
    """Return the headers behind UDP of control packets."""
    return {
        Kind.SACK: [PdsAckCc(sack_psn_offset=1), SesResponse()],
        Kind.TRIM_NACK: [PdsNack(), SesResponse()],
        Kind.CREDIT: [PdsControl(control_type=int(ControlType.CREDIT))],
        Kind.PROBE: [PdsControl(control_type=int(ControlType.PROBE))],
        Kind.PROBE_ACK: [PdsAck(probe=1), SesResponse()],
    }
