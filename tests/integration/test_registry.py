"""Leases: live runs keep what is theirs, dead ones are cleaned up after, exactly."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabric_emu.errors import FabricError
from fabric_emu.model.topology import Topology
from fabric_emu.net import namespaces, registry
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.registry import IFINDEX_BLOCK, LEASE_DIR, Freed, Lease, start_time

pytestmark = pytest.mark.root

SMALL = Topology(leaves=2, spines=2, hosts_per_leaf=1)
Waiting = Callable[..., None]

# A run with a shell, and a process beside it; says what it has and lives until it is killed.
RUN = """
import json, sys
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric
with Fabric(Topology(leaves=2, spines=2, hosts_per_leaf=1)) as fabric:
    fabric.net["h1"].cmd("true")
    fabric.net["h2"].popen(["sleep", "1000"])
    own = {"lease": fabric.lease.path.name, "namespaces": fabric.lease.namespaces,
           "processes": [pid for pid, _ in fabric.lease.processes]}
    print(json.dumps(own), flush=True)
    sys.stdin.read()
"""
BUILDING = RUN.replace("with Fabric", "print(flush=True)\nwith Fabric")


@contextmanager
def killed(program: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a program; yield it and its first line; kill it at the end if it is not yet dead."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def listed(directory: Path) -> set[str]:
    return set(os.listdir(directory)) if directory.exists() else set()


def freed_of(lease: str) -> Freed:
    return next(freed for freed in registry.clean() if freed.lease == lease)


def test_numbers_and_names_are_unique() -> None:
    leases = [Lease.take() for _ in range(5)]
    try:
        assert len({lease.prefix for lease in leases}) == 5
        bases = sorted(lease.ifindex_base for lease in leases)
        assert all(b - a >= IFINDEX_BLOCK for a, b in itertools.pairwise(bases))
        assert all(lease.path.exists() for lease in leases)
    finally:
        for lease in leases:
            lease.release()
    assert not any(lease.path.exists() for lease in leases)


def test_a_number_given_back_is_taken_again() -> None:
    one, other = Lease.take(), Lease.take()
    one.release()
    again = Lease.take()
    try:
        assert again.number == one.number
        assert other.number != one.number
    finally:
        other.release()
        again.release()


def test_a_lease_names_all_that_its_run_has() -> None:
    with Fabric(SMALL) as fabric:
        fabric.net["h1"].cmd("true")
        written = json.loads(fabric.lease.path.read_text())
        assert written["pid"] == os.getpid()
        assert written["started"] == start_time(os.getpid())
        assert written["ifindex_base"] == fabric.lease.ifindex_base
        assert set(written["namespaces"]) == {fabric.namespace(node) for node in SMALL.nodes}
        ((pid, started),) = written["processes"]
        assert started == start_time(pid)
        for name in written["namespaces"]:
            assert (namespaces.NETNS_DIR / name).exists()


def test_clean_leaves_the_living_alone() -> None:
    with Fabric(SMALL) as fabric:
        assert fabric.lease.path.name not in [freed.lease for freed in registry.clean()]
        assert fabric.net.pingAll() == 0


def test_clean_after_kill(wait_until: Waiting) -> None:
    with Fabric(SMALL) as living, killed(RUN) as (process, line):
        dead = json.loads(line)
        process.send_signal(signal.SIGKILL)
        process.wait()
        # Nobody else takes over its names before they are free.
        with Fabric(SMALL) as another:
            assert f"{another.lease.number}.json" != dead["lease"]
        bystander = f"{living.lease.prefix}bystander"
        with namespaces.restored():
            namespaces.take_names([bystander], str)
            os.close(namespaces.create(bystander))
        try:
            freed = freed_of(dead["lease"])
            assert (namespaces.NETNS_DIR / bystander).exists()
        finally:
            namespaces.remove(bystander)
        assert set(freed.namespaces) == set(dead["namespaces"])
        # The shell may have gone by itself when its terminal did.
        assert set(freed.processes) <= set(dead["processes"])
        wait_until(lambda: not any(is_alive(pid) for pid in dead["processes"]))
        assert not set(os.listdir(namespaces.NETNS_DIR)) & set(dead["namespaces"])
        assert not (LEASE_DIR / dead["lease"]).exists()
        assert dead["lease"] not in [again.lease for again in registry.clean()]
        assert living.net.pingAll() == 0


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_clean_after_kill_while_building(part: float, wait_until: Waiting) -> None:
    # Not by time, which varies, but when this share of the namespaces is there.
    names, leases = listed(namespaces.NETNS_DIR), listed(LEASE_DIR)
    wanted = round(part * len(SMALL.nodes))

    with killed(BUILDING) as (process, _):

        def has_begun() -> bool:
            made = listed(namespaces.NETNS_DIR) - names
            return len(made) >= wanted and listed(LEASE_DIR) - leases != set()

        wait_until(has_begun)
        process.send_signal(signal.SIGKILL)
        process.wait()
    registry.clean()  # whether it has left nothing is checked after each test


def test_a_process_number_that_is_used_again() -> None:
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        try:
            other_start = (start_time(bystander.pid) or 0) - 1
            path = write_lease({"namespaces": [], "processes": [[bystander.pid, other_start]]})
            assert freed_of(path.name) == Freed(path.name, (), ())
            assert bystander.poll() is None
            assert not path.exists()
        finally:
            bystander.kill()


def test_names_that_are_gone_already() -> None:
    path = write_lease({"namespaces": ["fe998-h1"], "processes": [[2**22 + 1, 1]]})
    assert freed_of(path.name) == Freed(path.name, (), ())
    assert not path.exists()


def test_a_run_that_died_at_once() -> None:
    path = write_lease(None)
    assert freed_of(path.name) == Freed(path.name, (), ())
    assert not path.exists()


def test_what_is_no_lease() -> None:
    path = write_lease({"something": "else"})
    try:
        with pytest.raises(FabricError, match=f"{path} is no lease of ours"):
            registry.clean()
    finally:
        path.unlink()


def write_lease(content: object) -> Path:
    """Write the lease of a run that is dead: nobody holds its lock."""
    LEASE_DIR.mkdir(exist_ok=True)
    path = LEASE_DIR / "998.json"
    path.write_text("" if content is None else json.dumps(content))
    return path


def test_start_times() -> None:
    own = start_time(os.getpid())
    assert own is not None
    assert start_time(1) is not None
    assert own > (start_time(1) or 0)
    assert start_time(2**22 + 1) is None  # above any kernel's pid_max
