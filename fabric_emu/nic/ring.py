"""Packet rings: a NIC's transmit and receive queues, mapped into memory as numpy columns.

Both are AF_PACKET rings of version TPACKET_V2. A ring is opened inside its host's namespace and
serves it from anywhere afterwards.
Source: Documentation/networking/packet_mmap.rst, net/packet/af_packet.c.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric_emu.errors import HostUnfit

_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_PACKET_TX_RING, _PACKET_LOSS, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 13, 14, 15, 23
_TPACKET_V2 = 1
_ETH_P_ALL = 3

USER, SEND_REQUEST, AVAILABLE = 1, 1, 0
LENGTH_OFFSET, MAC_OFFSET, SECONDS_OFFSET = 4, 12, 16
"""In a slot's header, which begins with the status. Nanoseconds follow the seconds."""

_SEND_DATA = 32
"""Where what is sent begins in its slot: the header, aligned, without its link address."""

VNET_HEADER = 10
_VNET_LINEAR_OFFSET = 2
"""``struct virtio_net_hdr`` before each frame; its ``hdr_len`` says how many of the frame's bytes
go into the linear part of the kernel's buffer. Without it only the Ethernet header does: the rest
stays in the ring's pages, and is copied at the first link and picked apart at every hop.
Source: net/packet/af_packet.c, tpacket_snd; include/uapi/linux/virtio_net.h.
"""

FRAME_OFFSET = _SEND_DATA + VNET_HEADER
"""Where a frame that is sent begins in its slot."""

LINEAR_OFFSET = _SEND_DATA + _VNET_LINEAR_OFFSET

_SO_SNDBUFFORCE, _SO_ATTACH_BPF = 32, 50
_KERNEL_OVERHEAD, _SEND_BUFFER_MOST = 1024, (1 << 30) - 1
"""What a buffer costs the kernel beside its frame; it rounds up and grants twice what is asked."""

LINEAR_MOST = 16_000
"""Longer frames keep their payload in pages: the kernel would have to find them in one piece."""

RECEIVE_SLOT = 256
HEADER_BYTES = 98
"""Bytes kept of each received frame: every header up to the send timestamp, IPv6 included."""

_RECEIVE_LOOK = 512

_MAP_FIXED = 0x10
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


