"""Received Ultra Ethernet frames as columns, as ``decode`` does it for RoCEv2."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import TIMESTAMP_LENGTH
from fabric_emu.wire.udp import UdpColumns, udp_columns
from fabric_emu.wire.uet_layout import (
    CREDIT_MASK,
    CREDIT_TARGET,
    PATH_STAMP,
    PATH_STAMP_MASK,
    PROLOGUE,
    PSN,
    REQUEST,
    SACK_BITMAP,
    SEND_TIME,
    SOURCE_PDC,
    UET_PORT,
    ControlType,
    NextHeader,
    PdsType,
    prologue,
)

Ints = npt.NDArray[np.int64]

_SES_LENGTH = 8
_PROBE = prologue(PdsType.CONTROL, ControlType.PROBE) >> 7
_CC_REQUEST = prologue(PdsType.RUD_CC_REQ, NextHeader.STUB_REQUEST) >> 7


class UetColumns(UdpColumns):
    """Header fields of n received Ultra Ethernet frames.

    A field is read wherever it would lie: whether a frame has it, its type and ``present`` tell.
    """

    @property
    def is_uet(self) -> npt.NDArray[np.bool_]:
        """``found``: UDP port 4793, not a fragment, the first twelve bytes of a PDS header."""
        return self.found

    @cached_property
    def present(self) -> Ints:
        """Bytes from the UDP header on that the frame has by all accounts, 44 at most."""
        present: Ints = np.minimum(self.held, self.udp_length).astype(np.int64, copy=False)
        return present

    @cached_property
    def prologue(self) -> Ints:
        """16 bits: packet type, next header, flags."""
        return self._at(PROLOGUE) >> 16

    @property
    def type(self) -> Ints:
        """Packet type."""
        return self.prologue >> 11

    @property
    def probe(self) -> npt.NDArray[np.bool_]:
        """Whether it asks if a path works and carries no data."""
        probe: npt.NDArray[np.bool_] = self.prologue >> 7 == _PROBE
        return probe

    @cached_property
    def psn_offset(self) -> Ints:
        """Signed offset of an ACK or a request."""
        return (self.second_half ^ 0x8000) - 0x8000

    @property
    def second_half(self) -> Ints:
        """The 16 bits behind the prologue: an offset, a NACK's code, a probe's opaque value."""
        return self._at(PROLOGUE) & 0xFFFF

    @property
    def psn(self) -> Ints:
        """Packet sequence number, 32 bits; cumulative one of an ACK."""
        return self._at(PSN)

    @cached_property
    def source_pdc(self) -> Ints:
        """Packet delivery context at the sender."""
        return self._at(SOURCE_PDC) >> 16

    @cached_property
    def destination(self) -> Ints:
        """Packet delivery context at the receiver."""
        return self._at(SOURCE_PDC) & 0xFFFF

    @cached_property
    def path_stamp(self) -> npt.NDArray[np.uint8]:
        """uint8 below 64, where the emulator's switches write; 0 where there is no such byte."""
        stamp = self.transport[:, PATH_STAMP] & np.uint8(PATH_STAMP_MASK)
        return np.where(self.present > PATH_STAMP, stamp, np.uint8(0))

    @property
    def credit(self) -> Ints:
        """24 bits: credit target of a request, credit of a credit packet."""
        return self._at(CREDIT_TARGET) & CREDIT_MASK

    @property
    def sack_offset(self) -> Ints:
        """Of an ACK_CC, 16 bits."""
        return self._at(CREDIT_TARGET) & 0xFFFF

    @property
    def sack_bitmap(self) -> npt.NDArray[np.uint64]:
        """Of an ACK_CC."""
        return self.transport[:, SACK_BITMAP : SACK_BITMAP + 8].view(">u8")[:, 0].astype(np.uint64)

    @cached_property
    def payload_length(self) -> Ints:
        """Bytes that a request says it carries, padding not counted; 0 of other packets.

        Not those it still carries, if it was trimmed on its way.
        """
        request = self._is_request & (self.present >= SEND_TIME)
        return np.where(request, self._at(REQUEST + _SES_LENGTH), 0)

    @cached_property
    def send_ns(self) -> npt.NDArray[np.uint64]:
        """uint64 from the payload's first eight bytes; 0 where there is no such payload."""
        stamps = self.transport[:, SEND_TIME : SEND_TIME + TIMESTAMP_LENGTH].view(">u8")[:, 0]
        request = self._is_request & (self.present >= SEND_TIME + TIMESTAMP_LENGTH)
        return np.where(request & self.found, stamps, np.uint64(0)).astype(np.uint64)

    def answer_entropy(self, offset: int) -> Ints:
        """Return the entropy value in an answer's semantic header at this offset."""
        return self._at(offset) & 0xFFFF

    @cached_property
    def _is_request(self) -> npt.NDArray[np.bool_]:
        request: npt.NDArray[np.bool_] = self.prologue >> 7 == _CC_REQUEST
        return request

    def _at(self, offset: int) -> Ints:
        word: Ints = self._words[offset // 4]
        return word

    @cached_property
    def _words(self) -> Ints:
        """(11 or 12, n): a field is a row, or part of one, and no copy."""
        return self.transport.view(">u4").T.astype(np.int64)


def decode_uet(
    rows: npt.NDArray[np.uint8], lengths: npt.NDArray[np.integer] | None = None
) -> UetColumns:
    """Decode Ultra Ethernet frames; see ``udp_columns``."""
    return udp_columns(UetColumns, UET_PORT, rows, lengths)
