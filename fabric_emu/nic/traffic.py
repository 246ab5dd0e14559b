"""The parent's side of the NIC workers: start them, time them, collect what they saw."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import fabric_emu
from fabric_emu.errors import FabricError, RunFailed, WaitTimeout
from fabric_emu.nic.worker import Plan, Report
from fabric_emu.processes import WATCH_PRIORITY

START_TIMEOUT_S = 30.0
REPORT_TIMEOUT_S = 120.0
STALL_S = 10.0
"""A worker that owes an answer and gets no processor time for so long is given up."""

_LEAD_NS = 20_000_000


class Traffic:
    """Worker processes over a live fabric, as a context manager; leaving it ends them.

    Args:
        plans: one per worker.
        started: called with each worker's pid.
    """

    def __init__(self, plans: Sequence[Plan], started: Callable[[int], None]) -> None:
        self._plans = plans
        self._started = started
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._stack = contextlib.ExitStack()
        self._sending: set[Connection] = set()
        self.start_ns = 0

    def __enter__(self) -> Self:
        try:
            for plan in self._plans:
                self._spawn(plan)
            for _, connection in self._workers:
                self._receive(connection, START_TIMEOUT_S, "a worker to open its rings")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _spawn(self, plan: Plan) -> None:
        ours, theirs = socket.socketpair()
        inherited = [plan.order.fd] if plan.order else []
        if plan.receive_program is not None:
            inherited.append(plan.receive_program)
        root = str(Path(fabric_emu.__file__).parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "fabric_emu.nic",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                pass_fds=[theirs.fileno(), *inherited],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
                | dict.fromkeys(_ONE_THREAD, "1"),
            )
        self._stack.callback(_end, process)
        connection = Connection(ours.detach())
        self._stack.callback(connection.close)
        self._started(process.pid)
        self._workers.append((process, connection))
        _tell(connection, plan)

    def start(self) -> None:
        """Let every worker start at the same moment, a little from now."""
        self.start_ns = time.monotonic_ns() + _LEAD_NS
        for _, connection in self._workers:
            _tell(connection, self.start_ns)
        self._sending = {connection for _, connection in self._workers}

    @contextlib.contextmanager
    def real_time(self) -> Iterator[None]:
        """Run a block right behind the workers, so that nothing else on the machine holds it up."""
        policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(WATCH_PRIORITY))
        try:
            yield
        finally:
            os.sched_setscheduler(0, policy, parameters)

    def elapsed_s(self) -> float:
        """Return the time since the start."""
        return (time.monotonic_ns() - self.start_ns) * 1e-9

    @property
    def start_realtime_ns(self) -> int:
        """The start on CLOCK_REALTIME, the clock of arrivals."""
        return self.start_ns + time.time_ns() - time.monotonic_ns()

    def wait_sent(self, timeout_s: float) -> bool:
        """Wait until every packet has been handed over; tell whether it has."""
        deadline = time.monotonic() + timeout_s
        while self._sending:
            ready = wait(list(self._sending), max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            for connection in ready:
                assert isinstance(connection, Connection)
                self._receive(connection, 0.0, "a worker to send")
                self._sending.discard(connection)
        return True

    def stop(self) -> list[Report]:
        """Stop sending and receiving and return each worker's report.

        Raises:
            RunFailed: a worker died.
            WaitTimeout: a worker is stopped, or starved of processor time.
        """
        for _, connection in self._workers:
            _tell(connection, "stop")
        reports = []
        for _, connection in self._workers:
            answer: Any = "sent"
            while answer == "sent":  # the last word of a worker that was just done sending
                answer = self._receive(connection, REPORT_TIMEOUT_S, "a worker's report")
            reports.append(answer)
        for _, connection in self._workers:
            _tell(connection, "bye")
        return reports

    def _receive(self, connection: Connection, timeout_s: float, what: str) -> Any:
        process = next(p for p, c in self._workers if c is connection)
        _await(process.pid, connection, timeout_s, what)
        try:
            answer = connection.recv()
        except (EOFError, ConnectionResetError):
            status = process.wait(5)
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise RunFailed(f"worker {process.pid} died ({how}) while awaiting {what}") from None
        if isinstance(answer, FabricError):
            raise answer
        if isinstance(answer, OSError):
            raise RunFailed(f"a worker failed: {answer}")
        return answer


_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def _tell(connection: Connection, message: object) -> None:
    """Send a message; one that is gone hears nothing, which awaiting its answer finds out."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(message)


def _await(pid: int, connection: Connection, timeout_s: float, what: str) -> None:
    """Wait for a worker's message as long as the worker gets on."""
    begun = moved = time.monotonic()
    spent = _processor_ticks(pid)
    while not connection.poll(min(timeout_s, STALL_S / 4)):
        now = time.monotonic()
        if now - begun >= timeout_s:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
        if (ticks := _processor_ticks(pid)) != spent:
            spent, moved = ticks, now
        elif now - moved >= STALL_S:
            raise WaitTimeout(
                f"worker {pid} is stopped or starved: it got no processor time for {STALL_S:g} s "
                f"while awaiting {what}"
            )


def _processor_ticks(pid: int) -> int:
    """Return the processor time of a process in clock ticks; 0 when it has gone.

    Source: proc_pid_stat(5), utime and stime.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a worker; one that has said goodbye ends by itself."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
