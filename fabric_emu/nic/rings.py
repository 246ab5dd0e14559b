"""The rings of all NICs of a worker as one array: one compiled loop serves them together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fabric_emu.compiled import Bytes, ByteTable, Ints, IntTable, compiled
from fabric_emu.nic.ring import (
    AVAILABLE,
    FRAME_OFFSET,
    HEADER_BYTES,
    LENGTH_OFFSET,
    LINEAR_MOST,
    LINEAR_OFFSET,
    MAC_OFFSET,
    RECEIVE_SLOT,
    SECONDS_OFFSET,
    SEND_REQUEST,
    USER,
    VNET_HEADER,
    AddressSpace,
    Received,
    ReceiveRing,
    TransmitRing,
)

# (rings, slots, bytes of a slot), and the same memory as native halves and words.
Slots = Annotated[NDArray[np.uint8], 3]
Halves = Annotated[NDArray[np.uint16], 3]
Words = Annotated[NDArray[np.uint32], 3]
Lengths = NDArray[np.uint32]

_STATUS, _LENGTH = 0, LENGTH_OFFSET // 4
_SECONDS, _NANOSECONDS = SECONDS_OFFSET // 4, SECONDS_OFFSET // 4 + 1
_MAC, _LINEAR = MAC_OFFSET // 2, LINEAR_OFFSET // 2
_SECOND_NS = 1_000_000_000
_TAIL = 4


def _barrier(typing_context: Any) -> Any:
    """Keep what comes before in memory before what comes after, for compiler and processor.

    The kernel reads and writes the slots too: whose a slot is must be known before its bytes are
    read, and its bytes be there before it is given away.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), generate


_fence = cast(Callable[[], None], intrinsic(_barrier))


def _array(space: AddressSpace, slots: int, slot_bytes: int) -> NDArray[np.uint8]:
    """Return (rings, slots, bytes)."""
    mapped = np.empty(0, np.uint8) if space.bytes is None else space.bytes
    return mapped.reshape(-1, slots, slot_bytes)


class TransmitRings:
    """Send queues for full frames and shorter ones, such as acknowledgements, in order.

    Args:
        places: a context for each NIC, inside which its ring is opened, and its interface's name.
        frame_bytes, header_bytes, payload, slots: see ``TransmitRing``; the same for all.
        stack: closes the rings.
    """

    def __init__(
        self,
        places: Iterable[tuple[contextlib.AbstractContextManager[None], str]],
        frame_bytes: int,
        header_bytes: int,
        payload: bytes,
        slots: int,
        stack: contextlib.ExitStack,
    ) -> None:
        places = list(places)
        space = AddressSpace(len(places))
        self._rings: list[TransmitRing] = []
        for inside, interface in places:
            with inside:
                ring = TransmitRing(interface, frame_bytes, header_bytes, payload, slots, space)
            stack.callback(ring.close)
            self._rings.append(ring)
        self.slots = self._rings[0].slots
        self._frame_bytes = frame_bytes
        self._payload = np.frombuffer(payload, np.uint8).copy()
        self._bytes = _array(space, self.slots, self._rings[0].slot_bytes)
        self._halves, self._words = self._bytes.view(np.uint16), self._bytes.view(np.uint32)
        # Where in its frame a short one's ICRC has spoilt the payload of its slot; 0 for nowhere.
        self._stray = np.zeros(self._bytes.shape[:2], np.int64)
        self._head = np.zeros(len(places), np.int64)
        self._tail = np.zeros(len(places), np.int64)  # both count on and on

    def queued(self) -> Ints:
        """Return (rings,) how many frames the kernel has not let go yet."""
        return _queued(self._words, self._head, self._tail)

    def put(
        self,
        ring: Ints,
        headers: NDArray[np.uint8],
        lengths: Ints,
        tails: NDArray[np.uint8],
    ) -> None:
        """Queue frames of any length up to a full one and hand them to the kernel.

        Args:
            ring: (n,) of each frame, ascending; there must be room.
            headers: (n, header_bytes) uint8; of short frames all but the ICRC.
            lengths: (n,) bytes of each frame, ICRC included.
            tails: (n, 4) uint8, the ICRC.
        """
        busy = _put(
            self._bytes,
            self._halves,
            self._words,
            self._head,
            self._stray,
            self._payload,
            ring,
            headers,
            lengths,
            tails,
            self._frame_bytes,
        )
        for each in busy.tolist():
            self._rings[each].kick()

    def pending(self) -> int:
        """Return how many frames the kernel has not freed yet, in all."""
        return sum(ring.pending() for ring in self._rings)


