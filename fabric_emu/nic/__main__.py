"""Entry point of a NIC worker process; ``traffic.Traffic`` starts it."""

import contextlib

from fabric_emu.nic.worker import main
from fabric_emu.processes import connect

with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the parent has gone
    main(connect())
