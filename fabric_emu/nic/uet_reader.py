"""From received Ultra Ethernet headers to transports' packets; what makes no sense is left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Ints, existing
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.uet_decode import UetColumns
from fabric_emu.wire.uet_layout import (
    ANSWER,
    ANSWER_LENGTH,
    CREDIT_TARGET,
    DESTINATION_PDC,
    MARKED,
    PROBE_ANSWER,
    RETRANSMITTED,
    RUDI_NACK,
    SEND_TIME,
    SYN,
    ControlType,
    NackCode,
    NextHeader,
    PdsType,
)

# Small arrays compare several times faster with these than with enumeration members.
_DATA, _SACK, _TRIM_NACK = (np.uint8(kind) for kind in (Kind.DATA, Kind.SACK, Kind.TRIM_NACK))
_NO_KIND = len(Kind)
_CREDIT_END = CREDIT_TARGET + 4


class UetReader:
    """Reads packets of RUD queue pairs.

    Args:
        space: all packets of the run.
    """

    def __init__(self, space: PacketSpace) -> None:
        self._space = space
        self._total = space.queue_pairs

    def read(self, columns: UetColumns, trimmed_dscp: int, last_hop_dscp: int) -> Packets:
        """Return the packets, without those of no queue pair or packet of the run."""
        total = self._total
        to, back = columns.destination - QPN_BASE, columns.source_pdc - QPN_BASE
        known = (
            columns.found
            & (np.minimum(to, back) >= 0)
            & (to < 2 * total)
            & (np.abs(to - back) == total)
        )
        if not known.all():
            columns = columns.take(known)
            to, back = to[known], back[known]
        pair = np.minimum(to, back)
        kind = _KINDS[columns.prologue]
        psn, present, dscp = columns.psn, columns.present, columns.dscp
        last_hop = dscp == last_hop_dscp
        trimmed = (dscp == trimmed_dscp) | last_hop
        data = kind == _DATA
        packets = Packets.of(
            kind,
            pair,
            psn=psn,
            value=columns.credit * (_HAS_CREDIT[kind] & (present >= _CREDIT_END)),
            entropy=columns.source_port,
            marked=columns.ecn == 3,
            trimmed=trimmed,
            last_hop=last_hop,
            retransmission=data & (columns.prologue & RETRANSMITTED != 0),
        )
        end = self._space.count(pair)
        sound = _read_answers(packets, columns, end) if kind.any() else psn < end
        sound &= (to >= total) == _IS_ANSWER[kind]
        cut = data & trimmed
        sound &= present >= np.where(cut, _LEAST, _NEEDED[kind])
        # Data that lost its payload without a mark would count as arrived.
        size = self._space.size_bytes[self._space.flat(pair, np.minimum(psn, end - 1))]
        sound &= cut | ~data | (columns.udp_length >= SEND_TIME + size)
        return packets if sound.all() else packets.take(sound)


def _read_answers(packets: Packets, columns: UetColumns, end: Ints) -> NDArray[np.bool_]:
    """Add what packets other than data say.

    Args:
        end: (n,) packets of each queue pair in all.

    Returns:
        (n,) whether there are packets of such numbers, and the codes are known.
    """
    kind = packets.kind
    control, sack, nack = kind != _DATA, kind == _SACK, kind == _TRIM_NACK
    psn = columns.psn + sack & 0xFFFFFFFF
    echo_psn = (columns.psn + columns.psn_offset * sack & 0xFFFFFFFF) * control
    echo = columns.second_half * control
    sound: NDArray[np.bool_] = (psn < end + sack) & (echo_psn < end)
    if sack.any():
        echo = np.where(sack, columns.answer_entropy(ANSWER["ACK_CC"]), echo)
        packets.bitmap[:] = existing(columns.sack_bitmap * sack, end - psn)
        sound &= ~sack | (columns.sack_offset == 1)
    if nack.any():
        code = columns.second_half >> 8
        echo = np.where(nack, columns.answer_entropy(ANSWER["NACK"]), echo)
        packets.last_hop[nack] = code[nack] == NackCode.TRIMMED_LAST_HOP
        sound &= ~nack | (code == NackCode.TRIMMED) | (code == NackCode.TRIMMED_LAST_HOP)
    packets.psn[:], packets.echo_psn[:], packets.echo[:] = psn, echo_psn, echo
    packets.echo_marked[:] = (sack | nack) & (columns.prologue & MARKED != 0)
    return sound


def _kinds() -> NDArray[np.uint8]:
    """Return (65536,) the kind of packet that each prologue begins."""
    word = np.arange(1 << 16)
    begins, flags = word >> 7, word & 0x7F
    rows = (
        (PdsType.RUD_CC_REQ, NextHeader.STUB_REQUEST, flags & SYN == 0, Kind.DATA),
        (PdsType.ACK_CC, NextHeader.STUB_RESPONSE, flags & PROBE_ANSWER == 0, Kind.SACK),
        (PdsType.NACK, NextHeader.STUB_RESPONSE, flags & RUDI_NACK == 0, Kind.TRIM_NACK),
        (PdsType.CONTROL, ControlType.CREDIT, flags & SYN == 0, Kind.CREDIT),
        (PdsType.CONTROL, ControlType.PROBE, flags & SYN == 0, Kind.PROBE),
        (PdsType.ACK, NextHeader.STUB_RESPONSE, flags & PROBE_ANSWER != 0, Kind.PROBE_ACK),
    )
    kinds = np.full(len(word), _NO_KIND, np.uint8)
    for pds_type, following, flagged, kind in rows:
        kinds[(begins == pds_type << 4 | following) & flagged] = kind
    return kinds


_KINDS = _kinds()

_HAS_CREDIT = np.zeros(_NO_KIND + 1, bool)
_HAS_CREDIT[[Kind.DATA, Kind.CREDIT]] = True

_IS_ANSWER = np.ones(_NO_KIND + 1, bool)
_IS_ANSWER[[Kind.DATA, Kind.PROBE]] = False

_LEAST = DESTINATION_PDC + 2
"""Bytes from the UDP header on that a trimmed packet must have kept."""

# The same for whole packets of each kind; no frame has 255.
_NEEDED = np.full(_NO_KIND + 1, 255)
_NEEDED[Kind.DATA] = SEND_TIME
_NEEDED[Kind.SACK] = ANSWER["ACK_CC"] + ANSWER_LENGTH
_NEEDED[Kind.TRIM_NACK] = ANSWER["NACK"] + ANSWER_LENGTH
_NEEDED[[Kind.CREDIT, Kind.PROBE]] = _CREDIT_END
_NEEDED[Kind.PROBE_ACK] = ANSWER["ACK"] + ANSWER_LENGTH
