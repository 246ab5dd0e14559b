"""Frames in bulk: scapy defines one frame per flow, numpy patches copies of its headers.

Only the header part of a frame is copied per packet. The rest of the payload is the same for
every frame of a set and is written into a transmit ring's slots once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fabric_emu.wire.layout import (
    ACK_REQUEST,
    EXTENSION,
    EXTENSION_HEADERS,
    HEADER_LENGTH,
    ICRC_LENGTH,
    IP,
    IPV6,
    OPCODE,
    PAD_COUNT,
    PSN,
    SOURCE_PORT,
    TIMESTAMP_LENGTH,
    ip_layout,
)
from fabric_emu.wire.patch import column
from fabric_emu.wire.row_icrc import BatchIcrc

if TYPE_CHECKING:
    from scapy.packet import Packet

_ADDRESS_LENGTH = 8
_FLOW_LABEL = 0x000FFFFF
_NOT_FLOW_LABEL = 0xFFF00000


class FrameTemplates:
    """Template frames of many flows, equal in length and layout, and the builder of batches.

    A payload of at least eight bytes opens with the send time: 64 bits, nanoseconds, big-endian.

    Args:
        frames: one scapy frame per flow, or (flows, length) uint8 of whole frames whose ICRC is
            ignored; all of one IP version, one length, the same extension headers, and the same
            payload after the send time.

    Attributes:
        length: bytes of a whole frame, Ethernet header to ICRC.
        header_length: bytes that may differ between frames: Ethernet to the extension headers,
            and the send time (78 over IPv4 and 98 over IPv6 with a RETH).
        headers: (flows, header_length) uint8.
        payload: (length - header_length - 4,) uint8, what follows, up to the ICRC.
        has_send_time: whether the payload has room for the send time.

    Raises:
        ValueError: the frames do not fit together, or are not RoCEv2.
    """

    def __init__(self, frames: Sequence[Packet] | npt.NDArray[np.uint8]) -> None:
        if isinstance(frames, np.ndarray):
            whole = frames
        else:
            whole = _matrix([_bytes_without_icrc(frame) for frame in frames])
        layouts = [ip_layout(frame.tobytes()) for frame in whole]
        layout = layouts[0]
        opcodes = whole[:, layout.udp + OPCODE]
        extensions = {EXTENSION_HEADERS.get(int(opcode), ()) for opcode in opcodes}
        if len({each.version for each in layouts}) > 1 or len(extensions) > 1:
            raise ValueError("frames of one set must have the same headers")
        self._extension: tuple[str, ...] = extensions.pop()
        self._udp = layout.udp
        self._is_ipv6 = layout is IPV6
        self.length: int = whole.shape[1]

        extension = self._udp + EXTENSION
        self._send_time = extension + sum(HEADER_LENGTH[header] for header in self._extension)
        pad = int((whole[:, self._udp + PAD_COUNT] >> 4 & 3).max())
        room = self.length - ICRC_LENGTH - pad - self._send_time
        self.has_send_time = room >= TIMESTAMP_LENGTH
        self.header_length = self._send_time + (TIMESTAMP_LENGTH if self.has_send_time else 0)

        rest = whole[:, self.header_length : self.length - ICRC_LENGTH]
        if (rest != rest[0]).any():
            raise ValueError("frames of one set must have the same payload after the send time")
        self.headers: npt.NDArray[np.uint8] = whole[:, : self.header_length].copy()
        self.payload: npt.NDArray[np.uint8] = rest[0].copy()

        places = [self._udp + SOURCE_PORT, self._udp + SOURCE_PORT + 1]
        places += range(self._udp + ACK_REQUEST, self._udp + EXTENSION)
        places += range(self._send_time, self.header_length)
        self._icrc = BatchIcrc(whole, places)
        patched = {"RETH": _ADDRESS_LENGTH, "AETH": HEADER_LENGTH["AETH"]}
        length = patched.get(self._extension[0], 0) if self._extension else 0
        places += range(extension, extension + length)
        self._icrc_with_extension = BatchIcrc(whole, places) if length else self._icrc

    def build(
        self,
        flow: npt.NDArray[np.integer],
        source_port: npt.ArrayLike | None,
        psn: npt.ArrayLike,
        send_ns: npt.ArrayLike | None,
        out: npt.NDArray[np.uint8] | None = None,
        *,
        ack_request: npt.ArrayLike | None = None,
        address: npt.ArrayLike | None = None,
        aeth: npt.ArrayLike | None = None,
        flow_label: npt.ArrayLike | None = None,
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """Return the header part and the ICRC of n frames.

        Each column is (n,) or a scalar for all; a column that is None keeps the template's bytes.

        Args:
            flow: (n,) index into the templates.
            psn: taken modulo 2^24.
            send_ns: nanoseconds, put where the payload opens.
            out: (n, header_length) uint8 to write into, for instance a view of a transmit ring.
            ack_request: BTH AckReq, 0 or 1.
            address: RETH virtual address.
            aeth: syndrome << 24 | MSN.
            flow_label: of IPv6, 20 bits; the ICRC does not cover it.

        Returns:
            rows (n, header_length) uint8, and icrc (n,) uint32 in the order the wire has it
            (``<u4``): store it at ``length - 4``.

        Raises:
            ValueError: a column these frames have no field for.
            IndexError: a flow that does not exist.
        """
        rows: npt.NDArray[np.uint8] = self.headers.take(flow, axis=0)
        udp = self._udp
        if source_port is not None:
            column(rows, udp + SOURCE_PORT, ">u2")[:] = source_port
        number = np.asarray(psn)
        rows[:, udp + PSN] = number >> 16 & 0xFF
        column(rows, udp + PSN + 1, ">u2")[:] = number & 0xFFFF
        if ack_request is not None:
            rows[:, udp + ACK_REQUEST] = np.asarray(ack_request, dtype=np.uint8) << 7
        if send_ns is not None:
            self._require(self.has_send_time, "send_ns")
            column(rows, self._send_time, ">u8")[:] = send_ns
        if flow_label is not None:
            self._require(self._is_ipv6, "flow_label")
            word = column(rows, IP, ">u4")
            label = np.asarray(flow_label) & _FLOW_LABEL
            word[:] = (word & _NOT_FLOW_LABEL) | label
        if address is not None:
            self._require(self._extension[:1] == ("RETH",), "address")
            column(rows, udp + EXTENSION, ">u8")[:] = address
        if aeth is not None:
            self._require(self._extension[:1] == ("AETH",), "aeth")
            column(rows, udp + EXTENSION, ">u4")[:] = aeth
        extended = address is not None or aeth is not None
        icrc = (self._icrc_with_extension if extended else self._icrc).icrc(flow, rows)
        if out is not None:
            out[:] = rows
            rows = out
        return rows, icrc.astype("<u4", copy=False)

    def assemble(
        self, rows: npt.NDArray[np.uint8], icrc: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint8]:
        """Return (n, length) whole frames from what ``build`` returned."""
        whole = np.empty((len(rows), self.length), dtype=np.uint8)
        whole[:, : self.header_length] = rows
        whole[:, self.header_length : self.length - ICRC_LENGTH] = self.payload
        column(whole, self.length - ICRC_LENGTH, "<u4")[:] = icrc
        return whole

    def _require(self, present: bool, column: str) -> None:
        if not present:
            headers = " ".join(self._extension) or "no extension header"
            raise ValueError(f"frames of {self.length} bytes with {headers} have no {column}")


def _bytes_without_icrc(frame: Packet) -> bytes:
    """Build a frame with a zero ICRC: scapy's own would cost three quarters of the time."""
    # Here, not above: a worker gets its templates ready made and has no second to spare for scapy.
    from scapy.contrib.roce import BTH

    if BTH not in frame:
        raise ValueError("a template needs a BTH")
    bth = frame[BTH]
    own = bth.icrc
    bth.icrc = 0
    try:
        return bytes(frame)
    finally:
        bth.icrc = own


def _matrix(frames: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    lengths = sorted({len(frame) for frame in frames})
    if len(lengths) != 1:
        raise ValueError(f"frames of one set must have one length; these have {lengths}")
    return np.frombuffer(b"".join(frames), dtype=np.uint8).reshape(len(frames), lengths[0])