def status_of(slots: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return (...) who owns each slot of (..., bytes) slots."""
    status: NDArray[np.uint32] = slots[..., :4].view(np.uint32)[..., 0]
    return status


def length_of(slots: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return (...) the length of each slot's frame."""
    length: NDArray[np.uint32] = slots[..., LENGTH_OFFSET : LENGTH_OFFSET + 4].view(np.uint32)
    return length[..., 0]


def linear_of(slots: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return (...) how much of each frame to be sent is to be linear."""
    linear: NDArray[np.uint16] = slots[..., LINEAR_OFFSET : LINEAR_OFFSET + 2].view(np.uint16)
    return linear[..., 0]


def time_of(slots: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return (..., 2) seconds and nanoseconds of each received frame."""
    time: NDArray[np.uint32] = slots[..., SECONDS_OFFSET : SECONDS_OFFSET + 8].view(np.uint32)
    return time


def mac_of(slot: NDArray[np.uint8]) -> int:
    """Return where a received frame begins in its slot."""
    return int(slot[MAC_OFFSET : MAC_OFFSET + 2].view(np.uint16)[0])


def _block_geometry(slot_bytes: int, slots: int) -> tuple[int, int, int, int]:
    """Return block size, block count, slot size, slot count; a block must be whole pages."""
    page = mmap.PAGESIZE
    block = slot_bytes
    while block % page:
        block *= 2
    per_block = block // slot_bytes
    blocks = -(-slots // per_block)
    return block, blocks, slot_bytes, blocks * per_block


class AddressSpace:
    """Room for the rings of many NICs side by side, so that one array spans them all.

    Args:
        rings: how many; all of one geometry.

    Attributes:
        bytes: (rings, bytes of each) uint8; None before the first is mapped.
    """

    def __init__(self, rings: int) -> None:
        self._rings, self._mapped = rings, 0
        self.bytes: NDArray[np.uint8] | None = None

    def map(self, fd: int, size: int) -> NDArray[np.uint8]:
        """Map a ring behind the ones before.

        Args:
            fd: its socket.
            size: its bytes.

        Raises:
            OSError: there is no memory for it.
        """
        if self.bytes is None:
            whole = mmap.mmap(-1, self._rings * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.bytes = np.frombuffer(whole, np.uint8).reshape(self._rings, size)
        part = self.bytes[self._mapped]
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _libc.mmap(part.ctypes.data, size, protection, flags, fd, 0) != part.ctypes.data:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._mapped += 1
        return part


class _Ring:
    def __init__(
        self,
        interface: str,
        option: int,
        protocol: int,
        slot: int,
        slots: int,
        space: AddressSpace | None,
    ) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            self._prepare()
            block, blocks, slot, self.slots = _block_geometry(slot, slots)
            geometry = struct.pack("IIII", block, blocks, slot, self.slots)
            self._socket.setsockopt(_SOL_PACKET, option, geometry)
            self._socket.bind((interface, protocol))
            space = space or AddressSpace(1)
            mapped = space.map(self._socket.fileno(), slot * self.slots)
        except OSError as error:
            self._socket.close()
            raise HostUnfit(
                f"packet ring of {slot * slots} bytes on {interface}: {error.strerror}",
                "more memory, fewer hosts or a smaller ring",
            ) from None
        self.slot_bytes = slot
        self._slots = mapped.reshape(self.slots, slot)
        self._status = status_of(self._slots)
        self._head = 0

    def _prepare(self) -> None:
        """Set what must be set before the ring is made."""

    def close(self) -> None:
        """Give the ring back; its columns must not be used any more."""
        del self._slots, self._status  # with the last of its arrays the memory goes
        self._socket.close()


class TransmitRing(_Ring):
    """A NIC's send queue for frames of one length that differ in header and ICRC only.

    Args:
        interface: name, in the calling thread's namespace.
        frame_bytes: length of every frame.
        header_bytes: leading bytes that are written anew for each frame.
        payload: what lies between header and ICRC; written into every slot once.
        slots: queue length in frames.
        space: where to map it; a place of its own when None.
    """

    def __init__(
        self,
        interface: str,
        frame_bytes: int,
        header_bytes: int,
        payload: bytes,
        slots: int,
        space: AddressSpace | None = None,
    ) -> None:
        frame = FRAME_OFFSET
        slot = -(-(frame + frame_bytes) // 256) * 256
        super().__init__(interface, _PACKET_TX_RING, 0, slot, slots, space)
        start, end = frame + header_bytes, frame + frame_bytes - 4
        self._slots[:, start:end] = np.frombuffer(payload, np.uint8)
        length_of(self._slots)[:] = VNET_HEADER + frame_bytes
        linear_of(self._slots)[:] = frame_bytes if frame_bytes <= LINEAR_MOST else header_bytes
        # The ring alone says how much may be on its way, not the socket's send buffer.
        room = min(self.slots * (slot + _KERNEL_OVERHEAD), _SEND_BUFFER_MOST)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, room)
        self._headers = self._slots[:, frame:start]
        self._icrc = self._slots[:, end : end + 4]

    def _prepare(self) -> None:
        # A frame the kernel finds wrong must not stop the ones behind it.
        self._socket.setsockopt(_SOL_PACKET, _PACKET_LOSS, 1)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)

    def room(self, frames: int) -> bool:
        """Tell whether ``frames`` more can be queued; frames leave in order."""
        return bool(self._status[(self._head + frames - 1) % self.slots] == AVAILABLE)

    def put(self, headers: NDArray[np.uint8], icrc: NDArray[np.uint8]) -> None:
        """Queue frames; there must be room.

        Args:
            headers: (n, header_bytes) uint8.
            icrc: (n, 4) uint8, as on the wire.
        """
        start, n = self._head, len(headers)
        first = min(n, self.slots - start)
        for at, part in ((start, slice(0, first)), (0, slice(first, n))):
            span = slice(at, at + part.stop - part.start)
            if span.stop > span.start:
                self._headers[span] = headers[part]
                self._icrc[span] = icrc[part]
                self._status[span] = SEND_REQUEST
        self._head = (start + n) % self.slots

    def kick(self) -> None:
        """Hand what is queued to the kernel; it returns at once."""
        try:
            self._socket.send(b"", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError as error:
            # The shaper's queue is full: the frames stay in the ring.
            if error.errno not in _CONGESTED:
                raise

    def pending(self) -> int:
        """Return how many frames the kernel has not freed yet."""
        return int(np.count_nonzero(self._status != AVAILABLE))

    def close(self) -> None:
        """Give the ring back."""
        del self._headers, self._icrc
        super().close()


_CONGESTED = (105, 12)  # ENOBUFS, ENOMEM


class Received(NamedTuple):
    """Frames as they came.

    Attributes:
        headers: (n, HEADER_BYTES) uint8, from the Ethernet header on; short frames padded with
            what was in the slot before.
        lengths: (n,) uint32, of the whole frames.
        arrival_ns: (n,) int64, kernel time stamps, CLOCK_REALTIME.
    """

    headers: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    arrival_ns: NDArray[np.int64]


class ReceiveRing(_Ring):
    """A NIC's receive queue; keeps the headers of everything that arrives.

    Args:
        interface: name, in the calling thread's namespace.
        slots: queue length in frames.
        space: where to map it; a place of its own when None.
        program: descriptor of the program that says which frames get in; None lets in all.

    Fidelity: a NIC works out each packet's ICRC from all its bytes. Here the program takes payloads
    for what NICs fill them with, and reads them only where the ICRC then does not fit; so what
    changed in a payload alone goes unseen, unless a scheme says ``nic: {check_payloads: true}``.
    Nothing checks packets of Ultra Ethernet, which have no ICRC, nor trimmed ones.
    """

    def __init__(
        self,
        interface: str,
        slots: int,
        space: AddressSpace | None = None,
        program: int | None = None,
    ) -> None:
        self._program = program
        super().__init__(interface, _PACKET_RX_RING, _ETH_P_ALL, RECEIVE_SLOT, slots, space)
        self._lengths = length_of(self._slots)
        self._time = time_of(self._slots)
        self._mac = 0

    def _prepare(self) -> None:
        self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        if self._program is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, self._program)

    def take(self) -> Received | None:
        """Return what has arrived since the last call, in order, or None."""
        start = self._head
        if not self._status[start] & USER:
            return None
        window = self._status[start : start + _RECEIVE_LOOK] & USER
        n = len(window) if window.all() else int(window.argmin())
        span = slice(start, start + n)
        # The kernel places frames at the same offset in every slot.
        mac = self._mac = self._mac or mac_of(self._slots[start])
        clock = self._time[span].astype(np.int64)
        received = Received(
            self._slots[span, mac : mac + HEADER_BYTES].copy(),
            self._lengths[span].copy(),
            clock[:, 0] * 1_000_000_000 + clock[:, 1],
        )
        self._status[span] = 0
        self._head = (start + n) % self.slots
        return received

    def dropped(self) -> int:
        """Return frames lost because the ring was full, since the last call."""
        data = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        return int(struct.unpack_from("I", data, 4)[0])

    def close(self) -> None:
        """Give the ring back."""
        del self._lengths, self._time
        super().close()
