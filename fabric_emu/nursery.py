"""A process that has imported what NIC workers need, and makes them by fork.

A worker's machine code takes a second to load. The nursery loads it once, beside whatever its
parent does meanwhile, and each worker is there in milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os
import resource
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle

from fabric_emu import interrupts
from fabric_emu.errors import RunFailed
from fabric_emu.processes import Child, connect, die_with

_MODULES = (
    "fabric_emu.nic.messenger",
    "fabric_emu.nic.roce_reader",
    "fabric_emu.nic.roce_writer",
    "fabric_emu.nic.transport.making_rc",
    "fabric_emu.nic.transport.making_selective",
    "fabric_emu.nic.uet_reader",
    "fabric_emu.nic.uet_writer",
    "fabric_emu.nic.worker",
)
_READY_TIMEOUT_S = 120.0
"""A new version's first nursery compiles."""

_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_MEMLOCK)
_POLL_S = 0.005


class Nursery:
    """The parent's side; see ``nursery``.

    Attributes:
        pid: of the process.
    """

    def __init__(self) -> None:
        self._child = Child.spawn("fabric_emu.nursery", _MODULES, name="the nursery of workers,")
        self.pid = self._child.pid
        self._parent = os.getpid()
        self._ready = False

    def usable(self) -> bool:
        """Tell whether it lives, and is this process's own."""
        return self._parent == os.getpid() and self._child.alive()

    def await_ready(self) -> None:
        """Wait until it can fork at once.

        Raises:
            RunFailed: it died.
        """
        if not self._ready:
            self._child.hear("the nursery of workers to get ready", _READY_TIMEOUT_S)
            self._ready = True

    def fork(self, fds: Sequence[int]) -> tuple[Child, list[int]]:
        """Return a new worker, and the numbers that it knows file descriptors by.

        Args:
            fds: what it is given.

        Raises:
            RunFailed: the nursery died.
        """
        self.await_ready()
        ours, theirs = Pipe()
        with theirs, self._kept_in_step():
            given = [theirs.fileno(), *fds]
            self._child.tell(len(given))
            for fd in given:
                send_handle(self._child.connection, fd, self.pid)
            pid, numbers = self._child.hear("a worker to be made")
        for limit in _LIMITS:
            resource.prlimit(pid, limit, resource.getrlimit(limit))
        return Child(_Worker(pid, self), ours, "worker"), numbers[1:]

    def status_of(self, pid: int) -> int | None:
        """Return a worker's exit status, None while it runs.

        Raises:
            RunFailed: the nursery died.
        """
        with interrupts.held(), self._kept_in_step():
            self._child.tell(-pid)
            status: int | None = self._child.hear("a worker's status")
        return status

    @contextlib.contextmanager
    def _kept_in_step(self) -> Iterator[None]:
        """End the nursery, and its workers with it, when an answer was not awaited."""
        try:
            yield
        except BaseException:
            self._child.close()
            raise


class _Worker:
    """A worker as a process, whose parent is the nursery: it keeps the number until it is asked."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid, self._nursery = pid, nursery
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self._status is None:
            try:
                self._status = self._nursery.status_of(self.pid)
            except (RunFailed, OSError):
                self._status = -signal.SIGKILL  # with the nursery
            if self._status is None:
                if time.monotonic() >= until:
                    raise subprocess.TimeoutExpired("worker", timeout or 0.0)
                time.sleep(_POLL_S)
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)


_nursery: Nursery | None = None


def nursery() -> Nursery:
    """Return this process's nursery, started when first asked for; it ends with the process."""
    global _nursery
    if _nursery is None or not _nursery.usable():
        _nursery = Nursery()
    return _nursery


def _serve(connection: Connection) -> None:
    """Fork a worker for a number of descriptors, tell the status of one for its negative number."""
    for module in connection.recv():
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    nursery_pid = os.getpid()
    connection.send("ready")
    while True:
        request = connection.recv()
        if request < 0:
            pid, status = os.waitpid(-request, os.WNOHANG)
            connection.send(os.waitstatus_to_exitcode(status) if pid else None)
            continue
        fds = [recv_handle(connection) for _ in range(request)]
        pid = os.fork()
        if not pid:
            connection.close()
            _become_worker(fds[0], nursery_pid)
        for fd in fds:
            os.close(fd)
        connection.send((pid, fds))


def _become_worker(fd: int, parent: int) -> None:
    """Serve and end, whatever happens: the loop of the nursery is not to go on twice."""
    from fabric_emu.nic.worker import main

    status = 1
    try:
        die_with(parent)
        with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
            main(Connection(fd))
        status = 0
    except Exception:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # parent has gone
        _serve(connect())
