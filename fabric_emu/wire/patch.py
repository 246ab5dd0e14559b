"""Small frames in bulk: copies of a template per flow with chosen fields written anew.

For control packets, which are short and whose every field may change; ``template`` makes the
data frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.wire.icrc import BatchIcrc
from fabric_emu.wire.layout import ICRC_LENGTH


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

    Attributes:
        length: bytes of a frame.

    Raises:
        ValueError: frames of different lengths.
    """

    def __init__(
        self, frames: Sequence[bytes], fields: Mapping[str, Field], has_icrc: bool = True
    ) -> None:
        if len({len(frame) for frame in frames}) != 1:
            raise ValueError("frames of one kind must have one length")
        self.length = len(frames[0])
        self._frames = np.frombuffer(b"".join(frames), np.uint8).reshape(-1, self.length)
        self._fields = dict(fields)
        self._icrc = None
        if has_icrc:
            words = sorted(
                {
                    byte & ~1
                    for field in fields.values()
                    for byte in range(field.offset, field.offset + np.dtype(field.dtype).itemsize)
                }
            )
            self._icrc = BatchIcrc(self._frames, words)

    def build(self, flow: NDArray[np.integer], **columns: Any) -> NDArray[np.uint8]:
        """Return (n, length) whole frames.

        Args:
            flow: (n,) index into the templates.
            **columns: values of fields, (n,) or a scalar for all; others keep the template's.
        """
        rows = self._frames.take(flow, axis=0)
        for name, values in columns.items():
            field = self._fields[name]
            size = np.dtype(field.dtype).itemsize
            rows[:, field.offset : field.offset + size].view(field.dtype)[:, 0] = values
        if self._icrc is not None:
            end = self.length - ICRC_LENGTH
            rows[:, end:].view("<u4")[:, 0] = self._icrc.icrc(flow, rows)
        return rows
