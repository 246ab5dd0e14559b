"""The parent's side of the live view: it hands samples over, which costs it microseconds."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fabric_emu.live.shared import SharedSample
from fabric_emu.live.viewer import TERMINAL_OFF, ViewPlan
from fabric_emu.nic.order import OrderCounts
from fabric_emu.processes import Child
from fabric_emu.results.live import STAGES, Layout

if TYPE_CHECKING:
    from fabric_emu.experiment import Progress

INTERVAL_S = 0.1
"""Samples are handed over this far apart; the process that shows them takes about every other."""

_SEND, _DONE = STAGES.index("send"), STAGES.index("done")


class LiveView:
    """A process that shows the runs of a command, as a context manager.

    Args:
        layout: what is shown.
        terminal: whether to draw on standard error.
        listener: to serve a page at; None serves none. It is closed with the view.

    Attributes:
        pid: of the process.
        order: where NIC workers count late packets, while the view is on.
    """

    def __init__(self, layout: Layout, terminal: bool, listener: socket.socket | None) -> None:
        self._layout, self._terminal, self._listener = layout, terminal, listener
        self._runs = {run: number for number, run in enumerate(layout.runs)}
        self._run = self._stage = -1
        self._due_s = 0.0
        self._elapsed_s = 0.0
        self._stack = contextlib.ExitStack()
        self.pid = 0
        self.order: OrderCounts | None = None

    def __enter__(self) -> Self:
        """Start the process.

        Raises:
            RunFailed: it died.
        """
        with contextlib.ExitStack() as stack:
            self._shared = SharedSample(self._layout.port_count)
            stack.callback(self._shared.close)
            self.order = OrderCounts(len(os.sched_getaffinity(0)))
            stack.callback(self.order.close)
            fds = [self._shared.fd]
            if self._listener:
                fds.append(self._listener.fileno())
            listener_fd = self._listener.fileno() if self._listener else None
            plan = ViewPlan(self._layout, self._shared.fd, self._terminal, listener_fd)
            self._child = Child.spawn("fabric_emu.live", plan, fds)
            stack.callback(self._child.close)
            self.pid = self._child.pid
            self._child.hear("the live view to start")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def progress(self, progress: Progress) -> None:
        """Take how far a scheme's run is."""
        run, stage = self._runs[progress.scheme, progress.seed], STAGES.index(progress.stage)
        if (run, stage) == (self._run, self._stage):
            return
        if run != self._run:
            self._shared.clear(run, stage)
            self._elapsed_s = 0.0
        else:
            self._shared.write(run, stage, self._elapsed_s)
        self._run, self._stage, self._due_s = run, stage, 0.0

    def observe(self, elapsed_s: float, ports: NDArray[np.void]) -> None:
        """Take a sample of the port table, if one is due."""
        if self._stage == _SEND and elapsed_s < self._due_s:
            return
        self._due_s, self._elapsed_s = elapsed_s + INTERVAL_S, elapsed_s
        arrived = self.order.totals() if self.order else None
        self._shared.write(self._run, self._stage, elapsed_s, ports, arrived)

    def measured(self, scheme: str, seed: int, reordered: float | None) -> None:
        """Take the share of packets out of order in a run that is over."""
        self._child.tell((self._runs[scheme, seed], reordered))

    def finish(self) -> None:
        """Give the terminal back; the page goes on showing the last picture."""
        if self._run >= 0:
            self._shared.write(self._run, _DONE, self._elapsed_s)
        self._child.tell(TERMINAL_OFF)
        self._child.hear("the terminal to be given back")
