"""Received RoCEv2 frames as columns: one numpy array per header field, no loop over packets."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import (
    ACK_REQUEST,
    ACK_REQUEST_BIT,
    BECN_BIT,
    EXTENSION,
    EXTENSION_LENGTH,
    FECN_BIT,
    ICRC_LENGTH,
    MRC_PROBE,
    OPCODE,
    PAD_COUNT,
    PATH_STAMP,
    PATH_STAMP_MASK,
    ROCEV2_PORT,
    TIMESTAMP_LENGTH,
)
from fabric_emu.wire.udp import MINIMUM_WIDTH, UdpColumns, udp_columns

__all__ = ["MINIMUM_WIDTH", "HeaderColumns", "decode"]

_PAYLOAD_START = EXTENSION_LENGTH.astype(np.int32) + EXTENSION
_LOW_24_BITS = np.uint32(0xFFFFFF)


class HeaderColumns(UdpColumns):
    """Header fields of n received RoCEv2 frames."""

    @property
    def is_rocev2(self) -> npt.NDArray[np.bool_]:
        """``found``: UDP port 4791, not a fragment, headers whole as far as the BTH."""
        return self.found

    @property
    def destination(self) -> npt.NDArray[np.uint32]:
        """Destination queue pair number."""
        return self.qpn

    @cached_property
    def opcode(self) -> npt.NDArray[np.uint8]:
        """BTH opcode."""
        return self.transport[:, OPCODE]

    @property
    def probe(self) -> npt.NDArray[np.bool_]:
        """Whether it asks if a path works and carries no data."""
        probe: npt.NDArray[np.bool_] = self.opcode == np.uint8(MRC_PROBE)
        return probe

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
        length = self.udp_length - self._payload_start - pad - np.int32(ICRC_LENGTH)
        return np.maximum(length, np.int32(0))

    @cached_property
    def send_ns(self) -> npt.NDArray[np.uint64]:
        """uint64 from the payload's first eight bytes; 0 where there is no such payload."""
        start = self._payload_start
        present = start + TIMESTAMP_LENGTH <= np.minimum(self.held, self.udp_length)
        present &= self.found
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
    def _payload_start(self) -> npt.NDArray[np.int32]:
        """From the UDP header."""
        return _PAYLOAD_START.take(self.opcode)

    def _flagged(self, offset: int, bit: int) -> npt.NDArray[np.bool_]:
        flagged: npt.NDArray[np.bool_] = self.transport[:, offset] & np.uint8(bit) != 0
        return flagged


def decode(
    rows: npt.NDArray[np.uint8], lengths: npt.NDArray[np.integer] | None = None
) -> HeaderColumns:
    """Decode RoCEv2 frames; see ``udp_columns``."""
    return udp_columns(HeaderColumns, ROCEV2_PORT, rows, lengths)
