"""The RoCEv2 invariant CRC: of a whole frame, and tables for whoever changes bytes of many.

Source: InfiniBand Architecture Specification, annex A17.3.3; Linux
``drivers/infiniband/sw/rxe/rxe_icrc.c``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import ICRC_LENGTH, IP, UDP_LENGTH, ip_layout

START = zlib.crc32(b"\xff" * 8)
"""Before the IP header: eight bytes of ones stand where InfiniBand's local route header was."""


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


def byte_tables(distances: Sequence[int]) -> npt.NDArray[np.uint32]:
    """Return what each value of a byte XORs onto the CRC of a message.

    A CRC is linear: crc(a) ^ crc(b) depends on a ^ b alone. So the CRC of a message whose byte
    holds ``value`` is the CRC with the byte zero, XOR the byte's table at ``value``.

    Args:
        distances: for each byte, the number of bytes between it and the message's end.

    Returns:
        (len(distances), 256).
    """
    tables = np.zeros((len(distances), 256), dtype=np.uint32)
    for table, distance in zip(tables, distances, strict=True):
        unchanged = zlib.crc32(bytes(1 + distance))
        for bit in range(8):
            change = zlib.crc32(bytes([1 << bit]) + bytes(distance)) ^ unchanged
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(change)
    return tables
