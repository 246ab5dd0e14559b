"""ICRCs of frames in the making, from rows of their first bytes, in compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.wire.icrc import START, byte_tables, icrc
from fabric_emu.wire.layout import ICRC_LENGTH, IP, IpLayout

_ALL = 0xFFFFFFFF
_FIRST = START ^ _ALL

Icrcs = npt.NDArray[np.uint32]
IcrcTable = Annotated[npt.NDArray[np.uint32], 2]


class BatchIcrc:
    """ICRCs of frames that differ from their flow's template only in a few bytes.

    Args:
        frames: (flows, length) uint8, whole frames of equal length, including the ICRC's place.
        places: offsets of the bytes that may differ.
    """

    def __init__(self, frames: npt.NDArray[np.uint8], places: Sequence[int]) -> None:
        blank = frames.copy()
        blank[:, places] = 0
        self._base = np.array([icrc(frame.tobytes()) for frame in blank], dtype=np.uint32)
        self._places = np.array(places, dtype=np.int64)
        end = frames.shape[1] - ICRC_LENGTH
        self._tables = byte_tables([end - place - 1 for place in places])

    def icrc(
        self, flow: npt.NDArray[np.integer], rows: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.uint32]:
        """Return (n,) ICRCs.

        Args:
            flow: (n,) index of each frame's template.
            rows: (n, bytes) the frames' first bytes, as far as the last that may differ at least.
        """
        icrcs: npt.NDArray[np.uint32] = self._base[flow]
        _change(rows, self._places, self._tables, icrcs)
        return icrcs


@compiled
def _change(rows: ByteTable, places: Ints, tables: IcrcTable, icrcs: Icrcs) -> None:
    """XOR onto ICRCs what the bytes in some places change."""
    for frame in range(len(rows)):
        for place in range(len(places)):
            icrcs[frame] ^= tables[place, rows[frame, places[place]]]


# Half-way through a message a CRC is kept without the complement that zlib returns it with.
_WORD = byte_tables([3, 2, 1, 0]).astype(np.int64)


@compiled
def _behind_word(crc: int) -> int:
    """Return what a CRC becomes behind the four bytes that have been XORed onto it."""
    low = _WORD[0, crc & 0xFF] ^ _WORD[1, crc >> 8 & 0xFF]
    return int(low ^ (_WORD[2, crc >> 16 & 0xFF] ^ _WORD[3, crc >> 24 & 0xFF]))


def fillings(words: int, value: int) -> npt.NDArray[np.uint32]:
    """Return what payload of one value makes of the ICRC that it is behind.

    Returns:
        (words + 1, 33): by the number of four-byte words, what each of the ICRC's bits becomes,
        from the lowest on, and what is added to their sum.
    """
    table = np.zeros((words + 1, 33), np.uint32)
    _fill(table, value * 0x01010101)
    return table


@compiled
def _fill(table: IcrcTable, word: int) -> None:
    for bit in range(32):
        table[0, bit] = 1 << bit
        for words in range(1, len(table)):
            table[words, bit] = _behind_word(table[words - 1, bit])
    for words in range(1, len(table)):
        table[words, 32] = _behind_word(table[words - 1, 32] ^ word)


def icrc_masks(layout: IpLayout, length: int) -> npt.NDArray[np.uint8]:
    """Return (length,) the bits of a frame's first bytes that an ICRC takes as ones."""
    masks = np.zeros(length, np.uint8)
    for offset, bits in layout.masked:
        masks[offset] = bits
    return masks


@compiled
def row_icrc(row: Bytes, length: int, masks: Bytes, fillings: IcrcTable) -> int:
    """Return the ICRC of a frame whose first bytes are in a row, the others filling.

    Args:
        row: (bytes,) from the Ethernet header on; the IP packet up to the row's end, and up to
            the ICRC, is of whole four-byte words.
        length: of the frame, ICRC included.
        masks: (bytes,) ``icrc_masks`` of the frame's IP version.
        fillings: ``fillings`` for at least the words between the row and the ICRC.
    """
    covered = length - ICRC_LENGTH
    crc = _FIRST
    for at in range(IP, min(covered, len(row)), 4):
        word = 0
        for byte in range(4):
            word |= int(row[at + byte] | masks[at + byte]) << 8 * byte
        crc = _behind_word(crc ^ word)
    if covered > len(row):
        filling = fillings[(covered - len(row)) // 4]
        total = int(filling[32])
        for bit in range(32):
            total ^= int(filling[bit]) * (crc >> bit & 1)
        crc = total
    return crc ^ _ALL
