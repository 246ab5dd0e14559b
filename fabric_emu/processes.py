"""Processes of ours beside the emulation: started, talked to, and never outliving us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import fabric_emu
from fabric_emu.errors import RunFailed, WaitTimeout

NIC_PRIORITY, WATCH_PRIORITY = 2, 1
"""Of real time: what plays hardware goes first, and must not wait for who looks on."""

TIMEOUT_S = 30.0
_PR_SET_PDEATHSIG = 1
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_GOODBYE_S = 2.0


class Child:
    """A Python module that runs as a process of its own, and the connection to it.

    Args:
        module: to run, whose ``__main__`` calls ``connect``.
        plan: what it is told first; pickled.
        fds: file descriptors that it inherits, under their numbers.

    Attributes:
        pid: of the process.
        connection: to it.
    """

    def __init__(self, module: str, plan: object, fds: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair()
        root = str(Path(fabric_emu.__file__).parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno(), *fds],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
                | dict.fromkeys(_ONE_THREAD, "1"),
            )
        self.pid = self._process.pid
        self.connection = Connection(ours.detach())
        self._what = module.rpartition(".")[2]
        self.tell(plan)

    def tell(self, message: object) -> None:
        """Send it a message; one that is gone hears nothing, which ``ask`` then finds out."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def hear(self, awaited: str) -> Any:
        """Return its next message.

        Raises:
            RunFailed: it died.
            WaitTimeout: it says nothing.
        """
        if not self.connection.poll(TIMEOUT_S):
            raise WaitTimeout(f"waited {TIMEOUT_S:g} s for {awaited}")
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            how = self._process.wait(_GOODBYE_S)
            raise RunFailed(
                f"process {self.pid} ({self._what}) died with status {how} while awaiting {awaited}"
            ) from None

    def close(self) -> None:
        """Let it end, which closing the connection asks for, or end it."""
        self.connection.close()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def connect(death_signal: signal.Signals = signal.SIGKILL) -> Connection:
    """Return a child's connection to its parent, with whose death it gets a signal.

    Raises:
        SystemExit: the parent has gone already.
    """
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        raise SystemExit(0)
    return Connection(fd)
