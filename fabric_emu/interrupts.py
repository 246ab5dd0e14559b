"""Holding back Ctrl-C and termination where things must be done whole.

Blocking the signals in the main thread would not do: Python runs its handlers there whichever
thread a signal arrives in, and numpy starts threads that block none.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Hold back signals that end the process until the end of the block, or until asked for.

    Yields:
        a function to call where nothing is half done: it raises what a signal that has come
        would have raised; nothing if none came.

    Raises:
        KeyboardInterrupt: at the end of the block, where Ctrl-C came after the last call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # handlers never run here
        return
    came: list[int] = []
    before: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    def check() -> None:
        while came:
            handler = before[came[0]]
            if not callable(handler):
                # The default action ends the process: at the end of the block, with all undone.
                raise SystemExit(128 + came[0])
            handler(came.pop(0), None)

    try:
        for ending in _HELD:
            action = signal.getsignal(ending)
            if action is not None and action is not signal.SIG_IGN:
                before[ending] = action
                signal.signal(ending, lambda number, frame: came.append(number))
        yield check
    finally:
        for number, action in before.items():
            signal.signal(number, action)
        for number in came:
            signal.raise_signal(number)
