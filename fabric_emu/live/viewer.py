"""The process that shows a live run: it looks at the shared sample, draws, and serves the page."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import NoReturn

from fabric_emu.live.shared import SharedSample
from fabric_emu.results.live import Layout, Meter, Picture

REFRESH_S = 0.2
NICENESS = 10

TERMINAL_OFF = "terminal off"


@dataclass(frozen=True)
class ViewPlan:
    """What to show and where.

    Attributes:
        layout: what is shown.
        sample_fd: of the shared sample.
        terminal: whether to draw on standard error.
        listener_fd: of a listening socket; None serves no page.
    """

    layout: Layout
    sample_fd: int
    terminal: bool
    listener_fd: int | None


def main(connection: Connection) -> None:
    """Show what is asked for until the parent closes the connection or goes away."""
    plan: ViewPlan = connection.recv()
    os.nice(NICENESS)
    signal.signal(signal.SIGTERM, _leave)
    shared = SharedSample(plan.layout.port_count, plan.sample_fd)
    meter = Meter(plan.layout)
    shows: list[Callable[[Picture], None]] = []
    if plan.listener_fd is not None:
        from fabric_emu.live.server import Board, serve

        board = Board(plan.layout.document())
        serve(socket.socket(fileno=plan.listener_fd), board)
        shows.append(lambda picture: board.put(picture.document()))
    with contextlib.ExitStack() as stack:
        if plan.terminal:
            from fabric_emu.live.screen import Screen

            shows.append(stack.enter_context(Screen(plan.layout, sys.stderr)).show)
        connection.send("ready")
        seen = 0
        while True:
            if connection.poll(REFRESH_S):
                match connection.recv():
                    case (int(run), reordered):
                        meter.measured(run, reordered)
                    case "terminal off":
                        if plan.terminal:
                            shows.pop()
                        stack.close()
                        connection.send(TERMINAL_OFF)
            if shared.sequence() != seen and (sample := shared.read()) is not None:
                seen = shared.sequence()
                picture = meter.picture(sample)
                for show in shows:
                    show(picture)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
