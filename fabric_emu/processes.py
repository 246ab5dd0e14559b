"""Processes of ours beside the emulation: started, talked to, and never outliving us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, Self

import fabric_emu
from fabric_emu.errors import RunFailed, WaitTimeout

NIC_PRIORITY, WATCH_PRIORITY = 2, 1
"""Of real time: what plays hardware goes first, and must not wait for who looks on."""

TIMEOUT_S = 30.0
STALL_S = 10.0
"""A process that owes an answer and gets no processor time for so long is given up."""

_PR_SET_PDEATHSIG = 1
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_GOODBYE_S = 2.0


class Process(Protocol):
    """What is left of a process for those who started it; as ``subprocess.Popen``."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Return its status, or raise ``subprocess.TimeoutExpired``."""

    def kill(self) -> None:
        """End it."""


class Child:
    """A process of ours, and the connection to it.

    Args:
        process: it.
        connection: to it.
        name: what errors call it, before its process number.

    Attributes:
        pid: of the process.
        connection: to it.
    """

    def __init__(self, process: Process, connection: Connection, name: str) -> None:
        self._process = process
        self.pid = process.pid
        self.connection = connection
        self.name = f"{name} {self.pid}"

    @classmethod
    def spawn(
        cls, module: str, plan: object, fds: Sequence[int] = (), name: str = "process"
    ) -> Self:
        """Run a Python module as a process of its own.

        Args:
            module: its ``__main__`` calls ``connect``.
            plan: what it is told first; pickled.
            fds: file descriptors that it inherits, under their numbers.
            name: see above.
        """
        ours, theirs = socket.socketpair()
        root = str(Path(fabric_emu.__file__).parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno(), *fds],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
                | dict.fromkeys(_ONE_THREAD, "1"),
            )
        child = cls(process, Connection(ours.detach()), name)
        child.tell(plan)
        return child

    def alive(self) -> bool:
        """Tell whether it runs."""
        try:
            self._process.wait(0)
        except subprocess.TimeoutExpired:
            return True
        return False

    def tell(self, message: object) -> None:
        """Send it a message; one that is gone hears nothing, which ``ask`` then finds out."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def hear(self, awaited: str, timeout_s: float = TIMEOUT_S) -> Any:
        """Return its next message.

        Raises:
            RunFailed: it died.
            WaitTimeout: it says nothing, or gets no processor time.
        """
        self._await(awaited, timeout_s)
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            status = self._process.wait(_GOODBYE_S)
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise RunFailed(f"{self.name} died ({how}) while awaiting {awaited}") from None

    def _await(self, awaited: str, timeout_s: float) -> None:
        begun = moved = time.monotonic()
        spent = _processor_ticks(self.pid)
        while not self.connection.poll(min(timeout_s, STALL_S / 4)):
            now = time.monotonic()
            if now - begun >= timeout_s:
                raise WaitTimeout(f"waited {timeout_s:g} s for {awaited}")
            if (ticks := _processor_ticks(self.pid)) != spent:
                spent, moved = ticks, now
            elif now - moved >= STALL_S:
                raise WaitTimeout(
                    f"{self.name} is stopped or starved: it got no processor time for "
                    f"{STALL_S:g} s while awaiting {awaited}"
                )

    def close(self) -> None:
        """Let it end, which closing the connection asks for, or kill it."""
        self.connection.close()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def connect(death_signal: signal.Signals = signal.SIGKILL) -> Connection:
    """Return a spawned child's connection to its parent, with whose death it gets a signal.

    Raises:
        SystemExit: the parent has gone already.
    """
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent, death_signal)
    return Connection(fd)


def die_with(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Get a signal when the parent dies.

    Raises:
        SystemExit: it has gone already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        raise SystemExit(0)


def _processor_ticks(pid: int) -> int:
    """Return the processor time of a process in clock ticks; 0 when it has gone.

    Source: proc_pid_stat(5), utime and stime.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])
