"""Every integration test must leave the machine as it found it: checked after each."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.nursery import nursery

LEASES, NAMESPACES = Path("/run/fabric-emu"), Path("/run/netns")
Waiting = Callable[..., None]


@dataclass(frozen=True)
class Traces:
    """What runs of this process have in the kernel; what other living processes have is not here.

    The kernel frees programs some time after their last user is gone.
    """

    namespaces: frozenset[str]
    leases: frozenset[str]
    processes: frozenset[int]
    programs: frozenset[int]

    @classmethod
    def now(cls) -> Traces:
        family = {os.getpid(), *_descendants(os.getpid())}
        leases, foreign = set(), set()
        for path in LEASES.glob("*.json"):
            holder, claimed = _holder(path), _claimed(path)
            if holder is None or holder in family:
                leases.add(path.name)
            else:
                foreign |= claimed
        names = {path.name for path in NAMESPACES.glob("fe*")} - foreign
        own = {name for name in names if not _of_another(name, family)}
        # The nursery of workers stays as long as the process that started it.
        descendants = frozenset(family - {os.getpid(), nursery().pid})
        return cls(frozenset(own), frozenset(leases), descendants, frozenset(_programs()))

    def since(self, before: Traces) -> dict[str, Any]:
        """Return what has come since, by kind."""
        names = ("namespaces", "leases", "processes", "programs")
        pairs = zip(names, astuple(self), astuple(before), strict=True)
        new = {name: after - old for name, after, old in pairs if after - old}
        if "programs" in new:  # other processes load programs, too
            new["programs"] -= _programs_of_others()
        return {name: found for name, found in new.items() if found}


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            if _state(child) not in ("Z", ""):
                found |= {child, *_descendants(child)}
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _holder(path: Path) -> int | None:
    """Return who holds the lock of a lease (or had it when its child inherited it)."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return int(words[4])
    return None


def _claimed(path: Path) -> set[str]:
    try:
        return set(json.loads(path.read_text()).get("namespaces", ()))
    except (FileNotFoundError, json.JSONDecodeError):
        return set()


def _of_another(name: str, family: set[int]) -> bool:
    """Tell whether a namespace carries the process number of somebody else who lives."""
    match = re.search(r"-(\d+)$", name)
    return match is not None and int(match[1]) not in family and _state(int(match[1])) != ""


def _programs() -> set[int]:
    next_id = ctypes.CDLL("libbpf.so.1").bpf_prog_get_next_id
    found: set[int] = set()
    number = ctypes.c_uint32(0)
    while next_id(number, ctypes.byref(number)) == 0:
        found.add(number.value)
    return found


def _programs_of_others() -> set[int]:
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            for info in (process / "fdinfo").iterdir():
                found |= {
                    int(number) for number in re.findall(r"prog_id:\t(\d+)", info.read_text())
                }
        except OSError:
            continue
    return found


def _wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        tick.wait(0.002)


@pytest.fixture(scope="session")
def wait_until() -> Waiting:
    """Return a function that waits for a condition to come true, at most ten seconds."""
    return _wait_until


@pytest.fixture(autouse=True)
def nothing_survives() -> Iterator[None]:
    """Fail the test if a namespace, lease, process or BPF program of ours outlives it."""
    yield from _checked()


@pytest.fixture(autouse=True, scope="module")
def nothing_survives_a_module() -> Iterator[None]:
    """Do the same for what the tests of a module share."""
    yield from _checked()


def _checked() -> Iterator[None]:
    before = Traces.now()
    yield
    gc.collect()
    left: dict[str, Any] = {}

    def is_clean() -> bool:
        nonlocal left
        left = Traces.now().since(before)
        return not left

    try:
        _wait_until(is_clean)
    except AssertionError:
        pytest.fail(f"left behind: {left}", pytrace=False)
