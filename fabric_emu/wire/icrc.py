"""The RoCEv2 invariant CRC: of one frame, and of whole batches of similar frames.

Source: InfiniBand Architecture Specification, annex A17.3.3; Linux
``drivers/infiniband/sw/rxe/rxe_icrc.c``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import ICRC_LENGTH, IP, UDP_LENGTH, ip_layout

START = zlib.crc32(b"\xff" * 8)
"""Before the IP header: eight bytes of ones stand where InfiniBand's local route header was."""

_WORD_VALUES = 1 << 16
_CARRY_STARTS = np.arange(4) * 256


def icrc(frame: bytes | bytearray | memoryview) -> int:
    """Return the ICRC of a whole Ethernet frame; on the wire it stands little-endian.

    The frame's own last four bytes (the ICRC's place) do not matter, nor does anything that
    follows the end of the UDP datagram, such as Ethernet padding.

    Raises:
        ValueError: not a RoCEv2 frame, or cut short.
    """
    layout = ip_layout(frame)
    length_field = layout.udp + UDP_LENGTH
    end = layout.udp + int.from_bytes(frame[length_field : length_field + 2], "big")
    if end > len(frame):
        raise ValueError(f"the frame has {len(frame)} of {end} bytes")
    covered = bytearray(frame[: end - ICRC_LENGTH])
    for offset, bits in layout.masked:
        covered[offset] |= bits
    return zlib.crc32(memoryview(covered)[IP:], START)


@lru_cache(maxsize=16)
def word_tables(distances: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """Return what each value of a 16-bit word XORs onto the CRC of a message.

    A CRC is linear: crc(a) ^ crc(b) depends on a ^ b alone. So the CRC of a message whose word
    holds ``value`` is the CRC with the word zero, XOR the word's table at ``value``.

    Args:
        distances: for each word, the number of bytes between its end and the message's end.

    Returns:
        (len(distances) * 65536,) one table after the other, indexed by the word as this machine
        reads it from memory.
    """
    tables = np.zeros((len(distances), _WORD_VALUES), dtype=np.uint32)
    for table, distance in zip(tables, distances, strict=True):
        unchanged = zlib.crc32(bytes(2 + distance))
        for bit in range(16):
            word = np.uint16(1 << bit).tobytes()
            change = zlib.crc32(word + bytes(distance)) ^ unchanged
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(change)
    flat = tables.reshape(-1)
    flat.flags.writeable = False
    return flat


def carry_tables(distance: int) -> npt.NDArray[np.uint32]:
    """Return what each byte of a CRC becomes when ``distance`` zero bytes follow.

    Returns:
        (4 * 256,) one table after the other, for a CRC's bytes from the lowest on: the XOR of
        their four values is the CRC of the longer message.
    """
    zeros = bytes(distance)
    unchanged = zlib.crc32(zeros)
    tables = np.zeros((4, 256), dtype=np.uint32)
    for bit in range(32):
        table, low = tables[bit // 8], 1 << bit % 8
        change = zlib.crc32(zeros, 1 << bit) ^ unchanged
        table[low : 2 * low] = table[:low] ^ np.uint32(change)
    return tables.reshape(-1)


class BatchIcrc:
    """ICRCs of frames that differ from their flow's template only in a few 16-bit words.

    Args:
        frames: (flows, length) uint8, whole frames of equal length, including the ICRC's place.
        words: even byte offsets of the words that may differ.
        compact: use the same tables, 256 kB a word, as compact batches of other lengths with
            words the same distances apart. Takes a little longer.
    """

    def __init__(
        self, frames: npt.NDArray[np.uint8], words: Sequence[int], compact: bool = False
    ) -> None:
        length = frames.shape[1]
        blank = frames.copy()
        for word in words:
            blank[:, word : word + 2] = 0
        self._base = np.array([icrc(frame.tobytes()) for frame in blank], dtype=np.uint32)
        self._columns = np.array([word // 2 for word in words])
        self._starts = (np.arange(len(words)) * _WORD_VALUES)[:, np.newaxis]
        end = max(words) + 2 if compact else length - ICRC_LENGTH
        self._distances = tuple(end - word - 2 for word in words)
        self._tables = word_tables(self._distances)
        self._carry = carry_tables(length - ICRC_LENGTH - end) if compact else None

    def __getstate__(self) -> dict[str, object]:
        # The tables are many megabytes and quickly made: they do not travel to other processes.
        return {name: value for name, value in vars(self).items() if name != "_tables"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._tables = word_tables(self._distances)

    def icrc(
        self, flow: npt.NDArray[np.integer], rows: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.uint32]:
        """Return (n,) ICRCs.

        Args:
            flow: (n,) index of each frame's template.
            rows: (n, bytes) the frames' first bytes, as far as the last word at least.
        """
        # One (words, n) gather: few numpy calls for small batches, and for large ones the XOR
        # runs along n. Byte-wide tables fit a smaller cache but need twice the look-ups, which
        # costs more at every batch size.
        index = rows.view(np.uint16).T[self._columns] + self._starts
        icrcs: npt.NDArray[np.uint32] = np.bitwise_xor.reduce(self._tables[index], axis=0)
        if self._carry is not None:
            each = icrcs.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4) + _CARRY_STARTS
            icrcs = np.bitwise_xor.reduce(self._carry[each], axis=1)
        icrcs ^= self._base[flow]
        return icrcs
