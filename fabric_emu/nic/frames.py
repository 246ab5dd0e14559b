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

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import TAIL, Bytes, Ends, Frames, Ints, Places, existing
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import HeaderColumns, decode
from fabric_emu.wire.layout import DESTINATION_QP, EXTENSION, IPV4, IPV6, PSN, SOURCE_PORT
from fabric_emu.wire.mrc import MrcNack, MrcOpcode, MrcProbe, MrcSack, NackCode
from fabric_emu.wire.patch import Field, PatchedFrames
from fabric_emu.wire.replicate import replicate
from fabric_emu.wire.rocev2 import AETH, BTH, CNPPadding, Envelope, Opcode, Syndrome, write_frame
from fabric_emu.wire.template import FrameTemplates

__all__ = ["Ends", "Frames", "RoceFrames"]

# In the order of ``Places``' bits.
_RC_DATA = (
    Opcode.RC_SEND_MIDDLE,
    Opcode.RC_SEND_FIRST,
    Opcode.RC_SEND_LAST,
    Opcode.RC_SEND_ONLY,
)
_MRC_DATA = (
    MrcOpcode.WRITE_MIDDLE,
    MrcOpcode.WRITE_FIRST,
    MrcOpcode.WRITE_LAST,
    MrcOpcode.WRITE_ONLY,
)
_RC_CONTROL = (Kind.ACK, Kind.NAK, Kind.CNP)
_MRC_CONTROL = (Kind.SACK, Kind.TRIM_NACK, Kind.PROBE_ACK, Kind.PROBE)


class RoceFrames:
    """Frames of RC or MRC queue pairs of one address family; see ``FrameFormat``.

    Args:
        space: all packets of the run.
        rows: (local queue pairs,) which of the run's queue pairs this worker touches.
        ends: their addresses.
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
        self._mrc = mrc
        self._kinds = _KINDS_OF_MRC if mrc else _KINDS_OF_RC
        self._udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
        self._fill = payload_byte[0]

        there = [end.there for end in ends]
        full = self._templates(space.payload, rows, there, _MRC_DATA if mrc else _RC_DATA)
        self._full = full
        self._last = self._last_templates(rows, there)
        self._control = {
            kind: self._control_frames(kind, rows, ends)
            for kind in (_MRC_CONTROL if mrc else _RC_CONTROL)
        }
        longest = max(frames.length for frames in self._control.values())
        self.header_length = max(full.header_length, longest - TAIL)
        self.length = full.length
        if self.header_length > self.length - TAIL:
            raise ValueError(f"payloads of {space.payload} bytes are too short")
        self.payload = full.payload[self.header_length - full.header_length :]

    def _templates(
        self, size: int, rows: Ints, envelopes: Sequence[Envelope], opcodes: Sequence[int]
    ) -> FrameTemplates:
        """Return (queue pair, opcode) templates of data frames."""
        pad = -size % 4
        of_opcode = []
        for opcode in opcodes:
            # Padding like the payload: a ring's slots hold nothing else.
            frame = write_frame(
                envelopes[0],
                qpn=0,
                psn=0,
                opcode=int(opcode),
                payload=bytes([self._fill]) * (size + pad),
                dma_length=size,
            )
            frame[BTH].padcount = pad
            of_opcode.append(replicate(bytes(frame), envelopes))
        frames = np.stack(of_opcode, axis=1).reshape(len(rows) * len(opcodes), -1)
        self._number(frames, np.repeat(QPN_BASE + rows, len(opcodes)))
        return FrameTemplates(frames)

    def _last_templates(
        self, rows: Ints, envelopes: Sequence[Envelope]
    ) -> dict[int, tuple[Ints, FrameTemplates]]:
        """Return templates of parts' short last packets, by payload size.

        Each with (local queue pairs,) the number of a queue pair's first template.
        """
        space = self._space
        flat = np.flatnonzero(space.size_bytes != space.payload)
        local = self._local[space.part_queue_pair[space.part_of[flat]]]
        size = space.size_bytes[flat][local >= 0]
        local = local[local >= 0]
        last = {}
        for each in np.unique(size).tolist():
            some = np.unique(local[size == each])
            first = np.zeros(len(rows), np.int64)
            first[some] = 2 * np.arange(len(some))
            ends = [envelopes[i] for i in some]
            opcodes = (_MRC_DATA if self._mrc else _RC_DATA)[Places.LAST :]
            last[each] = first, self._templates(each, rows[some], ends, opcodes)
        return last

    def _control_frames(self, kind: Kind, rows: Ints, ends: list[Ends]) -> PatchedFrames:
        forth = kind == Kind.PROBE
        envelopes = [end.there if forth else end.back for end in ends]
        frames = replicate(bytes(envelopes[0].frame(*self._layers(kind))), envelopes)
        self._number(frames, QPN_BASE + rows + (0 if forth else self._total))
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
        n = len(packets)
        frames = Frames(
            np.full((n, self.header_length), self._fill, np.uint8),
            np.empty(n, np.int64),
            np.empty((n, TAIL), np.uint8),
        )
        kinds = packets.kind
        for kind in np.flatnonzero(np.bincount(kinds)):
            of_kind = np.flatnonzero(kinds == kind)
            some = packets.take(of_kind)
            local = self._local[some.queue_pair]
            if kind == Kind.DATA:
                self._encode_data(some, of_kind, local, now_ns, frames)
                continue
            made = self._control[Kind(kind)]
            built = made.build(local, **self._values(Kind(kind), some))
            frames.rows[of_kind, : made.length - TAIL] = built[:, :-TAIL]
            frames.lengths[of_kind] = made.length
            frames.tails[of_kind] = built[:, -TAIL:]
        return frames

    def _encode_data(
        self, data: Packets, where: Ints, local: Ints, now_ns: int, frames: Frames
    ) -> None:
        space = self._space
        flat = space.flat(data.queue_pair, data.psn)
        place = self._places.of(flat)[2]
        size = space.size_bytes[flat]
        full = np.flatnonzero(size == space.payload)
        groups = [(full, self._full, len(_RC_DATA) * local[full] + place[full])]
        if len(full) < len(size):
            for each in np.unique(size[size != space.payload]).tolist():
                some = np.flatnonzero(size == each)
                first, templates = self._last[each]
                groups.append((some, templates, first[local[some]] + place[some] - Places.LAST))
        for some, templates, template in groups:
            psn, at = data.psn[some], where[some]
            built, icrc = templates.build(
                template,
                data.entropy[some],
                psn,
                now_ns if templates.has_send_time else None,
                address=psn * space.payload if self._mrc else None,
            )
            frames.rows[at, : built.shape[1]] = built
            frames.lengths[at] = templates.length
            frames.tails[at] = icrc.view(np.uint8).reshape(-1, TAIL)

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
        self, headers: Bytes, lengths: NDArray[np.integer], trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames; frames of no queue pair of the run are left out."""
        return self.decode(decode(headers, lengths), trimmed_dscp, last_hop_dscp)

    def decode(self, columns: HeaderColumns, trimmed_dscp: int, last_hop_dscp: int) -> Packets:
        """Return the packets of decoded headers, as ``received`` does."""
        number = columns.qpn.astype(np.int64) - QPN_BASE
        known = columns.found & (number >= 0) & (number < 2 * self._total)
        if not known.all():
            columns, number = columns.take(known), number[known]
        answer = number >= self._total
        pair = np.where(answer, number - self._total, number)
        psn = columns.psn.astype(np.int64)
        kind = self._kinds[columns.opcode]
        dscp = columns.dscp
        last_hop = dscp == last_hop_dscp
        packets = Packets.of(
            kind,
            pair,
            psn=psn,
            entropy=columns.source_port,
            marked=columns.ecn == 3,
            trimmed=(dscp == trimmed_dscp) | last_hop,
            last_hop=last_hop,
        )
        end = self._space.count(pair)
        answers = kind.any()
        if answers and self._mrc:
            sound = self._read_mrc(packets, columns, end)
        else:
            sound = psn < end
        if answers:
            if not self._mrc:
                kind[(kind == Kind.ACK) & (columns.syndrome >> 5 == _NAK)] = Kind.NAK
                packets.kind[:] = kind
            present = np.minimum(columns.held, columns.udp_length)
            sound &= present >= _NEEDED[kind]
        sound &= answer == _IS_ANSWER[kind]
        return packets if sound.all() else packets.take(sound)

    @staticmethod
    def _read_mrc(packets: Packets, columns: HeaderColumns, end: Ints) -> NDArray[np.bool_]:
        """Add what MRC's control packets say.

        Args:
            end: (n,) packets of each queue pair in all.

        Returns:
            (n,) whether there are such packet numbers.
        """
        kind, psn = packets.kind, packets.psn
        control, sack = kind != Kind.DATA, kind == Kind.SACK
        first, second = columns.transport[:, EXTENSION : EXTENSION + 8].view(">u4").T
        echo_psn = np.where(sack, first, psn)
        packets.echo_psn[:] = echo_psn * control
        packets.echo[:] = np.where(sack, second, first) * control >> 16
        nack = kind == Kind.TRIM_NACK
        if nack.any():
            code = first >> 8 & 0xFF
            packets.last_hop[nack] = code[nack] == NackCode.TRIMMED_LAST_HOP
        if sack.any():
            packets.echo_marked[:] = sack & (second & 0x8000 != 0)
            bitmap, received = columns.transport[:, EXTENSION + 8 : EXTENSION + 24].view(">u8").T
            packets.bitmap[:] = existing(bitmap * sack, end - psn)
            packets.value[:] = received * sack
        # A SACK's number, the first missing packet's, may be the one behind the last.
        sound: NDArray[np.bool_] = (psn < end + sack) & (echo_psn < end)
        return sound


