"""RoCEv2 frames of transports' packets: encoding to send, decoding what arrived.

Queue pair row q has two numbers on the wire: ``QPN_BASE + q`` at its responder, which data is
sent to, and ``QPN_BASE + queue pairs + q`` at its requester, which answers are sent to; so the
switches count both directions apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet

from fabric_emu.model.queue_pair import QPN_BASE, plane_of
from fabric_emu.nic.formats import TAIL, Bytes, Ends, FrameBatch, Frames, Ints, Lengths, Places
from fabric_emu.nic.roce_reader import MRC_DATA, RC_DATA, RoceReader
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import HeaderColumns, decode
from fabric_emu.wire.layout import DESTINATION_QP, EXTENSION, IPV4, IPV6, PSN, SOURCE_PORT
from fabric_emu.wire.mrc import MrcNack, MrcOpcode, MrcProbe, MrcSack, NackCode
from fabric_emu.wire.patch import Field, PatchedFrames
from fabric_emu.wire.replicate import heads_of, replicate
from fabric_emu.wire.rocev2 import AETH, BTH, CNPPadding, Opcode, Syndrome, write_frame
from fabric_emu.wire.template import FrameTemplates

__all__ = ["Ends", "Frames", "RoceFrames"]

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
        self._space, self._places = space, Places(space)
        self._total = space.queue_pairs
        self._local = np.full(self._total, -1, np.int64)
        self._local[rows] = np.arange(len(rows))
        self._planes = len(ends) // len(rows)
        rows = np.repeat(rows, self._planes)
        self._mrc = mrc
        self._reader = RoceReader(space, mrc)
        self._udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
        self._fill = payload_byte[0]

        there = heads_of([end.there for end in ends])
        back = heads_of([end.back for end in ends])
        self._example = ends[0].there
        full = self._templates(space.payload, rows, there, MRC_DATA if mrc else RC_DATA)
        self._full = full
        self._last = self._last_templates(rows, there)
        self._control = {
            kind: self._control_frames(kind, rows, there if kind == Kind.PROBE else back)
            for kind in (_MRC_CONTROL if mrc else _RC_CONTROL)
        }
        longest = max(frames.length for frames in self._control.values())
        # Control packets whole: what they leave behind is written over by the next frame.
        self.header_length = max(full.header_length, longest)
        self.length = full.length
        if self.header_length > self.length - TAIL:
            raise ValueError(f"payloads of {space.payload} bytes are too short")
        self.payload = full.payload[self.header_length - full.header_length :]

    def _templates(
        self, size: int, rows: Ints, heads: Bytes, opcodes: Sequence[int]
    ) -> FrameTemplates:
        """Return (row, opcode) templates of data frames."""
        pad = -size % 4
        of_opcode = []
        for opcode in opcodes:
            # Padding like the payload: a ring's slots hold nothing else.
            frame = write_frame(
                self._example,
                qpn=0,
                psn=0,
                opcode=int(opcode),
                payload=bytes([self._fill]) * (size + pad),
                dma_length=size,
            )
            frame[BTH].padcount = pad
            of_opcode.append(replicate(bytes(frame), heads))
        frames = np.stack(of_opcode, axis=1).reshape(len(rows) * len(opcodes), -1)
        self._number(frames, np.repeat(QPN_BASE + rows, len(opcodes)))
        return FrameTemplates(frames, compact=size != self._space.payload)

    def _last_templates(self, rows: Ints, heads: Bytes) -> dict[int, tuple[Ints, FrameTemplates]]:
        """Return templates of parts' short last packets, by payload size.

        Each with (rows,) the number of a row's first template.
        """
        space = self._space
        flat = np.flatnonzero(space.size_bytes != space.payload)
        local = self._local[space.part_queue_pair[space.part_of[flat]]]
        size = space.size_bytes[flat][local >= 0]
        local = local[local >= 0]
        size, local = np.repeat(size, self._planes), self._rows_of(local)
        last = {}
        for each in np.unique(size).tolist():
            some = np.unique(local[size == each])
            first = np.zeros(len(rows), np.int64)
            first[some] = 2 * np.arange(len(some))
            opcodes = (MRC_DATA if self._mrc else RC_DATA)[Places.LAST :]
            last[each] = first, self._templates(each, rows[some], heads[some], opcodes)
        return last

    def _rows_of(self, local: Ints) -> Ints:
        """Return the rows of queue pairs in every plane."""
        return (local[:, None] * self._planes + np.arange(self._planes)).ravel()

    def _control_frames(self, kind: Kind, rows: Ints, heads: Bytes) -> PatchedFrames:
        frames = replicate(bytes(self._example.frame(*self._layers(kind))), heads)
        self._number(frames, QPN_BASE + rows + (0 if kind == Kind.PROBE else self._total))
        return PatchedFrames(frames, self._fields(kind))

    def _number(self, frames: Bytes, qpn: Ints) -> None:
        """Write destination queue pairs; the byte before is the congestion bits'."""
        at = self._udp + DESTINATION_QP
        for byte, shift in enumerate((16, 8, 0)):
            frames[:, at + byte] = qpn >> shift & 0xFF

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

    def _fields(self, kind: Kind) -> dict[str, Field]:
        at = self._udp + EXTENSION
        common = {
            "source_port": Field(self._udp + SOURCE_PORT, ">u2"),
            "psn": Field(self._udp + PSN - 1, ">u4"),
        }
        extra = {
            Kind.SACK: {
                "echo_psn": Field(at, ">u4"),
                "entropy": Field(at + 4, ">u2"),
                "flags": Field(at + 6, ">u2"),
                "bitmap": Field(at + 8, ">u8"),
                "received_bytes": Field(at + 16, ">u8"),
            },
            Kind.TRIM_NACK: {"entropy": Field(at, ">u2"), "code": Field(at + 2, ">u2")},
            Kind.PROBE: {"entropy": Field(at, ">u2")},
            Kind.PROBE_ACK: {"entropy": Field(at, ">u2")},
        }
        return common | extra.get(kind, {})

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
                values = self._values(Kind(kind), some)
                batch.put(slice(start, end), self._control[Kind(kind)].build(local, **values))
        return batch.frames()

    def _encode_data(
        self, data: Packets, start: int, local: Ints, now_ns: int, batch: FrameBatch
    ) -> None:
        space = self._space
        flat = space.flat(data.queue_pair, data.psn)
        place = self._places.of(flat)[2]
        size = space.size_bytes[flat]
        short = (size != space.payload).nonzero()[0]
        if not len(short):
            template = len(RC_DATA) * local + place
            self._build(self._full, template, data, slice(start, start + len(data)), now_ns, batch)
            return
        full = (size == space.payload).nonzero()[0]
        template = len(RC_DATA) * local[full] + place[full]
        self._build(self._full, template, data.take(full), start + full, now_ns, batch)
        for each in np.unique(size[short]).tolist():
            some = (size == each).nonzero()[0]
            first, templates = self._last[each]
            template = first[local[some]] + place[some] - Places.LAST
            self._build(templates, template, data.take(some), start + some, now_ns, batch)

    def _build(
        self,
        templates: FrameTemplates,
        template: Ints,
        data: Packets,
        where: slice | Ints,
        now_ns: int,
        batch: FrameBatch,
    ) -> None:
        psn = data.psn
        built, icrc = templates.build(
            template,
            data.entropy,
            psn,
            now_ns if templates.has_send_time else None,
            address=psn * self._space.payload if self._mrc else None,
        )
        batch.rows[where, : built.shape[1]] = built
        batch.lengths[where] = templates.length
        batch.tails[where] = icrc.view(np.uint8).reshape(-1, TAIL)

    @staticmethod
    def _values(kind: Kind, packets: Packets) -> dict[str, NDArray[np.generic]]:
        """Return what to write into the fields of control packets."""
        values: dict[str, NDArray[np.generic]] = {
            "source_port": packets.entropy,
            "psn": packets.psn & 0xFFFFFF,
        }
        if kind == Kind.SACK:
            values |= {
                "echo_psn": packets.echo_psn,
                "entropy": packets.echo,
                "flags": packets.echo_marked.astype(np.uint16) << 15,
                "bitmap": packets.bitmap,
                "received_bytes": packets.value,
            }
        elif kind == Kind.TRIM_NACK:
            code = np.where(packets.last_hop, NackCode.TRIMMED_LAST_HOP, NackCode.TRIMMED)
            values |= {"psn": packets.echo_psn, "entropy": packets.echo, "code": code << 8}
        elif kind in (Kind.PROBE, Kind.PROBE_ACK):
            values["entropy"] = packets.echo
        return values

    def columns(self, headers: Bytes, lengths: NDArray[np.integer]) -> HeaderColumns:
        """Return the header fields of received frames."""
        return decode(headers, lengths)

    def received(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames, without those of no queue pair of the run."""
        return self._reader.read(headers, lengths, trimmed_dscp, last_hop_dscp)
