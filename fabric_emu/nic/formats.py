"""What transports' frames have in common, whatever their headers: ends, batches, an interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import compiled
from fabric_emu.nic.transport.packets import Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.rocev2 import Envelope
from fabric_emu.wire.udp import UdpColumns

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Lengths = NDArray[np.uint32]

TAIL = 4
"""Bytes at the end of every frame that are written anew: RoCEv2's ICRC."""


@dataclass(frozen=True)
class Ends:
    """Addresses of a queue pair's two ends.

    Attributes:
        there: from requester to responder.
        back: from responder to requester.
    """

    there: Envelope
    back: Envelope


@dataclass(frozen=True)
class Frames:
    """Frames to send, in order.

    Attributes:
        rows: (n, header bytes) uint8; of short frames all but the last four bytes, then anything.
        lengths: (n,) int64 bytes of each frame, the last four included.
        tails: (n, 4) uint8, the last four bytes: RoCEv2's ICRC.
    """

    rows: Bytes
    lengths: Ints
    tails: Bytes

    def assemble(self, payload: Bytes) -> list[bytes]:
        """Return whole frames, as the slots of a transmit ring hold them.

        Args:
            payload: of their format.
        """
        slot = np.concatenate([np.zeros(self.rows.shape[1], np.uint8), payload])
        frames = []
        for row, length, tail in zip(self.rows, self.lengths.tolist(), self.tails, strict=True):
            slot[: len(row)] = row
            frames.append(slot[: length - TAIL].tobytes() + tail.tobytes())
        return frames


class FrameBatch:
    """Frames of packets in the making, kind by kind.

    Args:
        packets: what to send.
        header_length: bytes of a row.
        fill: what rows hold where nothing is written.

    Attributes:
        packets: those to send, sorted by kind.
        groups: kind, first and end in ``packets`` of each kind there is.
    """

    def __init__(self, packets: Packets, header_length: int, fill: int) -> None:
        count = np.bincount(packets.kind)
        kinds = count.nonzero()[0]
        self._order: NDArray[np.intp] | None = None
        if len(kinds) > 1:
            self._order = np.argsort(packets.kind, kind="stable")
            packets = packets.take(self._order)
        self.packets = packets
        end = np.cumsum(count)
        self.groups: list[tuple[int, int, int]] = [
            (kind, last - number, last)
            for kind, number, last in zip(
                kinds.tolist(), count[kinds].tolist(), end[kinds].tolist(), strict=True
            )
        ]
        n = len(packets)
        self.rows = np.full((n, header_length), fill, np.uint8)
        self.lengths = np.empty(n, np.int64)
        self.tails = np.empty((n, TAIL), np.uint8)

    def put(self, where: slice | Ints, whole: Bytes) -> None:
        """Take in short frames, (n, length) bytes."""
        self.rows[where, : whole.shape[1] - TAIL] = whole[:, :-TAIL]
        self.lengths[where] = whole.shape[1]
        self.tails[where] = whole[:, -TAIL:]

    def frames(self) -> Frames:
        """Return the frames, in the packets' own order."""
        if self._order is None:
            return Frames(self.rows, self.lengths, self.tails)
        place = np.empty(len(self._order), np.intp)
        place[self._order] = np.arange(len(place))
        return Frames(
            self.rows.take(place, axis=0), self.lengths[place], self.tails.take(place, axis=0)
        )


class FrameFormat(Protocol):
    """Encodes packets to frames and decodes what arrived.

    Attributes:
        length: bytes of a full data frame.
        header_length: bytes of it written anew for each packet.
        payload: what lies between them and the last four bytes of a full frame; of shorter ones
            the beginning of it.
    """

    length: int
    header_length: int
    payload: Bytes

    def encode(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""

    def received(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames; frames of no queue pair of the run are left out.

        Args:
            headers: (n, at least 98) uint8, from the Ethernet header on.
            lengths: (n,) uint32 bytes of each frame.
            trimmed_dscp, last_hop_dscp: what switches set on frames they trim.
        """

    def columns(self, headers: Bytes, lengths: NDArray[np.integer]) -> UdpColumns:
        """Return the header fields of received frames."""


class Places:
    """Where in its part each packet of a run is.

    Args:
        space: the packets of the run.
    """

    FIRST, LAST = 1, 2

    def __init__(self, space: PacketSpace) -> None:
        self._part_of = space.part_of
        self._start = np.searchsorted(space.part_of, np.arange(len(space.part_message) + 1))

    def of(self, flat: Ints) -> tuple[NDArray[np.int32], Ints, Ints]:
        """Return packets' parts, their ranks in them, and their ``FIRST`` and ``LAST`` bits."""
        part = self._part_of[flat]
        start = self._start[part]
        last = flat + 1 == self._start[part + 1]
        return part, flat - start, (flat == start) + last * self.LAST


@compiled
def existing(packets: int) -> int:
    """Return a bitmap's bits, the lowest first, that speak of packets there are.

    Args:
        packets: how many there are from the first bit's on.
    """
    return (1 << packets) - 1 if packets < 64 else -1
