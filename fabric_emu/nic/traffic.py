"""The parent's side of the NIC workers: start them, time them, collect what they saw."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from fabric_emu import interrupts
from fabric_emu.errors import FabricError, RunFailed
from fabric_emu.nic.worker import Plan, Report
from fabric_emu.nursery import nursery
from fabric_emu.processes import WATCH_PRIORITY, Child

START_TIMEOUT_S = 30.0
REPORT_TIMEOUT_S = 120.0

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
        self._workers: list[Child] = []
        self._stack = contextlib.ExitStack()
        self._sending: dict[Connection, Child] = {}
        self.start_ns = 0

    def __enter__(self) -> Self:
        try:
            for plan in self._plans:
                self._make(plan)
            for worker in self._workers:
                _answer(worker, START_TIMEOUT_S, "a worker to open its rings")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _make(self, plan: Plan) -> None:
        order, program = plan.order, plan.receive_program
        fds = [order.fd] if order else []
        fds += [] if program is None else [program]
        nursery().await_ready()
        with interrupts.held():
            worker, numbers = nursery().fork(fds)
            self._stack.callback(worker.close)
            self._started(worker.pid)
            self._workers.append(worker)
        known = dict(zip(fds, numbers, strict=True))
        worker.tell(
            replace(
                plan,
                order=order and replace(order, fd=known[order.fd]),
                receive_program=None if program is None else known[program],
            )
        )

    def start(self) -> None:
        """Let every worker start at the same moment, a little from now."""
        self.start_ns = time.monotonic_ns() + _LEAD_NS
        for worker in self._workers:
            worker.tell(self.start_ns)
        self._sending = {worker.connection: worker for worker in self._workers}

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
                _answer(self._sending.pop(connection), 0.0, "a worker to send")
        return True

    def stop(self) -> list[Report]:
        """Stop sending and receiving and return each worker's report.

        Raises:
            RunFailed: a worker died.
            WaitTimeout: a worker is stopped, or starved of processor time.
        """
        for worker in self._workers:
            worker.tell("stop")
        reports = []
        for worker in self._workers:
            answer: Any = "sent"
            while answer == "sent":  # the last word of a worker that was just done sending
                answer = _answer(worker, REPORT_TIMEOUT_S, "a worker's report")
            reports.append(answer)
        for worker in self._workers:
            worker.tell("bye")
        return reports


def _answer(worker: Child, timeout_s: float, awaited: str) -> Any:
    answer = worker.hear(awaited, timeout_s)
    if isinstance(answer, FabricError):
        raise answer
    if isinstance(answer, OSError):
        raise RunFailed(f"a worker failed: {answer}")
    return answer