class ReceiveRings:
    """Receive queues; see ``ReceiveRing``.

    Args:
        places: a context for each NIC, inside which its ring is opened, and its interface's name.
        slots: of each.
        stack: closes the rings.
        program: see ``ReceiveRing``.
    """

    def __init__(
        self,
        places: Iterable[tuple[contextlib.AbstractContextManager[None], str]],
        slots: int,
        stack: contextlib.ExitStack,
        program: int | None = None,
    ) -> None:
        places = list(places)
        space = AddressSpace(len(places))
        self._rings: list[ReceiveRing] = []
        for inside, interface in places:
            with inside:
                ring = ReceiveRing(interface, slots, space, program)
            stack.callback(ring.close)
            self._rings.append(ring)
        # A worker of hosts that only send listens nowhere.
        count = self._rings[0].slots if self._rings else slots
        self._bytes = _array(space, count, RECEIVE_SLOT)
        self._halves, self._words = self._bytes.view(np.uint16), self._bytes.view(np.uint32)
        self._head = np.zeros(len(places), np.int64)

    def take(self) -> tuple[Ints, Received] | None:
        """Return what has arrived since the last call, and (n,) at which ring; None for nothing.

        Ring after ring; of each ring in order of arrival.
        """
        ring, headers, lengths, arrival_ns = _take(
            self._bytes, self._halves, self._words, self._head
        )
        return (ring, Received(headers, lengths, arrival_ns)) if len(ring) else None

    def dropped(self) -> int:
        """Return frames lost because a ring was full, since the last call."""
        return sum(ring.dropped() for ring in self._rings)


@compiled
def _queued(words: Words, head: Ints, tail: Ints) -> Ints:
    """Move the tails on past what the kernel has let go; return how many frames are left."""
    rings, slots, _ = words.shape
    queued = np.empty(rings, np.int64)
    for ring in range(rings):
        while tail[ring] < head[ring] and words[ring, tail[ring] % slots, _STATUS] == AVAILABLE:
            tail[ring] += 1
        queued[ring] = head[ring] - tail[ring]
    return queued


@compiled
def _put(
    slots: Slots,
    halves: Halves,
    words: Words,
    head: Ints,
    stray: IntTable,
    payload: Bytes,
    ring: Ints,
    headers: ByteTable,
    lengths: Ints,
    tails: ByteTable,
    frame_bytes: int,
) -> Ints:
    """Write frames into slots; return the rings that got any."""
    header_bytes = headers.shape[1]
    last = frame_bytes - _TAIL
    busy = np.empty(len(ring), np.int64)
    rings = 0
    for i in range(len(ring)):
        at, length = ring[i], lengths[i]
        slot, end = head[at] % words.shape[1], length - _TAIL
        frame = slots[at, slot, FRAME_OFFSET:]
        if stray[at, slot]:
            for byte in range(
                max(stray[at, slot], header_bytes), min(stray[at, slot] + _TAIL, last)
            ):
                frame[byte] = payload[byte - header_bytes]
        # The headers and the end of a full frame are written anew each time, the payload is not.
        stray[at, slot] = end if header_bytes < length < frame_bytes else 0
        for byte in range(header_bytes):
            frame[byte] = headers[i, byte]
        for byte in range(_TAIL):
            frame[end + byte] = tails[i, byte]
        words[at, slot, _LENGTH] = length + VNET_HEADER
        halves[at, slot, _LINEAR] = length if frame_bytes <= LINEAR_MOST else header_bytes
        _fence()
        words[at, slot, _STATUS] = SEND_REQUEST
        head[at] += 1
        if not rings or busy[rings - 1] != at:
            busy[rings] = at
            rings += 1
    return busy[:rings]


@compiled
def _take(
    slots: Slots, halves: Halves, words: Words, head: Ints
) -> tuple[Ints, NDArray[np.uint8], Lengths, Ints]:
    """Return the ring of each frame that has arrived, its headers, length and time."""
    rings, count, _ = words.shape
    arrived = np.zeros(rings, np.int64)
    for ring in range(rings):
        while arrived[ring] < count:
            if not words[ring, (head[ring] + arrived[ring]) % count, _STATUS] & USER:
                break
            arrived[ring] += 1
    _fence()
    n = arrived.sum()
    at = np.empty(n, np.int64)
    headers = np.empty((n, HEADER_BYTES), np.uint8)
    lengths = np.empty(n, np.uint32)
    arrival_ns = np.empty(n, np.int64)
    row = 0
    for ring in range(rings):
        for _ in range(arrived[ring]):
            slot = head[ring] % count
            start = halves[ring, slot, _MAC]
            for byte in range(HEADER_BYTES):
                headers[row, byte] = slots[ring, slot, start + byte]
            at[row] = ring
            lengths[row] = words[ring, slot, _LENGTH]
            seconds = np.int64(words[ring, slot, _SECONDS])
            arrival_ns[row] = seconds * _SECOND_NS + words[ring, slot, _NANOSECONDS]
            _fence()
            words[ring, slot, _STATUS] = AVAILABLE
            head[ring] += 1
            row += 1
    return at, headers, lengths, arrival_ns
