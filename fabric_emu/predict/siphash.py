"""The kernel's SipHash-2-4 and Jenkins hash of many short messages, one numpy row per message.

Most 8-byte blocks of the messages hashed here are the same for every message. Blocks up to the
first one that differs cost a few microseconds per call; only the rest run over whole columns,
in place.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012); ``lib/siphash.c``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.uint64]
Block: TypeAlias = int | Column
"""One 64-bit word: the same for every message, or one per message."""

_MASK = (1 << 64) - 1
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_LANES = 5  # v0 to v3 and one temporary
# Zero-dimensional arrays: a Python int would be converted anew by every ufunc call.
_LEFT = {bits: np.array(bits, np.uint64) for bits in (13, 16, 17, 21, 32)}
_RIGHT = {bits: np.array(64 - bits, np.uint64) for bits in _LEFT}


def last_block(length: int, tail: int = 0) -> int:
    """Return the closing block of a message of `length` bytes.

    `tail` is what is left after the whole 8-byte words, read as a little-endian integer.
    """
    return (length & 0xFF) << 56 | tail


def new_lanes(rows: int) -> Column:
    """Return working storage of `siphash24` for that many messages."""
    return np.empty((_LANES, rows), np.uint64)


def siphash24(key: tuple[Block, Block], blocks: Sequence[Block], lanes: Column) -> Column:
    """Return the 64-bit digest of each message, (rows,).

    Args:
        key: the two halves of the 128-bit key, either both ints or at least one column.
        blocks: the message as little-endian words, `last_block` at the end.
        lanes: (5, rows) from `new_lanes`, overwritten; keeping it saves its allocation.
    """
    constant = 0
    if isinstance(key[0], int) and isinstance(key[1], int):
        state = _start(key[0], key[1])
        for block in blocks[:-1]:
            if not isinstance(block, int):
                break
            state = _absorb_constant(state, block)
            constant += 1
        lanes[:4] = np.array(state, np.uint64)[:, np.newaxis]
    else:
        for lane, initial, half in zip(lanes[:4], _INITIAL, (*key, *key), strict=True):
            np.bitwise_xor(np.asarray(half, np.uint64), np.uint64(initial), out=lane)
    v0, v1, v2, v3, spare = lanes
    for block in blocks[constant:]:
        word = np.asarray(block, np.uint64)
        np.bitwise_xor(v3, word, v3)
        _round(v0, v1, v2, v3, spare)
        _round(v0, v1, v2, v3, spare)
        np.bitwise_xor(v0, word, v0)
    np.bitwise_xor(v2, np.uint64(0xFF), v2)
    for _ in range(4):
        _round(v0, v1, v2, v3, spare)
    digest: Column = v0 ^ v1
    digest ^= v2
    digest ^= v3
    return digest


def jhash_2words(a: NDArray[np.uint32], b: NDArray[np.uint32] | np.uint32) -> NDArray[np.uint32]:
    """Return the Jenkins hash of two words, with an initial value of 0.

    Source: ``include/linux/jhash.h``.
    """
    start = np.uint32(0xDEADBEEF + (2 << 2))
    a, b, c = a + start, np.full_like(a, start) + b, np.full_like(a, start)
    c = (c ^ b) - _rotated32(b, 14)
    a = (a ^ c) - _rotated32(c, 11)
    b = (b ^ a) - _rotated32(a, 25)
    c = (c ^ b) - _rotated32(b, 16)
    a = (a ^ c) - _rotated32(c, 4)
    b = (b ^ a) - _rotated32(a, 14)
    return (c ^ b) - _rotated32(b, 24)


def _rotated32(column: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return column << np.uint32(bits) | column >> np.uint32(32 - bits)


def _start(key0: int, key1: int) -> tuple[int, int, int, int]:
    i0, i1, i2, i3 = _INITIAL
    return i0 ^ key0, i1 ^ key1, i2 ^ key0, i3 ^ key1


def _absorb_constant(state: tuple[int, int, int, int], block: int) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v3 ^= block
    for _ in range(2):
        v0 = v0 + v1 & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v2 = v2 + v3 & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = _rotated(v0, 32) + v3 & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = v2 + v1 & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    return v0 ^ block, v1, v2, v3


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(v0: Column, v1: Column, v2: Column, v3: Column, spare: Column) -> None:
    np.add(v0, v1, v0)
    _rotate(v1, 13, spare)
    np.bitwise_xor(v1, v0, v1)
    _rotate(v0, 32, spare)
    np.add(v2, v3, v2)
    _rotate(v3, 16, spare)
    np.bitwise_xor(v3, v2, v3)
    np.add(v0, v3, v0)
    _rotate(v3, 21, spare)
    np.bitwise_xor(v3, v0, v3)
    np.add(v2, v1, v2)
    _rotate(v1, 17, spare)
    np.bitwise_xor(v1, v2, v1)
    _rotate(v2, 32, spare)


def _rotate(lane: Column, bits: int, spare: Column) -> None:
    np.left_shift(lane, _LEFT[bits], spare)
    np.right_shift(lane, _RIGHT[bits], lane)
    np.bitwise_or(lane, spare, lane)
