"""The port table in memory that two processes share: written without waiting, read whole."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.results.live import Sample
from fabric_emu.switch.ports import PORT_DTYPE

_HEADER: np.dtype[Any] = np.dtype(
    [
        ("sequence", "u8"),
        ("run", "u4"),
        ("stage", "u4"),
        ("elapsed_s", "f8"),
        ("received", "u8"),
        ("late", "u8"),
        ("padding", "u1", 24),
    ]
)
_TRIES = 5


class SharedSample:
    """One sample; the writer never waits, a reader tries again when it was interrupted.

    The sequence number is odd while the writer is at work and changes with every sample.

    Args:
        port_count: of the fabric.
        fd: of the memory, from the other side; None makes it.

    Attributes:
        fd: of the memory.
    """

    def __init__(self, port_count: int, fd: int | None = None) -> None:
        size = _HEADER.itemsize + port_count * PORT_DTYPE.itemsize
        if fd is None:
            fd = os.memfd_create("fabric-emu-live")
            os.ftruncate(fd, size)
        self.fd = fd
        self._map = mmap.mmap(fd, size)
        self._header = np.frombuffer(self._map, _HEADER, 1)[0:1]
        self._ports = np.frombuffer(self._map, PORT_DTYPE, port_count, _HEADER.itemsize)
        # As bytes: copied in one piece rather than field by field.
        self._bytes = self._ports.view(np.uint8)

    def write(
        self,
        run: int,
        stage: int,
        elapsed_s: float,
        ports: NDArray[np.void] | None = None,
        arrived: tuple[int, int] | None = None,
    ) -> None:
        """Replace the sample; ports and arrivals of the one before stay unless given.

        Args:
            run, stage, elapsed_s: see ``Sample``.
            ports: (ports,) of the port table.
            arrived: packets received, and those of them that were late.
        """
        header = self._header
        header["sequence"] += 1
        header["run"], header["stage"], header["elapsed_s"] = run, stage, elapsed_s
        if arrived is not None:
            header["received"], header["late"] = arrived
        if ports is not None:
            self._bytes[:] = ports.view(np.uint8)
        header["sequence"] += 1

    def clear(self, run: int, stage: int) -> None:
        """Replace the sample by one of a run that has not begun: all counters are 0."""
        self.write(run, stage, 0.0, np.zeros_like(self._ports), (0, 0))

    def sequence(self) -> int:
        """Return a number that changes with each sample; 0 before the first."""
        return int(self._header["sequence"][0])

    def read(self) -> Sample | None:
        """Return the sample; None before the first, or when it changes too fast."""
        for _ in range(_TRIES):
            before = self.sequence()
            header, ports = self._header[0].copy(), self._ports.copy()
            if before and before % 2 == 0 and self.sequence() == before:
                run, stage = int(header["run"]), int(header["stage"])
                return Sample(
                    run,
                    stage,
                    float(header["elapsed_s"]),
                    ports,
                    int(header["received"]),
                    int(header["late"]),
                )
        return None

    def close(self) -> None:
        """Give the memory back."""
        del self._header, self._ports, self._bytes
        self._map.close()
        os.close(self.fd)
