"""From received RoCEv2 headers to transports' packets; whatever makes no sense is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Lengths, existing
from fabric_emu.nic.transport.packets import DTYPE, Kind, Packets, Rows
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.datagram import number, traffic_class, udp_of
from fabric_emu.wire.layout import (
    DESTINATION_QP,
    EXTENSION,
    OPCODE,
    PSN,
    ROCEV2_PORT,
    SOURCE_PORT,
    UDP_LENGTH,
    Opcode,
    Syndrome,
)
from fabric_emu.wire.mrc_layout import MrcOpcode, NackCode
from fabric_emu.wire.udp import MINIMUM_WIDTH

# In the order of the bits of ``place_of``.
RC_DATA = (
    Opcode.RC_SEND_MIDDLE,
    Opcode.RC_SEND_FIRST,
    Opcode.RC_SEND_LAST,
    Opcode.RC_SEND_ONLY,
)
MRC_DATA = (
    MrcOpcode.WRITE_MIDDLE,
    MrcOpcode.WRITE_FIRST,
    MrcOpcode.WRITE_LAST,
    MrcOpcode.WRITE_ONLY,
)

_NO_KIND = len(Kind)
_NAK_TYPE = Syndrome.NAK_PSN_SEQUENCE_ERROR >> 5


class RoceReader:
    """Reads packets of RC or MRC queue pairs.

    Args:
        space: all packets of the run.
        mrc: expect MRC's opcodes and answers instead of RC's.
    """

    def __init__(self, space: PacketSpace, mrc: bool) -> None:
        self._first = space.first
        self._kinds = _KINDS_OF_MRC if mrc else _KINDS_OF_RC

    def read(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of frames, without those of no queue pair or packet of the run.

        Args: see ``FrameFormat.received``.
        """
        rows = np.zeros(len(headers), DTYPE)
        n = _read(headers, lengths, self._first, self._kinds, trimmed_dscp, last_hop_dscp, rows)
        return Packets(rows[:n])


@compiled
def _needed(kind: int) -> int:
    """Return the bytes from the UDP header on that a packet must have."""
    if kind == Kind.DATA or kind == Kind.CNP:
        return EXTENSION
    return EXTENSION + (24 if kind == Kind.SACK else 4)


@compiled
def _read(
    headers: ByteTable,
    lengths: Lengths,
    first: Ints,
    kinds: Bytes,
    trimmed_dscp: int,
    last_hop_dscp: int,
    rows: Rows,
) -> int:
    """Write rows, all zeros, of the packets that make sense; return how many.

    Args:
        first: see ``PacketSpace``.
        kinds: (256,) the kind of packet that each opcode makes.
    """
    if headers.shape[1] < MINIMUM_WIDTH:
        raise ValueError("rows are too short")
    total = len(first) - 1
    n = 0
    for i in range(len(headers)):
        frame = headers[i]
        udp = udp_of(frame, lengths[i], ROCEV2_PORT)
        if not udp:
            continue
        kind = kinds[frame[udp + OPCODE]]
        size = number(frame, udp + UDP_LENGTH, 2)
        if kind == _NO_KIND or size < _needed(kind):
            continue
        pair = number(frame, udp + DESTINATION_QP, 3) - QPN_BASE
        if kind != Kind.DATA and kind != Kind.PROBE:
            pair -= total  # an answer, to the requester
        if not 0 <= pair < total:
            continue
        psn, end = number(frame, udp + PSN, 3), first[pair + 1] - first[pair]
        # A SACK's number, the first missing packet's, may be the one behind the last.
        if psn >= end + (kind == Kind.SACK):
            continue
        at = udp + EXTENSION
        answered = number(frame, at, 4) if kind == Kind.SACK else psn
        if answered >= end:
            continue

        row = rows[n]
        n += 1
        dscp, ecn = traffic_class(frame) >> 2, traffic_class(frame) & 3
        row.queue_pair, row.psn, row.kind = pair, psn, kind
        row.entropy = number(frame, udp + SOURCE_PORT, 2)
        row.marked = ecn == 3
        row.last_hop = dscp == last_hop_dscp
        row.trimmed = row.last_hop or dscp == trimmed_dscp
        if kind == Kind.ACK and frame[at] >> 5 == _NAK_TYPE:
            row.kind = Kind.NAK
        elif kind == Kind.SACK:
            row.echo_psn = answered
            row.echo = number(frame, at + 4, 2)
            row.echo_marked = frame[at + 6] & 0x80 != 0
            row.bitmap = number(frame, at + 8, 8) & existing(end - psn)
            row.value = number(frame, at + 16, 8)
        elif kind == Kind.TRIM_NACK or kind == Kind.PROBE or kind == Kind.PROBE_ACK:
            row.echo_psn = psn
            row.echo = number(frame, at, 2)
            if kind == Kind.TRIM_NACK:
                row.last_hop = frame[at + 2] == NackCode.TRIMMED_LAST_HOP
    return n


def _table(data: Sequence[int], control: Mapping[int, Kind]) -> NDArray[np.uint8]:
    """Return (256,) the kind of packet that each opcode makes."""
    kinds = np.full(256, _NO_KIND, np.uint8)
    kinds[[int(opcode) for opcode in data]] = Kind.DATA
    for opcode, kind in control.items():
        kinds[opcode] = kind
    return kinds


_KINDS_OF_RC = _table(RC_DATA, {Opcode.RC_ACKNOWLEDGE: Kind.ACK, Opcode.CNP: Kind.CNP})
_KINDS_OF_MRC = _table(
    MRC_DATA,
    {
        MrcOpcode.SACK: Kind.SACK,
        MrcOpcode.NACK: Kind.TRIM_NACK,
        MrcOpcode.PROBE: Kind.PROBE,
        MrcOpcode.PROBE_ACK: Kind.PROBE_ACK,
    },
)
