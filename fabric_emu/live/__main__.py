"""Entry point of the process that shows a live run; ``view.LiveView`` starts it."""

import contextlib
import signal

from fabric_emu.live.viewer import main
from fabric_emu.processes import connect

with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the parent has gone
    # Not killed outright: it has a terminal's cursor to bring back.
    main(connect(signal.SIGTERM))
