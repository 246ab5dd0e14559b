"""Many runs, one after another, leave nothing in the kernel and nothing in memory."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from fabric_emu.bench.soak import Held, main

pytestmark = pytest.mark.root


def test_cycles_hold_nothing() -> None:
    done = CliRunner().invoke(main, ["--cycles", "3"])
    assert done.exit_code == 0, done.output
    assert "3 cycles: namespaces +0" in done.output


def test_what_is_kept_is_seen() -> None:
    before = Held.now()
    kept = os.open(os.devnull, os.O_RDONLY)
    growth = Held.now().growth(before)
    os.close(kept)
    assert growth["files"] == 1
