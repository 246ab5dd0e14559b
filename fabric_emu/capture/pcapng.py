"""Blocks of pcapng files, packets by the thousand.

Source: IETF draft-ietf-opsawg-pcapng, sections 4.1 to 4.6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

INBOUND, OUTBOUND = 1, 2
"""Values of ``epb_flags``: the packet came in at the interface, or left there."""

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_LINKTYPE_ETHERNET = 1
_SHB_OS, _SHB_USERAPPL = 3, 4
_IF_NAME, _IF_DESCRIPTION, _IF_SPEED, _IF_TSRESOL = 2, 3, 8, 9
_ISB_RECEIVED, _ISB_DROPPED = 4, 5
_EPB_FLAGS = 2
_NANOSECONDS = 9
_HEAD, _TAIL = 28, 16
"""Bytes of a packet's block before its data, and behind their padding."""


def section(application: str, operating_system: str) -> bytes:
    """Return what a file begins with."""
    fixed = struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1)
    texts = ((_SHB_OS, operating_system.encode()), (_SHB_USERAPPL, application.encode()))
    return _block(_SECTION, fixed + _options(texts))


def interface(name: str, description: str, speed_bps: int, snap_bytes: int) -> bytes:
    """Return what tells of an interface; the first one in a file has number 0.

    Args:
        name: of the interface.
        description: what it is, in words.
        speed_bps: its rate.
        snap_bytes: most bytes kept of a packet; 0 for all.
    """
    options = (
        (_IF_NAME, name.encode()),
        (_IF_DESCRIPTION, description.encode()),
        (_IF_SPEED, struct.pack("<Q", speed_bps)),
        (_IF_TSRESOL, struct.pack("<B", _NANOSECONDS)),
    )
    fixed = struct.pack("<HHI", _LINKTYPE_ETHERNET, 0, snap_bytes)
    return _block(_INTERFACE, fixed + _options(options))


def packets(
    number: NDArray[np.int64],
    data: NDArray[np.uint8],
    captured: NDArray[np.int64],
    length: NDArray[np.int64],
    time_ns: NDArray[np.int64],
    flags: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """Return the blocks of packets as bytes, in the order given.

    Args:
        number: (n,) of each packet's interface.
        data: (n, width) each packet's bytes; behind them anything.
        captured: (n,) bytes of each packet that are in ``data``.
        length: (n,) bytes that it had.
        time_ns: (n,) since 1970.
        flags: (n,) ``INBOUND`` or ``OUTBOUND``.
    """
    count, width = len(data), int(captured.max(initial=0))
    padded = -(-captured // 4) * 4
    room = -(-width // 4) * 4
    total = _HEAD + padded + _TAIL
    rows = np.empty((count, _HEAD + room + _TAIL), np.uint8)
    head = rows[:, :_HEAD].view("<u4")
    ticks = time_ns.astype(np.uint64)
    columns = (_PACKET, total, number, ticks >> np.uint64(32), ticks & np.uint64(0xFFFFFFFF))
    for i, column in enumerate((*columns, captured, length)):
        head[:, i] = column
    rows[:, _HEAD : _HEAD + width] = data[:, :width]
    tail = np.empty((count, _TAIL // 4), "<u4")
    tail[:] = (_EPB_FLAGS | 4 << 16, 0, 0, 0)
    tail[:, 1], tail[:, 3] = flags, total
    if (captured == width).all():
        rows[:, _HEAD + width : _HEAD + room] = 0
        rows[:, _HEAD + room :] = tail.view(np.uint8)
        return rows.reshape(-1)
    column_of = np.arange(rows.shape[1])
    data_end = (_HEAD + captured)[:, np.newaxis]
    rows[(column_of >= data_end) & (column_of < data_end + 4)] = 0
    at = (_HEAD + padded)[:, np.newaxis] + np.arange(_TAIL)
    np.put_along_axis(rows, at, tail.view(np.uint8), axis=1)
    return rows[column_of < total[:, np.newaxis]]


def statistics(number: int, time_ns: int, received: int, dropped: int) -> bytes:
    """Return what an interface has seen: packets received, and those the kernel had no room for."""
    fixed = struct.pack("<III", number, time_ns >> 32, time_ns & 0xFFFFFFFF)
    counts = ((_ISB_RECEIVED, received), (_ISB_DROPPED, dropped))
    options = _options((code, struct.pack("<Q", count)) for code, count in counts)
    return _block(_STATISTICS, fixed + options)


def _options(options: Iterable[tuple[int, bytes]]) -> bytes:
    parts = [
        struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in options
    ]
    return b"".join(parts) + bytes(4)


def _block(kind: int, body: bytes) -> bytes:
    total = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + total + body + total
