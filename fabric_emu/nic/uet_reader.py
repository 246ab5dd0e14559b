"""From received Ultra Ethernet headers to transports' packets; what makes no sense is left out."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Lengths, existing
from fabric_emu.nic.transport.packets import DTYPE, Kind, Packets, Rows
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.datagram import number, traffic_class, udp_of
from fabric_emu.wire.layout import SOURCE_PORT, UDP_LENGTH
from fabric_emu.wire.udp import MINIMUM_WIDTH
from fabric_emu.wire.uet_layout import (
    ANSWER,
    ANSWER_ENTROPY,
    ANSWER_LENGTH,
    CREDIT_MASK,
    CREDIT_TARGET,
    DESTINATION_PDC,
    MARKED,
    PROBE_ANSWER,
    PROLOGUE,
    PSN,
    PSN_OFFSET,
    RETRANSMITTED,
    RUDI_NACK,
    SACK_BITMAP,
    SACK_OFFSET,
    SEND_TIME,
    SOURCE_PDC,
    SYN,
    UET_PORT,
    ControlType,
    NackCode,
    NextHeader,
    PdsType,
    prologue,
)

_NO_KIND = len(Kind)
_CREDIT_END = CREDIT_TARGET + 4
_SACK_ANSWER, _NACK_ANSWER, _ACK_ANSWER = ANSWER["ACK_CC"], ANSWER["NACK"], ANSWER["ACK"]

# Prologues without their flags.
_FLAGS = 0x7F
_DATA = prologue(PdsType.RUD_CC_REQ, NextHeader.STUB_REQUEST)
_SACK = prologue(PdsType.ACK_CC, NextHeader.STUB_RESPONSE)
_NACK = prologue(PdsType.NACK, NextHeader.STUB_RESPONSE)
_CREDIT = prologue(PdsType.CONTROL, ControlType.CREDIT)
_PROBE = prologue(PdsType.CONTROL, ControlType.PROBE)
_PROBE_ACK = prologue(PdsType.ACK, NextHeader.STUB_RESPONSE)


class UetReader:
    """Reads packets of RUD queue pairs.

    Args:
        space: all packets of the run.
    """

    def __init__(self, space: PacketSpace) -> None:
        self._first, self._size_bytes = space.first, space.size_bytes

    def read(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of frames, without those of no queue pair or packet of the run.

        Args: see ``FrameFormat.received``.
        """
        rows = np.zeros(len(headers), DTYPE)
        n = _read(
            headers, lengths, self._first, self._size_bytes, trimmed_dscp, last_hop_dscp, rows
        )
        return Packets(rows[:n])


@compiled
def _kind(start: int) -> int:
    """Return the kind of packet that a prologue begins."""
    begins, flags = start & ~_FLAGS, start & _FLAGS
    if begins == _DATA and not flags & SYN:
        return Kind.DATA.value
    if begins == _SACK and not flags & PROBE_ANSWER:
        return Kind.SACK.value
    if begins == _NACK and not flags & RUDI_NACK:
        return Kind.TRIM_NACK.value
    if begins == _CREDIT and not flags & SYN:
        return Kind.CREDIT.value
    if begins == _PROBE and not flags & SYN:
        return Kind.PROBE.value
    if begins == _PROBE_ACK and flags & PROBE_ANSWER:
        return Kind.PROBE_ACK.value
    return _NO_KIND


@compiled
def _needed(kind: int) -> int:
    """Return the bytes from the UDP header on that a packet must have, unless it was trimmed."""
    if kind == Kind.DATA:
        return SEND_TIME
    if kind == Kind.SACK:
        return _SACK_ANSWER + ANSWER_LENGTH
    if kind == Kind.TRIM_NACK:
        return _NACK_ANSWER + ANSWER_LENGTH
    if kind == Kind.PROBE_ACK:
        return _ACK_ANSWER + ANSWER_LENGTH
    return _CREDIT_END


@compiled
def _read(
    headers: ByteTable,
    lengths: Lengths,
    first: Ints,
    size_bytes: Ints,
    trimmed_dscp: int,
    last_hop_dscp: int,
    rows: Rows,
) -> int:
    """Write rows, all zeros, of the packets that make sense; return how many.

    Args:
        first, size_bytes: see ``PacketSpace``.
    """
    if headers.shape[1] < MINIMUM_WIDTH:
        raise ValueError("rows are too short")
    total = len(first) - 1
    n = 0
    for i in range(len(headers)):
        frame = headers[i]
        udp = udp_of(frame, lengths[i], UET_PORT)
        if not udp:
            continue
        start = number(frame, udp + PROLOGUE, 2)
        kind = _kind(start)
        if kind == _NO_KIND:
            continue
        target = number(frame, udp + DESTINATION_PDC, 2) - QPN_BASE
        initiator = number(frame, udp + SOURCE_PDC, 2) - QPN_BASE
        if kind != Kind.DATA and kind != Kind.PROBE:
            target, initiator = initiator, target
        if not 0 <= target < total or initiator != target + total:
            continue
        dscp, ecn = traffic_class(frame) >> 2, traffic_class(frame) & 3
        last_hop = dscp == last_hop_dscp
        trimmed = last_hop or dscp == trimmed_dscp
        size = number(frame, udp + UDP_LENGTH, 2)
        cut = kind == Kind.DATA and trimmed
        if not cut and size < _needed(kind):
            continue
        psn, end = number(frame, udp + PSN, 4), first[target + 1] - first[target]
        half = number(frame, udp + PSN_OFFSET, 2)
        answered = psn
        if kind == Kind.SACK:
            # From the last in order, which is -1 at first, to the first that is missing.
            answered = psn + (half ^ 0x8000) - 0x8000 & 0xFFFFFFFF
            psn = psn + 1 & 0xFFFFFFFF
            if psn > end or answered >= end or number(frame, udp + SACK_OFFSET, 2) != 1:
                continue
        elif psn >= end:
            continue
        # Data that lost its payload without a mark would count as arrived.
        if kind == Kind.DATA and not cut and size < SEND_TIME + size_bytes[first[target] + psn]:
            continue
        if kind == Kind.TRIM_NACK:
            last_hop = half >> 8 == NackCode.TRIMMED_LAST_HOP
            if not last_hop and half >> 8 != NackCode.TRIMMED:
                continue

        row = rows[n]
        n += 1
        row.queue_pair, row.psn, row.kind = target, psn, kind
        row.entropy = number(frame, udp + SOURCE_PORT, 2)
        row.marked, row.trimmed, row.last_hop = ecn == 3, trimmed, last_hop
        if kind == Kind.DATA:
            row.retransmission = start & RETRANSMITTED != 0
        else:
            row.echo_psn, row.echo = answered, half
        if (kind == Kind.DATA or kind == Kind.CREDIT) and size >= _CREDIT_END:
            row.value = number(frame, udp + CREDIT_TARGET, 4) & CREDIT_MASK
        if kind == Kind.SACK:
            row.echo = number(frame, udp + _SACK_ANSWER + ANSWER_ENTROPY, 2)
            row.echo_marked = start & MARKED != 0
            row.bitmap = number(frame, udp + SACK_BITMAP, 8) & existing(end - psn)
        elif kind == Kind.TRIM_NACK:
            row.echo = number(frame, udp + _NACK_ANSWER + ANSWER_ENTROPY, 2)
            row.echo_marked = start & MARKED != 0
    return n
