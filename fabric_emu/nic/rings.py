"""The rings of all NICs of a worker as one array: a few numpy calls serve them together.

What one call costs on a few frames is many times what a frame more costs, and a worker goes round
its NICs hundreds of times a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.ring import (
    AVAILABLE,
    FRAME_OFFSET,
    HEADER_BYTES,
    LINEAR_MOST,
    RECEIVE_SLOT,
    SEND_REQUEST,
    USER,
    VNET_HEADER,
    AddressSpace,
    Received,
    ReceiveRing,
    TransmitRing,
    length_of,
    linear_of,
    mac_of,
    status_of,
    time_of,
)

Ints = NDArray[np.int64]

_FOUR = np.arange(4)
_LOOK = 16


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
        self._frame_bytes, self._header_bytes = frame_bytes, header_bytes
        self._payload = np.frombuffer(payload, np.uint8)
        whole = _array(space, self.slots, self._rings[0].slot_bytes)
        self._status, self._length = status_of(whole), length_of(whole)
        self._linear = linear_of(whole)
        self._frames = whole[..., FRAME_OFFSET : FRAME_OFFSET + frame_bytes]
        self._headers = self._frames[..., :header_bytes]
        self._icrc = self._frames[..., frame_bytes - 4 :]
        # Where a short frame's ICRC has spoilt the payload of its slot; 0 for nowhere.
        self._stray = np.zeros(whole.shape[:2], np.int64)
        self._strays = False
        self._head = np.zeros(len(places), np.int64)
        self._tail = np.zeros(len(places), np.int64)  # both count on and on

    def queued(self) -> Ints:
        """Return (rings,) how many frames the kernel has not let go yet."""
        waiting = self._head - self._tail
        most = int(waiting.max())
        if most:
            place = np.arange(most)
            slot = (self._tail[:, None] + place) % self.slots
            kept = self._status[np.arange(len(slot))[:, None], slot] != AVAILABLE
            kept |= place >= waiting[:, None]
            self._tail += np.where(kept.any(axis=1), kept.argmax(axis=1), most)
        return self._head - self._tail

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
        edges = np.searchsorted(ring, np.arange(len(self._rings) + 1))
        place = np.arange(len(ring)) - edges[ring]
        slot = (self._head[ring] + place) % self.slots
        at = ring, slot
        if self._strays:
            self._mend(ring, slot)
        self._headers[at] = headers
        self._length[at] = lengths + VNET_HEADER
        self._linear[at] = lengths if self._frame_bytes <= LINEAR_MOST else self._header_bytes
        full = lengths == self._frame_bytes
        if full.all():
            self._icrc[at] = tails
        else:
            end = lengths - 4
            self._frames[ring[:, None], slot[:, None], end[:, None] + _FOUR] = tails
            stray = (lengths > self._header_bytes) & ~full
            if stray.any():
                # Within the payload: what is before and behind it is written anew each time.
                last = self._frame_bytes - 8
                spoilt = np.clip(end[stray], self._header_bytes, last)
                self._stray[ring[stray], slot[stray]] = spoilt
                self._strays = True
        self._status[at] = SEND_REQUEST
        count = np.diff(edges)
        self._head += count
        for busy in count.nonzero()[0].tolist():
            self._rings[busy].kick()

    def _mend(self, ring: Ints, slot: Ints) -> None:
        """Put payload back where short frames have left their ICRC."""
        spoilt = self._stray[ring, slot].nonzero()[0]
        if not len(spoilt):
            return
        ring, slot = ring[spoilt], slot[spoilt]
        at = self._stray[ring, slot][:, None] + _FOUR
        self._frames[ring[:, None], slot[:, None], at] = self._payload[at - self._header_bytes]
        self._stray[ring, slot] = 0

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
        self._count = self._rings[0].slots if self._rings else slots
        self._slots = _array(space, self._count, RECEIVE_SLOT)
        self._status, self._lengths = status_of(self._slots), length_of(self._slots)
        self._time = time_of(self._slots)
        self._head = np.zeros(len(places), np.int64)
        self._mac = 0

    def take(self) -> tuple[Ints, Received] | None:
        """Return what has arrived since the last call, and (n,) at which ring; None for nothing.

        Ring after ring; of each ring in order of arrival.
        """
        look, every = _LOOK, np.arange(len(self._head))[:, None]
        while True:
            place = np.arange(look)
            slot = (self._head[:, None] + place) % self._count
            empty = self._status[every, slot] & USER == 0
            count = np.where(empty.any(axis=1), empty.argmax(axis=1), look)
            if look >= self._count or not (count == look).any():
                break
            look = min(4 * look, self._count)
        ring, place = (place < count[:, None]).nonzero()
        if not len(ring):
            return None
        at = ring, slot[ring, place]
        # The kernel places frames at the same offset in every slot.
        mac = self._mac = self._mac or mac_of(self._slots[ring[0], at[1][0]])
        clock = self._time[at].astype(np.int64)
        received = Received(
            self._slots[..., mac : mac + HEADER_BYTES][at],
            self._lengths[at],
            clock[:, 0] * 1_000_000_000 + clock[:, 1],
        )
        self._status[at] = AVAILABLE
        self._head += count
        return ring, received

    def dropped(self) -> int:
        """Return frames lost because a ring was full, since the last call."""
        return sum(ring.dropped() for ring in self._rings)
