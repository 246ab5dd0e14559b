"""From received RoCEv2 headers to transports' packets; whatever makes no sense is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Ints, existing
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.decode import HeaderColumns
from fabric_emu.wire.layout import EXTENSION, Opcode, Syndrome
from fabric_emu.wire.mrc import MrcOpcode, NackCode

# In the order of ``Places``' bits.
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

# Small arrays compare several times faster with these than with enumeration members.
_DATA, _ACK, _NAK, _SACK, _TRIM_NACK = (
    np.uint8(kind) for kind in (Kind.DATA, Kind.ACK, Kind.NAK, Kind.SACK, Kind.TRIM_NACK)
)
_NO_KIND = len(Kind)
_SYNDROME_NAK = np.uint8(Syndrome.NAK_PSN_SEQUENCE_ERROR >> 5)
_LAST_HOP = int(NackCode.TRIMMED_LAST_HOP)
_FIRST_WORD = EXTENSION // 4
_ANSWER = _FIRST_WORD + 6


class RoceReader:
    """Reads packets of RC or MRC queue pairs.

    Args:
        space: all packets of the run.
        mrc: expect MRC's opcodes and answers instead of RC's.
    """

    def __init__(self, space: PacketSpace, mrc: bool) -> None:
        self._space = space
        self._total = space.queue_pairs
        self._mrc = mrc
        self._kinds = _KINDS_OF_MRC if mrc else _KINDS_OF_RC

    def read(self, columns: HeaderColumns, trimmed_dscp: int, last_hop_dscp: int) -> Packets:
        """Return the packets, without those of no queue pair or packet of the run."""
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
        if not kind.any():
            sound = psn < end
        elif self._mrc:
            sound = _read_mrc(packets, columns, end)
        else:
            kind[(kind == _ACK) & (columns.syndrome >> 5 == _SYNDROME_NAK)] = _NAK
            packets.kind[:] = kind
            sound = psn < end
        sound &= np.minimum(columns.held, columns.udp_length) >= _NEEDED[kind]
        sound &= answer == _IS_ANSWER[kind]
        return packets if sound.all() else packets.take(sound)


def _read_mrc(packets: Packets, columns: HeaderColumns, end: Ints) -> NDArray[np.bool_]:
    """Add what MRC's control packets say.

    Args:
        end: (n,) packets of each queue pair in all.

    Returns:
        (n,) whether there are packets of such numbers.
    """
    kind, psn = packets.kind, packets.psn
    control, sack = kind != _DATA, kind == _SACK
    words = columns.transport.view(">u4").T[_FIRST_WORD:_ANSWER].astype(np.int64)
    echo_psn = np.where(sack, words[0], psn)
    packets.echo_psn[:] = echo_psn * control
    packets.echo[:] = np.where(sack, words[1], words[0]) * control >> 16
    nack = (kind == _TRIM_NACK).nonzero()[0]
    if len(nack):
        packets.last_hop[nack] = words[0][nack] >> 8 & 0xFF == _LAST_HOP
    if sack.any():
        packets.echo_marked[:] = sack & (words[1] & 0x8000 != 0)
        bitmap = columns.transport[:, EXTENSION + 8 : EXTENSION + 16].view(">u8")[:, 0]
        packets.bitmap[:] = existing(bitmap.astype(np.uint64) * sack, end - psn)
        packets.value[:] = (words[4] << 32 | words[5]) * sack
    # A SACK's number, the first missing packet's, may be the one behind the last.
    sound: NDArray[np.bool_] = (psn < end + sack) & (echo_psn < end)
    return sound


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

# Bytes from the UDP header on that a packet of each kind must have; no frame has 255.
_NEEDED = np.full(_NO_KIND + 1, 255)
_NEEDED[[Kind.DATA, Kind.CNP]] = EXTENSION
_NEEDED[[Kind.ACK, Kind.NAK, Kind.TRIM_NACK, Kind.PROBE, Kind.PROBE_ACK]] = EXTENSION + 4
_NEEDED[Kind.SACK] = EXTENSION + 24

_IS_ANSWER = np.ones(_NO_KIND + 1, bool)
_IS_ANSWER[[Kind.DATA, Kind.PROBE]] = False
