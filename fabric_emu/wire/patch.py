"""Frames in bulk: copies of a template per flow with chosen fields written anew.

For control packets, which are short and whose every field may change, and for frames without an
ICRC; ``template`` makes RoCEv2's data frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.wire.icrc import BatchIcrc
from fabric_emu.wire.layout import ICRC_LENGTH


def column(rows: NDArray[np.uint8], offset: int, dtype: str) -> NDArray[np.unsignedinteger]:
    """Return one field of every row, in network byte order, to be read or written.

    Args:
        rows: (n, bytes).
        dtype: in network order, such as ``">u4"``.
    """
    view: NDArray[np.unsignedinteger] = rows[:, offset : offset + int(dtype[-1])].view(dtype)[:, 0]
    return view


@dataclass(frozen=True)
class Field:
    """Where a field lies.

    Attributes:
        offset: of its first byte, from the start of the frame.
        dtype: in network order, such as ``">u4"``.
    """

    offset: int
    dtype: str


class PatchedFrames:
    """Frames of one kind for many flows.

    Args:
        frames: one whole frame per flow, all of one length; with an ICRC at the end when
            ``has_icrc``, its value ignored.
        fields: what ``build`` may write, by name.
        has_icrc: RoCEv2 frames have one, Ultra Ethernet's have not.
        kept: leading bytes that ``build`` returns, of frames without an ICRC; all unless given.

    Attributes:
        length: bytes of a frame.

    Raises:
        ValueError: frames of different lengths.
    """

    def __init__(
        self,
        frames: Sequence[bytes] | NDArray[np.uint8],
        fields: Mapping[str, Field],
        has_icrc: bool = True,
        kept: int | None = None,
    ) -> None:
        if len({len(frame) for frame in frames}) != 1:
            raise ValueError("frames of one kind must have one length")
        self.length = len(frames[0])
        whole = (
            frames
            if isinstance(frames, np.ndarray)
            else np.frombuffer(b"".join(frames), np.uint8).reshape(-1, self.length)
        )
        self._fields = {name: (each.offset, each.dtype) for name, each in fields.items()}
        self._icrc = None
        if has_icrc:
            words = sorted(
                {
                    byte & ~1
                    for offset, dtype in self._fields.values()
                    for byte in range(offset, offset + int(dtype[-1]))
                }
            )
            self._icrc = BatchIcrc(whole, words)
        self._frames = whole if kept is None else np.ascontiguousarray(whole[:, :kept])

    def build(self, flow: NDArray[np.integer], **columns: Any) -> NDArray[np.uint8]:
        """Return (n, length or ``kept``) the frames or their leading bytes.

        Args:
            flow: (n,) index into the templates.
            **columns: values of fields, (n,) or a scalar for all; others keep the template's.
        """
        rows = self._frames.take(flow, axis=0)
        for name, values in columns.items():
            column(rows, *self._fields[name])[:] = values
        if self._icrc is not None:
            column(rows, self.length - ICRC_LENGTH, "<u4")[:] = self._icrc.icrc(flow, rows)
        return rows
