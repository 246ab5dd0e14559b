"""What transports' frames have in common, whatever their headers: ends, an interface, places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import compiled
from fabric_emu.nic.transport.packets import Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.udp import UdpColumns

if TYPE_CHECKING:
    from fabric_emu.wire.rocev2 import Envelope

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

    @classmethod
    def room(cls, count: int, header_length: int) -> Frames:
        """Return frames that have yet to be written."""
        rows = np.empty((count, header_length), np.uint8)
        return cls(rows, np.empty(count, np.int64), np.empty((count, TAIL), np.uint8))

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


class Reader(Protocol):
    """Makes packets of received frames."""

    def read(
        self, headers: Bytes, lengths: Lengths, trimmed_dscp: int, last_hop_dscp: int
    ) -> Packets:
        """Return the packets of received frames; frames of no queue pair of the run are left out.

        Args:
            headers: (n, at least 98) uint8, from the Ethernet header on.
            lengths: (n,) uint32 bytes of each frame.
            trimmed_dscp, last_hop_dscp: what switches set on frames they trim.
        """


class Writer(Protocol):
    """Makes frames of packets to send."""

    def write(self, packets: Packets, now_ns: int) -> Frames:
        """Return the frames of packets, in their order."""


@dataclass(frozen=True)
class FrameFormat:
    """How the packets of a worker look on the wire.

    Attributes:
        length: bytes of a full data frame.
        header_length: bytes of it written anew for each packet.
        payload: what lies between them and the last four bytes of a full frame; of shorter ones
            the beginning of it.
        reader, writer: from frames to packets and back.
        columns: returns the header fields of received frames, given their headers and lengths.
    """

    length: int
    header_length: int
    payload: Bytes
    reader: Reader
    writer: Writer
    columns: Callable[[Bytes, NDArray[np.integer]], UdpColumns]


PartOf = NDArray[np.int32]

FIRST, LAST = 1, 2
"""Bits of a packet's place in its part."""


def part_starts(space: PacketSpace) -> Ints:
    """Return (parts + 1,) the flat number of each part's first packet, and the end."""
    return np.searchsorted(space.part_of, np.arange(len(space.part_message) + 1))


@compiled
def place_of(flat: int, part_of: PartOf, starts: Ints) -> tuple[int, int, int]:
    """Return a packet's part, its rank in it, and its ``FIRST`` and ``LAST`` bits.

    Args:
        flat: its flat number.
        part_of: (packets,) ``PacketSpace.part_of``.
        starts: (parts + 1,) ``part_starts``.
    """
    part = part_of[flat]
    rank = flat - starts[part]
    place = 0
    if rank == 0:
        place |= FIRST
    if flat + 1 == starts[part + 1]:
        place |= LAST
    return part, rank, place


@compiled
def existing(packets: int) -> int:
    """Return a bitmap's bits, the lowest first, that speak of packets there are.

    Args:
        packets: how many there are from the first bit's on.
    """
    return (1 << packets) - 1 if packets < 64 else -1
