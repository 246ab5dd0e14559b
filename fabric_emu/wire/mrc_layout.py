"""The numbers of MRC's packets: opcodes and codes; ``mrc`` has their headers.

Source: Open Compute Project, OCP-Multipath-Reliable-Connection (mrc.h), and MRC 1.0 for the
opcode numbers.
"""

from __future__ import annotations

from enum import IntEnum

from fabric_emu.wire.layout import MRC_PROBE


class MrcOpcode(IntEnum):
    """BTH opcodes of MRC."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_ONLY = 0xCA
    PROBE_ACK = 0xD1
    SACK = 0xDC
    NACK = 0xDD
    PROBE = MRC_PROBE


class NackCode(IntEnum):
    """Why a packet has to be sent again; the numbers are those of Ultra Ethernet."""

    TRIMMED = 1
    TRIMMED_LAST_HOP = 2
