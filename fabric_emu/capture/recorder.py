"""The process that captures: whole frames from packet rings into pcapng files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from fabric_emu.capture import pcapng
from fabric_emu.capture.ring import CaptureRing, Frames
from fabric_emu.errors import FabricError
from fabric_emu.net import namespaces

REST_S = 0.02
NICENESS = 5
"""The emulation comes first; rings hold what arrives meanwhile."""

RING_BYTES = 16 << 20


@dataclass(frozen=True)
class Tap:
    """An interface that is listened on.

    Attributes:
        name, description: as the file tells them.
        namespace, interface: where it is.
        rate_bps: of its link.
        outgoing: whether what leaves is kept, too.
    """

    name: str
    description: str
    namespace: str
    interface: str
    rate_bps: int
    outgoing: bool


@dataclass(frozen=True)
class Recording:
    """A file and what goes into it.

    Attributes:
        fd: of the open, empty file.
        taps: the interfaces; each is one of the file.
        frame_bytes: of the longest frame.
    """

    fd: int
    taps: tuple[Tap, ...]
    frame_bytes: int


@dataclass(frozen=True)
class Recorded:
    """What came of a recording.

    Attributes:
        frames: written to the file.
        dropped: frames that the kernel had no room for.
        error: why writing stopped early, or empty.
    """

    frames: int
    dropped: int
    error: str = ""


class Recorder:
    """Writes one recording."""

    def __init__(self, recording: Recording, stack: contextlib.ExitStack) -> None:
        self._fd = recording.fd
        self._error = ""
        self._frames = 0
        self._write(pcapng.section("fabric-emu", f"Linux {os.uname().release}"))
        self._rings = []
        for tap in recording.taps:
            self._write(pcapng.interface(tap.name, tap.description, tap.rate_bps, 0))
            with _inside(tap.namespace):
                ring = CaptureRing(
                    tap.interface, recording.frame_bytes, RING_BYTES, outgoing=tap.outgoing
                )
            stack.callback(ring.close)
            self._rings.append(ring)

    def serve(self) -> bool:
        """Write what has passed until now; tell whether there was anything."""
        # What all rings saw before one moment is in order when sorted; the rest waits in them.
        now_ns = time.time_ns()
        taken = []
        for number, ring in enumerate(self._rings):
            while (frames := ring.take(now_ns)) is not None:
                taken.append((number, frames))
        if taken:
            self._put(taken)
        return bool(taken)

    def _put(self, taken: list[tuple[int, Frames]]) -> None:
        numbers = np.array([number for number, _ in taken])
        number = np.repeat(numbers, [len(frames.data) for _, frames in taken])
        frames = _joined([frames for _, frames in taken])
        if (np.diff(frames.time_ns) < 0).any():
            order = np.argsort(frames.time_ns, kind="stable")
            number, frames = number[order], Frames._make(column[order] for column in frames)
        self._write(pcapng.packets(number, *frames).data)
        self._frames += len(number)

    def finish(self) -> Recorded:
        """Write what is left and how much was lost."""
        while self.serve():
            pass
        lost = 0
        for number, ring in enumerate(self._rings):
            received, dropped = ring.statistics()
            self._write(pcapng.statistics(number, time.time_ns(), received, dropped))
            lost += dropped
        return Recorded(self._frames, lost, self._error)

    def _write(self, content: bytes | memoryview) -> None:
        """Append to the file; a full disk ends the capture, not the run."""
        view = memoryview(content)
        while view and not self._error:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError as error:
                self._error = error.strerror or str(error)


def _joined(parts: list[Frames]) -> Frames:
    if len(parts) == 1:
        return parts[0]
    width = max(part.data.shape[1] for part in parts)
    if any(part.data.shape[1] < width for part in parts):
        parts = [
            part._replace(data=np.pad(part.data, ((0, 0), (0, width - part.data.shape[1]))))
            for part in parts
        ]
    return Frames._make(np.concatenate(column) for column in zip(*parts, strict=True))


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    fd = os.open(namespaces.NETNS_DIR / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with namespaces.inside(fd):
            yield
    finally:
        os.close(fd)


def main(connection: Connection) -> None:
    """Record what is asked for until told to stop, or until the parent goes away."""
    recordings: list[Recording] = connection.recv()
    os.nice(NICENESS)
    with contextlib.ExitStack() as stack:
        try:
            recorders = [Recorder(recording, stack) for recording in recordings]
        except (FabricError, OSError) as error:
            connection.send(error)
            return
        connection.send("ready")
        # It rests however much there is: large batches cost less, and the rings hold them.
        while not connection.poll(REST_S):
            for recorder in recorders:
                recorder.serve()
        connection.send([recorder.finish() for recorder in recorders])
