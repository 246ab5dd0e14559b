"""Received UDP datagrams as columns: what RoCEv2 and Ultra Ethernet have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import (
    DESTINATION_PORT,
    ETHERTYPE,
    IP,
    IPV4,
    IPV4_FRAGMENT,
    IPV6,
    IPV6_NEXT_HEADER,
    SOURCE_PORT,
    UDP_LENGTH,
)

MINIMUM_WIDTH = 98
"""Bytes of a row that reach past the send time of IPv6 data, whichever the transport."""

LEAST_DATAGRAM = 8 + 12
"""Bytes of a UDP header and the shortest transport header: a BTH, or Ultra Ethernet's plain one."""

UDP = 17

# UDP header to the send time behind the longest common headers (RETH and ImmDt).
_WIDTH = 48

Columns = TypeVar("Columns", bound="UdpColumns")


@dataclass(frozen=True, eq=False)
class UdpColumns(ABC):
    """Header fields of n received frames, each (n,); a column is worked out when first read.

    Columns mean nothing where ``found`` is false.

    Attributes:
        found: bool; UDP to the transport's port, not a fragment, 12 bytes behind the UDP header,
            and no shorter than the UDP header says. Source: Linux net/ipv4/udp.c, __udp4_lib_rcv.
        is_ipv6: bool.
        transport: (n, 44 or 48) uint8, the frames from the UDP header on.
        ip_word: uint32, the IP header's first four bytes.
        held: bytes of ``transport`` that belong to the frame.
    """

    found: npt.NDArray[np.bool_]
    is_ipv6: npt.NDArray[np.bool_]
    transport: npt.NDArray[np.uint8]
    ip_word: npt.NDArray[np.uint32]
    held: npt.NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.found)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Self:
        """Return some of the frames."""
        return type(self)(
            self.found[rows],
            self.is_ipv6[rows],
            self.transport[rows],
            self.ip_word[rows],
            self.held[rows],
        )

    @property
    @abstractmethod
    def destination(self) -> npt.NDArray[np.integer]:
        """Number of the connection at the receiver, as the switches count flows."""

    @property
    @abstractmethod
    def psn(self) -> npt.NDArray[np.integer]:
        """Packet sequence number."""

    @property
    @abstractmethod
    def path_stamp(self) -> npt.NDArray[np.uint8]:
        """uint8 below 64, where the emulator's switches write."""

    @property
    @abstractmethod
    def send_ns(self) -> npt.NDArray[np.uint64]:
        """uint64 from the payload's first eight bytes; 0 where there is no such payload."""

    @property
    @abstractmethod
    def probe(self) -> npt.NDArray[np.bool_]:
        """Whether it asks if a path works and carries no data, though it goes where data goes."""

    @cached_property
    def dscp(self) -> npt.NDArray[np.uint8]:
        """Differentiated services code point."""
        return self._traffic_class >> np.uint8(2)

    @cached_property
    def ecn(self) -> npt.NDArray[np.uint8]:
        """Explicit congestion notification bits; 3 is congestion experienced."""
        return self._traffic_class & np.uint8(3)

    @cached_property
    def flow_label(self) -> npt.NDArray[np.uint32]:
        """Flow label of IPv6, 0 for IPv4."""
        return np.where(self.is_ipv6, self.ip_word & np.uint32(0xFFFFF), np.uint32(0))

    @cached_property
    def source_port(self) -> npt.NDArray[np.uint16]:
        """UDP source port."""
        return self._half(SOURCE_PORT)

    @cached_property
    def udp_length(self) -> npt.NDArray[np.uint16]:
        """Bytes of the datagram by its own word, UDP header included."""
        return self._half(UDP_LENGTH)

    @cached_property
    def _traffic_class(self) -> npt.NDArray[np.uint8]:
        shift = np.where(self.is_ipv6, np.uint32(20), np.uint32(16))
        return (self.ip_word >> shift & np.uint32(0xFF)).astype(np.uint8)

    def _half(self, offset: int) -> npt.NDArray[np.uint16]:
        return self.transport.view(">u2")[:, offset // 2].astype(np.uint16)

    def _word(self, offset: int) -> npt.NDArray[np.uint32]:
        return self.transport.view(">u4")[:, offset // 4].astype(np.uint32)


def udp_columns(
    kind: type[Columns],
    port: int,
    rows: npt.NDArray[np.uint8],
    lengths: npt.NDArray[np.integer] | None = None,
) -> Columns:
    """Decode frames as a receive ring holds them, IPv4 and IPv6 mixed.

    Nothing in the result refers to ``rows``: the ring's slots may be handed back.

    Args:
        kind: columns of one transport.
        port: its UDP port.
        rows: (n, at least 98) uint8, each row from the Ethernet header on, cut anywhere.
        lengths: (n,) bytes of each frame; what a row holds beyond them is ignored. All bytes
            are taken as the frame's unless given.

    Raises:
        ValueError: rows narrower than 98 bytes.
    """
    width = rows.shape[1]
    if width < MINIMUM_WIDTH:
        raise ValueError(f"rows of {width} bytes; at least {MINIMUM_WIDTH} are needed")
    # Ethertype, version, header length in one word; fragment bits, protocol in another.
    start = _word_at(rows, ETHERTYPE)
    ipv4 = start & 0xFFFFFF00 == (IPV4.ethertype << 16 | 0x4500)
    ipv4 &= _word_at(rows, IPV4_FRAGMENT) & 0x3FFF00FF == UDP
    is_ipv6 = start & 0xFFFFF000 == (IPV6.ethertype << 16 | 0x6000)
    found = ipv4 | (is_ipv6 & (rows[:, IPV6_NEXT_HEADER] == UDP))

    transport = _transport(rows, is_ipv6)
    halves = transport.view(">u2")
    found &= halves[:, DESTINATION_PORT // 2] == port
    found &= halves[:, UDP_LENGTH // 2] >= LEAST_DATAGRAM
    known = width if lengths is None else lengths.astype(np.int64, copy=False)
    datagram = known - np.where(is_ipv6, IPV6.udp, IPV4.udp)
    if lengths is not None:
        found &= halves[:, UDP_LENGTH // 2] <= datagram
    held = np.minimum(datagram, transport.shape[1])
    found &= held >= LEAST_DATAGRAM
    return kind(found, is_ipv6, transport, _word_at(rows, IP).astype(np.uint32), held)


def _transport(
    rows: npt.NDArray[np.uint8], is_ipv6: npt.NDArray[np.bool_]
) -> npt.NDArray[np.uint8]:
    """Copy the bytes from the UDP header on, so that both IP versions line up."""
    width = min(_WIDTH, (rows.shape[1] - IPV6.udp) // 4 * 4)
    ipv4 = rows[:, IPV4.udp : IPV4.udp + width]
    ipv6 = rows[:, IPV6.udp : IPV6.udp + width]
    if not is_ipv6.any():
        return ipv4.copy()
    if is_ipv6.all():
        return ipv6.copy()
    return np.where(is_ipv6[:, np.newaxis], ipv6, ipv4)


def _word_at(rows: npt.NDArray[np.uint8], offset: int) -> npt.NDArray[np.uint32]:
    word: npt.NDArray[np.uint32] = rows[:, offset : offset + 4].view(">u4")[:, 0]
    return word
