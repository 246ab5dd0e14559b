"""Signals that end the process, held back while something must be done whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fabric_emu.interrupts import held


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt_from_outside() -> None:
    """Send Ctrl-C as another process does: any thread may get it, and numpy has started some."""
    subprocess.run(["kill", "-INT", str(os.getpid())], check=True)


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    import numpy  # noqa: F401  its threads block no signal

    done = []

    def work() -> None:
        with held():
            interrupt_from_outside()
            done.append("whole")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


def test_a_signal_is_raised_where_it_is_asked_for() -> None:
    done = []

    def work() -> None:
        with held() as check:
            check()
            signal.raise_signal(signal.SIGINT)
            done.append("before")
            check()
            done.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["before"]
    # Nothing is left to come.
    with held() as check:
        check()


def test_blocks_within_blocks() -> None:
    done = []

    def work() -> None:
        with held():
            with held():
                signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner"]


def test_an_error_in_the_block_does_not_swallow_the_signal() -> None:
    def work() -> None:
        with held():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("in the block")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_handlers_of_the_program_run_late_but_once() -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    with held() as check:
        signal.raise_signal(signal.SIGTERM)
        assert came == []
        check()
        assert came == [signal.SIGTERM]
    assert came == [signal.SIGTERM]


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with held() as check:
        signal.raise_signal(signal.SIGHUP)
        check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_other_threads_pass() -> None:
    def work() -> str:
        with held() as check:
            check()
            return "done"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == "done"


def test_termination_ends_the_process_when_all_is_undone() -> None:
    program = """
import signal
from fabric_emu.interrupts import held
with held() as check:
    try:
        signal.raise_signal(signal.SIGTERM)
        check()
        print("not reached")
    finally:
        print("undone", flush=True)
print("not reached")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stdout == "undone\n"
    assert run.returncode == -signal.SIGTERM
