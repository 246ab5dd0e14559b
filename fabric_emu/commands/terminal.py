"""What the commands print to, and how they are told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, TextIO

from rich.console import Console

_STOPS = (signal.SIGTERM, signal.SIGHUP)


class Terminal(Console):
    """A rich console that leaves a reader's early end to the caller."""

    def on_broken_pipe(self) -> None:
        """Let the error through: rich itself would end with exit code 1."""
        raise BrokenPipeError


def terminal(file: TextIO | None = None) -> Terminal:
    """Return a console for standard output or another stream.

    On something that is no terminal it writes plain text, 80 columns wide unless ``COLUMNS``
    says otherwise.
    """
    file = file or sys.stdout
    columns = os.environ.get("COLUMNS", "")
    width = None if file.isatty() else int(columns) if columns.isdecimal() else 80
    return Terminal(file=file, width=width, highlight=False, markup=False, emoji=False)


def tolerate_narrow_encodings() -> None:
    """Print a question mark for what the terminal's encoding lacks, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


@contextlib.contextmanager
def stops_as(error: BaseException) -> Iterator[None]:
    """Raise ``error`` when the process is told to end or its terminal goes away.

    A signal that the caller had ignored (``nohup``) stays ignored.
    """

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise error

    before = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
