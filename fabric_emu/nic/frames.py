"""Between transports' packets and frames: encoding to send, decoding what arrived.

Queue pair row q has two numbers on the wire: ``QPN_BASE + q`` at its responder, which data is
sent to, and ``QPN_BASE + queue pairs + q`` at its requester, which answers are sent to; so the
switches count both directions apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import HeaderColumns
from fabric_emu.wire.layout import IPV4, IPV6, PSN, SOURCE_PORT
from fabric_emu.wire.mrc import MrcNack, MrcOpcode, MrcProbe, MrcSack, NackCode
from fabric_emu.wire.patch import Field, PatchedFrames
from fabric_emu.wire.rocev2 import AETH, BTH, CNPPadding, Envelope, Opcode, Syndrome, write_frame
from fabric_emu.wire.template import FrameTemplates

Ints = NDArray[np.int64]

_EXTENSION = 20
"""Offset of what follows the BTH, from the UDP header."""

_POSITIONS = 4
"""A packet is the first, a middle one, the last or the only one of its part."""

_RC_DATA = (
    Opcode.RC_SEND_FIRST,
    Opcode.RC_SEND_MIDDLE,
    Opcode.RC_SEND_LAST,
    Opcode.RC_SEND_ONLY,
)
_MRC_DATA = (
    MrcOpcode.WRITE_FIRST,
    MrcOpcode.WRITE_MIDDLE,
    MrcOpcode.WRITE_LAST,
    MrcOpcode.WRITE_ONLY,
)


@dataclass(frozen=True)
class Ends:
    """Addresses of a queue pair's two ends.

    Attributes:
        there: from requester to responder.
        back: from responder to requester.
    """

    there: Envelope
    back: Envelope


@dataclass(frozen=True)
class Frames:
    """Frames to send, in order.

    Attributes:
        rows: (n, header bytes) uint8; of short frames all but the ICRC, padded with zeros.
        lengths: (n,) int64 bytes of each frame, ICRC included.
        tails: (n, 4) uint8, the ICRC.
    """

    rows: NDArray[np.uint8]
    lengths: Ints
    tails: NDArray[np.uint8]


class RoceFrames:
    """Frames of RC or MRC queue pairs of one address family.

    Args:
        space: all packets of the run.
        rows: (local queue pairs,) which of the run's queue pairs this worker touches.
        ends: their addresses.
        mrc: MRC's opcodes and answers instead of RC's.
        payload_byte: what payloads are filled with.

    Attributes:
        length: bytes of a full data frame.
        header_length: bytes of it written anew for each packet.
        payload: what follows in a full frame.
    """

    def __init__(
        self, space: PacketSpace, rows: Ints, ends: list[Ends], mrc: bool, payload_byte: bytes
    ) -> None:
        self._space = space
        self._total = space.queue_pairs
        self._local = np.full(self._total, -1, np.int64)
        self._local[rows] = np.arange(len(rows))
        self._mrc = mrc
        self._udp = IPV6.udp if ":" in ends[0].there.source else IPV4.udp
        sizes = np.unique(space.size_bytes)
        self._data = {
            int(size): FrameTemplates(
                [
                    write_frame(
                        end.there,
                        qpn=QPN_BASE + int(row),
                        psn=0,
                        opcode=int(opcode),
                        payload=payload_byte * int(size),
                    )
                    for row, end in zip(rows, ends, strict=True)
                    for opcode in (_MRC_DATA if mrc else _RC_DATA)
                ]
            )
            for size in {*sizes.tolist(), space.payload}
        }
        full = self._data[space.payload]
        self.length, self.header_length, self.payload = (
            full.length,
            full.header_length,
            full.payload,
        )
        self._control = {
            kind: PatchedFrames(
                [
                    self._control_frame(kind, int(row), end)
                    for row, end in zip(rows, ends, strict=True)
                ],
                self._fields(kind),
            )
            for kind in (
                (Kind.SACK, Kind.TRIM_NACK, Kind.PROBE_ACK, Kind.PROBE)
                if mrc
                else (Kind.ACK, Kind.NAK, Kind.CNP)
            )
        }

    def _control_frame(self, kind: Kind, row: int, end: Ends) -> bytes:
        forth = kind == Kind.PROBE
        qpn = QPN_BASE + row + (0 if forth else self._total)
        return bytes((end.there if forth else end.back).frame(*self._layers(kind, qpn)))

    def _layers(self, kind: Kind, qpn: int) -> list[Packet]:
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
        return [BTH(opcode=int(opcodes[kind]), dqpn=qpn, psn=0, becn=becn), above[kind]]

    def _fields(self, kind: Kind) -> dict[str, Field]:
        at = self._udp + _EXTENSION
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
        rows = np.zeros((n, self.header_length), np.uint8)
        lengths = np.zeros(n, np.int64)
        tails = np.zeros((n, 4), np.uint8)
        local = self._local[packets.queue_pair]
        for kind in np.unique(packets.kind):
            of_kind = np.nonzero(packets.kind == kind)[0]
            if kind == Kind.DATA:
                self._encode_data(packets, of_kind, local, now_ns, rows, lengths, tails)
                continue
            frames = self._control[Kind(kind)]
            built = frames.build(local[of_kind], **self._columns(Kind(kind), packets, of_kind))
            lengths[of_kind] = frames.length
            rows[of_kind, : frames.length - 4] = built[:, :-4]
            tails[of_kind] = built[:, -4:]
        return Frames(rows, lengths, tails)

    def _encode_data(
        self,
        packets: Packets,
        of_kind: NDArray[np.intp],
        local: Ints,
        now_ns: int,
        rows: NDArray[np.uint8],
        lengths: Ints,
        tails: NDArray[np.uint8],
    ) -> None:
        space = self._space
        flat = space.flat(packets.queue_pair[of_kind], packets.psn[of_kind])
        size = space.size_bytes[flat]
        template = local[of_kind] * _POSITIONS + self._position(flat)
        for each in np.unique(size):
            some = size == each
            chosen = of_kind[some]
            templates = self._data[int(each)]
            address = packets.psn[chosen] * space.payload if self._mrc else None
            built, icrc = templates.build(
                template[some],
                packets.entropy[chosen],
                packets.psn[chosen],
                now_ns if templates.has_send_time else None,
                address=address,
            )
            rows[chosen, : built.shape[1]] = built
            lengths[chosen] = templates.length
            tails[chosen] = icrc.view(np.uint8).reshape(-1, 4)

    def _position(self, flat: Ints) -> Ints:
        part = self._space.part_of[flat]
        before = np.where(flat > 0, self._space.part_of[flat - 1], -1)
        follows = np.minimum(flat + 1, self._space.packets - 1)
        after = np.where(flat + 1 < self._space.packets, self._space.part_of[follows], -1)
        first, last = before != part, after != part
        return np.where(first & last, 3, np.where(first, 0, np.where(last, 2, 1)))

    def _columns(
        self, kind: Kind, packets: Packets, rows: NDArray[np.intp]
    ) -> dict[str, NDArray[np.generic]]:
        columns: dict[str, NDArray[np.generic]] = {
            "source_port": packets.entropy[rows],
            "psn": packets.psn[rows] & 0xFFFFFF,
        }
        if kind == Kind.SACK:
            columns |= {
                "echo_psn": packets.echo_psn[rows],
                "entropy": packets.echo[rows],
                "flags": packets.echo_marked[rows].astype(np.int64) << 15,
                "bitmap": packets.bitmap[rows],
                "received_bytes": packets.value[rows],
            }
        elif kind == Kind.TRIM_NACK:
            code = np.where(packets.last_hop[rows], NackCode.TRIMMED_LAST_HOP, NackCode.TRIMMED)
            columns |= {
                "psn": packets.echo_psn[rows],
                "entropy": packets.echo[rows],
                "code": code << 8,
            }
        elif kind in (Kind.PROBE, Kind.PROBE_ACK):
            columns["entropy"] = packets.echo[rows]
        return columns

    def decode(self, columns: HeaderColumns, trimmed_dscp: int, last_hop_dscp: int) -> Packets:
        """Return the packets that frames hold; frames of no queue pair of the run are left out.

        Args:
            columns: decoded headers.
            trimmed_dscp, last_hop_dscp: what switches set on frames they trim.
        """
        qpn = columns.qpn.astype(np.int64) - QPN_BASE
        known = columns.is_rocev2 & (qpn >= 0) & (qpn < 2 * self._total)
        if not known.all():
            columns = columns.take(known)
            qpn = qpn[known]
        answer = qpn >= self._total
        pair = np.where(answer, qpn - self._total, qpn)
        opcode = columns.opcode
        transport = columns.transport
        psn = columns.psn.astype(np.int64)
        kind = _KINDS[opcode]
        nak = (opcode == Opcode.RC_ACKNOWLEDGE) & (transport[:, _EXTENSION] >> 5 == 3)
        kind[nak] = Kind.NAK
        sound = (answer == (kind != Kind.DATA)) | (kind == Kind.PROBE)
        sound &= (kind != _NO_KIND) & (psn < self._space.count(pair) + (kind != Kind.DATA))
        dscp = columns.dscp
        n = len(pair)
        echo_psn = np.zeros(n, np.int64)
        echo = np.zeros(n, np.uint16)
        echo_marked = np.zeros(n, bool)
        bitmap = np.zeros(n, np.uint64)
        value = np.zeros(n, np.int64)
        code = np.zeros(n, np.int64)
        if self._mrc and answer.any():
            words = np.ascontiguousarray(transport[:, _EXTENSION : _EXTENSION + 24])
            sack = kind == Kind.SACK
            echo_psn = np.where(sack, words[:, :4].copy().view(">u4")[:, 0], psn).astype(np.int64)
            early = words[:, :2].copy().view(">u2")[:, 0]
            echo = np.where(sack, words[:, 4:6].copy().view(">u2")[:, 0], early).astype(np.uint16)
            echo_marked = sack & (words[:, 6] >> 7 == 1)
            bitmap = words[:, 8:16].copy().view(">u8")[:, 0].astype(np.uint64)
            value = words[:, 16:24].copy().view(">u8")[:, 0].astype(np.int64)
            code = words[:, 2].astype(np.int64)
            sound &= (kind == Kind.DATA) | (echo_psn < self._space.count(pair))
        nack = kind == Kind.TRIM_NACK
        packets = Packets.of(
            kind,
            pair,
            psn=psn,
            entropy=columns.source_port,
            marked=columns.ecn == 3,
            trimmed=(dscp == trimmed_dscp) | (dscp == last_hop_dscp),
            last_hop=np.where(nack, code == NackCode.TRIMMED_LAST_HOP, dscp == last_hop_dscp),
            bitmap=bitmap,
            echo=echo,
            echo_psn=echo_psn,
            echo_marked=echo_marked,
            value=value,
        )
        return packets if sound.all() else packets.take(sound)


_NO_KIND = 255
_KINDS = np.full(256, _NO_KIND, np.uint8)
_KINDS[[*map(int, _RC_DATA), *map(int, _MRC_DATA)]] = Kind.DATA
_KINDS[Opcode.RC_ACKNOWLEDGE] = Kind.ACK
_KINDS[Opcode.CNP] = Kind.CNP
_KINDS[MrcOpcode.SACK] = Kind.SACK
_KINDS[MrcOpcode.NACK] = Kind.TRIM_NACK
_KINDS[MrcOpcode.PROBE] = Kind.PROBE
_KINDS[MrcOpcode.PROBE_ACK] = Kind.PROBE_ACK
