"""Received frames as columns: one numpy array per header field, no loop over packets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import (
    ACK_REQUEST,
    ACK_REQUEST_BIT,
    BECN_BIT,
    DESTINATION_PORT,
    ETHERTYPE,
    EXTENSION,
    EXTENSION_LENGTH,
    FECN_BIT,
    ICRC_LENGTH,
    IP,
    IPV4,
    IPV4_FRAGMENT,
    IPV6,
    IPV6_NEXT_HEADER,
    OPCODE,
    PAD_COUNT,
    PATH_STAMP,
    PATH_STAMP_MASK,
    ROCEV2_PORT,
    SOURCE_PORT,
    TIMESTAMP_LENGTH,
    UDP_LENGTH,
)

MINIMUM_WIDTH = 98
"""Bytes of a row that reach past the send time of an IPv6 frame with a RETH."""

# UDP header to the send time behind the longest common headers (RETH and ImmDt).
_TRANSPORT_WIDTH = 48
_UDP = 17
_PAYLOAD_START = EXTENSION_LENGTH.astype(np.int32) + EXTENSION
_LOW_24_BITS = np.uint32(0xFFFFFF)


@dataclass(frozen=True, eq=False)
class HeaderColumns:
    """Header fields of n received frames, each (n,); a column is worked out when first read.

    Columns mean nothing where ``is_rocev2`` is false.

    Attributes:
        is_rocev2: bool; UDP port 4791, not a fragment, headers whole as far as the BTH.
        is_ipv6: bool.
        transport: (n, 44 or 48) uint8, the frames from the UDP header on.
        ip_word: uint32, the IP header's first four bytes.
        held: bytes of ``transport`` that belong to the frame.
    """

    is_rocev2: npt.NDArray[np.bool_]
    is_ipv6: npt.NDArray[np.bool_]
    transport: npt.NDArray[np.uint8]
    ip_word: npt.NDArray[np.uint32]
    held: npt.NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.is_rocev2)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> HeaderColumns:
        """Return some of the frames."""
        return HeaderColumns(
            self.is_rocev2[rows],
            self.is_ipv6[rows],
            self.transport[rows],
            self.ip_word[rows],
            self.held[rows],
        )

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
    def opcode(self) -> npt.NDArray[np.uint8]:
        """BTH opcode."""
        return self.transport[:, OPCODE]

    @cached_property
    def qpn(self) -> npt.NDArray[np.uint32]:
        """Destination queue pair number."""
        return self._word(PATH_STAMP) & _LOW_24_BITS

    @cached_property
    def psn(self) -> npt.NDArray[np.uint32]:
        """Packet sequence number, 24 bits."""
        return self._word(ACK_REQUEST) & _LOW_24_BITS

    @cached_property
    def ack_request(self) -> npt.NDArray[np.bool_]:
        """Whether the sender asks for an acknowledgement."""
        return self._flagged(ACK_REQUEST, ACK_REQUEST_BIT)

    @cached_property
    def path_stamp(self) -> npt.NDArray[np.uint8]:
        """uint8 below 64: BTH byte 4's reserved bits, where the emulator's switches write."""
        return self.transport[:, PATH_STAMP] & np.uint8(PATH_STAMP_MASK)

    @cached_property
    def fecn(self) -> npt.NDArray[np.bool_]:
        """Forward congestion notification."""
        return self._flagged(PATH_STAMP, FECN_BIT)

    @cached_property
    def becn(self) -> npt.NDArray[np.bool_]:
        """Backward congestion notification, set in a CNP."""
        return self._flagged(PATH_STAMP, BECN_BIT)

    @cached_property
    def payload_length(self) -> npt.NDArray[np.int32]:
        """Bytes between headers and ICRC, without padding.

        By the UDP length: of a packet trimmed on its way, four less than was left of it.
        """
        pad = self.transport[:, PAD_COUNT] >> np.uint8(4) & np.uint8(3)
        length = self._half(UDP_LENGTH) - self._payload_start - pad - np.int32(ICRC_LENGTH)
        return np.maximum(length, np.int32(0))

    @cached_property
    def send_ns(self) -> npt.NDArray[np.uint64]:
        """uint64 from the payload's first eight bytes; 0 where there is no such payload."""
        start = self._payload_start
        present = start + TIMESTAMP_LENGTH <= np.minimum(self.held, self._half(UDP_LENGTH))
        present &= self.is_rocev2
        # The payload may start at any multiple of four: 64-bit values at a stride of four bytes.
        count, width = self.transport.shape
        stamps: npt.NDArray[np.uint64] = np.ndarray(
            (count, width // 4 - 1), ">u8", self.transport.data, strides=(width, 4)
        )
        chosen = stamps[np.arange(count), np.where(present, start >> 2, 0)]
        return np.where(present, chosen, np.uint64(0)).astype(np.uint64)

    @cached_property
    def syndrome(self) -> npt.NDArray[np.uint8]:
        """AETH syndrome, where the opcode has an AETH."""
        return self.transport[:, EXTENSION]

    @cached_property
    def msn(self) -> npt.NDArray[np.uint32]:
        """AETH message sequence number, where the opcode has an AETH."""
        return self._word(EXTENSION) & _LOW_24_BITS

    @cached_property
    def address(self) -> npt.NDArray[np.uint64]:
        """RETH virtual address, where the opcode has a RETH."""
        return self.transport[:, EXTENSION : EXTENSION + 8].view(">u8")[:, 0].astype(np.uint64)

    @cached_property
    def dma_length(self) -> npt.NDArray[np.uint32]:
        """RETH DMA length in bytes, where the opcode has a RETH."""
        return self._word(EXTENSION + 12)

    @cached_property
    def _traffic_class(self) -> npt.NDArray[np.uint8]:
        shift = np.where(self.is_ipv6, np.uint32(20), np.uint32(16))
        return (self.ip_word >> shift & np.uint32(0xFF)).astype(np.uint8)

    @cached_property
    def _payload_start(self) -> npt.NDArray[np.int32]:
        """From the UDP header."""
        return _PAYLOAD_START.take(self.opcode)

    def _flagged(self, offset: int, bit: int) -> npt.NDArray[np.bool_]:
        flagged: npt.NDArray[np.bool_] = self.transport[:, offset] & np.uint8(bit) != 0
        return flagged

    def _half(self, offset: int) -> npt.NDArray[np.uint16]:
        return self.transport.view(">u2")[:, offset // 2].astype(np.uint16)

    def _word(self, offset: int) -> npt.NDArray[np.uint32]:
        return self.transport.view(">u4")[:, offset // 4].astype(np.uint32)


def decode(
    rows: npt.NDArray[np.uint8], lengths: npt.NDArray[np.integer] | None = None
) -> HeaderColumns:
    """Decode frames as a receive ring holds them, IPv4 and IPv6 mixed.

    Nothing in the result refers to ``rows``: the ring's slots may be handed back.

    Args:
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
    ipv4 &= _word_at(rows, IPV4_FRAGMENT) & 0x3FFF00FF == _UDP
    is_ipv6 = start & 0xFFFFF000 == (IPV6.ethertype << 16 | 0x6000)
    is_rocev2 = ipv4 | (is_ipv6 & (rows[:, IPV6_NEXT_HEADER] == _UDP))

    transport = _transport(rows, is_ipv6)
    halves = transport.view(">u2")
    is_rocev2 &= halves[:, DESTINATION_PORT // 2] == ROCEV2_PORT
    is_rocev2 &= halves[:, UDP_LENGTH // 2] >= EXTENSION
    known = width if lengths is None else lengths.astype(np.int64, copy=False)
    held = np.minimum(known - np.where(is_ipv6, IPV6.udp, IPV4.udp), transport.shape[1])
    is_rocev2 &= held >= EXTENSION
    return HeaderColumns(is_rocev2, is_ipv6, transport, _word_at(rows, IP).astype(np.uint32), held)


def _transport(
    rows: npt.NDArray[np.uint8], is_ipv6: npt.NDArray[np.bool_]
) -> npt.NDArray[np.uint8]:
    """Copy the bytes from the UDP header on, so that both IP versions line up."""
    width = min(_TRANSPORT_WIDTH, (rows.shape[1] - IPV6.udp) // 4 * 4)
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
