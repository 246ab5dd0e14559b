"""Entry point of the process that captures; ``captures.Captures`` starts it."""

import contextlib

from fabric_emu.capture.recorder import main
from fabric_emu.processes import connect

with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the parent has gone
    main(connect())
