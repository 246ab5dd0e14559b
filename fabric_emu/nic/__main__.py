"""Entry point of a NIC worker process; ``traffic.Traffic`` starts it."""

import contextlib
import sys

from fabric_emu.nic.worker import main

with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the parent has gone
    main(int(sys.argv[1]), int(sys.argv[2]))
