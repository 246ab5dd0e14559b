"""What the NICs' receive program works out ICRCs with."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from fabric_emu.switch.columns import Records
from fabric_emu.wire.icrc import START, byte_tables
from fabric_emu.wire.layout import PAYLOAD_BYTE

POWERS = 17
"""Of two: up to the bytes of the longest frame."""

# These mirror structures of bpf/structures.h, where each field is explained.
_POWER_DTYPE: np.dtype[Any] = np.dtype([("forth", "u4"), ("back", "u4"), ("filled", "u4")])
ICRC_TABLES_DTYPE: np.dtype[Any] = np.dtype(
    [("nibble", "u4", (8 * 16,)), ("start", "u4"), ("powers", _POWER_DTYPE, (POWERS,))]
)

_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320


def write_icrc_tables(entries: Records) -> None:
    """Write the tables.

    Args:
        entries: (1,) of `ICRC_TABLES_DTYPE`.
    """
    of_bytes = byte_tables([3, 2, 1, 0])
    nibbles = np.stack([of_bytes[:, :16], of_bytes[:, ::16]], axis=1)
    entries["nibble"] = nibbles.reshape(-1)
    # zlib inverts a CRC before and after; the program works between the two.
    entries["start"] = START ^ _ONES
    powers = entries["powers"][0]
    forth, back = _X**8, _X ** (_ORDER - 8)
    for k in range(POWERS):
        powers[k] = (forth.bits, back.bits, zlib.crc32(PAYLOAD_BYTE * 2**k, _ONES) ^ _ONES)
        forth, back = forth * forth, back * back


class _Polynomial:
    """A polynomial modulo the CRC's, the highest power in the lowest bit."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __mul__(self, other: _Polynomial) -> _Polynomial:
        total, factor = 0, other.bits
        for power in range(32):
            if self.bits << power & 1 << 31:
                total ^= factor
            factor = factor >> 1 ^ (_POLYNOMIAL if factor & 1 else 0)
        return _Polynomial(total)

    def __pow__(self, exponent: int) -> _Polynomial:
        result, square = _Polynomial(1 << 31), self
        while exponent:
            if exponent & 1:
                result *= square
            square *= square
            exponent >>= 1
        return result


_X = _Polynomial(1 << 30)
_ORDER = (1 << 32) - 1  # the CRC's polynomial is primitive: so many powers of x differ