_NAK = Syndrome.NAK_PSN_SEQUENCE_ERROR >> 5

_NO_KIND = len(Kind)


def _table(data: Sequence[int], control: dict[int, Kind]) -> NDArray[np.uint8]:
    """Return (256,) the kind of packet that each opcode makes."""
    kinds = np.full(256, _NO_KIND, np.uint8)
    kinds[[int(opcode) for opcode in data]] = Kind.DATA
    for opcode, kind in control.items():
        kinds[opcode] = kind
    return kinds


_KINDS_OF_RC = _table(_RC_DATA, {Opcode.RC_ACKNOWLEDGE: Kind.ACK, Opcode.CNP: Kind.CNP})
_KINDS_OF_MRC = _table(
    _MRC_DATA,
    {
        MrcOpcode.SACK: Kind.SACK,
        MrcOpcode.NACK: Kind.TRIM_NACK,
        MrcOpcode.PROBE: Kind.PROBE,
        MrcOpcode.PROBE_ACK: Kind.PROBE_ACK,
    },
)

# Bytes from the UDP header on that a packet of each kind must have; no packet has 255.
_NEEDED = np.full(_NO_KIND + 1, 255, np.int64)
_NEEDED[[Kind.DATA, Kind.CNP]] = EXTENSION
_NEEDED[[Kind.ACK, Kind.NAK, Kind.TRIM_NACK, Kind.PROBE, Kind.PROBE_ACK]] = EXTENSION + 4
_NEEDED[Kind.SACK] = EXTENSION + 24

_IS_ANSWER = np.ones(_NO_KIND + 1, bool)
_IS_ANSWER[[Kind.DATA, Kind.PROBE]] = False
