"""A ring that keeps whole frames of one interface, both directions or what arrives only.

Source: Documentation/networking/packet_mmap.rst; net/packet/af_packet.c, tpacket_rcv.
"""

from __future__ import annotations

import mmap
import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric_emu.capture.pcapng import INBOUND, OUTBOUND
from fabric_emu.errors import HostUnfit

_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _PACKET_IGNORE_OUTGOING = 5, 6, 10, 23
_TPACKET_V2 = 1
_ETH_P_ALL = 3
_USER = 1
_STATUS, _LENGTH, _CAPTURED, _SECONDS, _NANOSECONDS = 0, 1, 2, 4, 5
"""32-bit words of ``struct tpacket2_hdr``."""
_MAC, _PACKET_TYPE = 12, 42
"""Bytes of it, and of the ``struct sockaddr_ll`` behind it: where the frame begins; its type."""
_PACKET_OUTGOING = 4
_BEFORE_FRAME = 96
"""More than tpacket2_hdr, sockaddr_ll and the alignment of the network header take."""

BLOCK_BYTES = 1 << 18
_TAKE_MAX = 1024


class Frames(NamedTuple):
    """Frames as they passed.

    Attributes:
        data: (n, width) uint8; behind a frame's end, anything.
        captured, length: (n,) bytes kept of each, and its length.
        time_ns: (n,) kernel time stamps, CLOCK_REALTIME.
        flags: (n,) ``INBOUND`` or ``OUTBOUND``.
    """

    data: NDArray[np.uint8]
    captured: NDArray[np.int64]
    length: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    flags: NDArray[np.int64]


class CaptureRing:
    """Whole frames of an interface of the calling thread's namespace.

    Args:
        interface: its name.
        frame_bytes: of the longest frame.
        ring_bytes: how much the kernel holds until it is taken.
        outgoing: whether to keep what leaves, too.

    Raises:
        HostUnfit: the kernel does not give as much memory.
    """

    def __init__(
        self, interface: str, frame_bytes: int, ring_bytes: int, *, outgoing: bool
    ) -> None:
        slot = -(-(_BEFORE_FRAME + frame_bytes) // 64) * 64
        # The kernel leaves the end of a block that no slot fits into unused.
        block = BLOCK_BYTES if slot <= BLOCK_BYTES else -(-slot // mmap.PAGESIZE) * mmap.PAGESIZE
        per_block = block // slot
        blocks = max(ring_bytes // block, 4)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            if not outgoing:
                self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            geometry = struct.pack("IIII", block, blocks, slot, blocks * per_block)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, geometry)
            self._socket.bind((interface, _ETH_P_ALL))
            self._map = mmap.mmap(self._socket.fileno(), block * blocks)
        except OSError as error:
            self._socket.close()
            raise HostUnfit(
                f"capture ring of {ring_bytes} bytes on {interface}: {error.strerror}",
                "more memory, or fewer captures",
            ) from None
        whole = np.frombuffer(self._map, np.uint8).reshape(blocks, block)
        self._blocks = whole[:, : per_block * slot].reshape(blocks, per_block, slot)
        self._words = self._blocks[:, :, :32].view(np.uint32)
        self._block = self._slot = 0

    def take(self, before_ns: int) -> Frames | None:
        """Return frames from before a time, in order, the kernel's slots free again; or None.

        One call returns a block's at most: call until there are none.
        """
        words = self._words[self._block, self._slot :][:_TAKE_MAX]
        status = words[:, _STATUS] & _USER
        count = len(status) if status.all() else int(status.argmin())
        if not count:
            return None
        words = words[:count]
        time_ns = words[:, _SECONDS].astype(np.int64) * 1_000_000_000 + words[:, _NANOSECONDS]
        if time_ns[-1] >= before_ns:
            count = int(np.argmax(time_ns >= before_ns))
            if not count:
                return None
        slots = self._blocks[self._block, self._slot :][:count]
        found = self._copy(slots, words[:count].astype(np.int64), time_ns[:count])
        words[:count, _STATUS] = 0
        self._slot += count
        if self._slot == self._blocks.shape[1]:
            self._block, self._slot = (self._block + 1) % len(self._blocks), 0
        return found

    def _copy(
        self, slots: NDArray[np.uint8], words: NDArray[np.int64], time_ns: NDArray[np.int64]
    ) -> Frames:
        captured = words[:, _CAPTURED]
        width = int(captured.max())
        begins = slots[:, _MAC : _MAC + 2].view(np.uint16)[:, 0]
        data = np.empty((len(slots), width), np.uint8)
        for begin in set(begins.tolist()):  # one, in practice
            rows = begins == begin
            data[rows] = slots[rows, begin : begin + width]
        outgoing = slots[:, _PACKET_TYPE] == _PACKET_OUTGOING
        flags = np.where(outgoing, OUTBOUND, INBOUND).astype(np.int64)
        return Frames(data, captured, words[:, _LENGTH], time_ns, flags)

    def statistics(self) -> tuple[int, int]:
        """Return (frames kept, frames that the full ring lost) since the last call."""
        data = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        seen, dropped = struct.unpack("II", data)
        return seen - dropped, dropped

    def close(self) -> None:
        """Give the ring back."""
        del self._words, self._blocks
        self._socket.close()
        self._map.close()
