"""Fields of frames in the making, written into copies of a template's first bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bytes, compiled
from fabric_emu.wire.layout import IP, IPV4, IPV4_CHECKSUM, IPV4_LENGTH, IPV6_LENGTH, UDP_LENGTH

_IPV4_UDP = IPV4.udp


def column(rows: NDArray[np.uint8], offset: int, dtype: str) -> NDArray[np.unsignedinteger]:
    """Return one field of every row, in network byte order, to be read or written.

    Args:
        rows: (n, bytes).
        dtype: in network order, such as ``">u4"``.
    """
    view: NDArray[np.unsignedinteger] = rows[:, offset : offset + int(dtype[-1])].view(dtype)[:, 0]
    return view


@compiled
def put(row: Bytes, offset: int, size: int, value: int) -> None:
    """Write the low bytes of a number into a field of ``size`` bytes, in network byte order."""
    for byte in range(size):
        row[offset + byte] = value >> 8 * (size - 1 - byte) & 0xFF


@compiled
def set_length(row: Bytes, udp: int, length: int) -> None:
    """Make the IP and UDP headers say that a frame has this length.

    Args:
        row: (UDP header's end at least,).
        udp: where the UDP header starts.
        length: bytes of the whole frame.
    """
    put(row, udp + UDP_LENGTH, 2, length - udp)
    if udp != _IPV4_UDP:
        put(row, IPV6_LENGTH, 2, length - udp)
        return
    put(row, IPV4_LENGTH, 2, length - IP)
    put(row, IPV4_CHECKSUM, 2, 0)
    total = 0
    for word in range(IP, udp, 2):
        total += int(row[word]) << 8 | int(row[word + 1])
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    put(row, IPV4_CHECKSUM, 2, ~total)
