"""Network namespaces: made, entered, left and removed; the machine's own stays as it is."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fabric_emu.errors import CommandFailed, FabricError, HostUnfit
from fabric_emu.net import namespaces

pytestmark = pytest.mark.root

NAME = f"fe-ns-{os.getpid()}"
HOME = "/proc/thread-self/ns/net"


@pytest.fixture
def namespace_fd() -> Iterator[int]:
    namespaces.prepare()
    with namespaces.restored():
        namespaces.take_names([NAME], str)
        fd = namespaces.create(NAME)
    try:
        yield fd
    finally:
        os.close(fd)
        namespaces.remove(NAME)


def names_seen_by_others() -> list[str]:
    lines = subprocess.check_output(["ip", "netns", "list"], text=True).splitlines()
    return [line.split()[0] for line in lines]


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def test_a_new_namespace_is_seen_by_all(namespace_fd: int) -> None:
    assert NAME in names_seen_by_others()
    where = os.fstat(namespace_fd)
    bound = (namespaces.NETNS_DIR / NAME).stat()
    assert (where.st_ino, where.st_dev) == (bound.st_ino, bound.st_dev)
    assert os.readlink(HOME) != f"net:[{where.st_ino}]"
    assert not os.get_inheritable(namespace_fd)
    listed = subprocess.check_output(["ip", "-n", NAME, "-brief", "link"], text=True)
    assert [line.split()[0] for line in listed.splitlines()] == ["lo"]


def test_its_owner_hears_of_each_name_as_soon_as_it_exists() -> None:
    names = [f"{NAME}-{number}" for number in range(3)]
    heard = []

    def registered(name: str) -> None:
        heard.append([(namespaces.NETNS_DIR / each).exists() for each in names])
        if name == names[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        namespaces.take_names(names, registered)
    assert heard == [[True, False, False], [True, True, False]]
    for name in names:
        namespaces.remove(name)
        assert not (namespaces.NETNS_DIR / name).exists()


def test_names_taken_together_are_those_of_different_namespaces() -> None:
    names = [f"{NAME}-{number}" for number in range(3)]
    namespaces.take_names(names, str)
    with namespaces.restored():
        fds = [namespaces.create(name) for name in names]
    found = [(namespaces.NETNS_DIR / name).stat().st_ino for name in names]
    assert found == [os.fstat(fd).st_ino for fd in fds]
    assert len(set(found)) == 3
    for name, fd in zip(names, fds, strict=True):
        os.close(fd)
        namespaces.remove(name)
        assert not (namespaces.NETNS_DIR / name).exists()


def test_a_taken_name(namespace_fd: int) -> None:
    free = f"{NAME}-free"
    heard: list[str] = []
    with pytest.raises(FabricError, match=f"{NAME} exists already"):
        namespaces.take_names([free, NAME], heard.append)
    assert heard == [free]
    namespaces.remove(free)
    assert NAME in names_seen_by_others()


def test_remove_twice(namespace_fd: int) -> None:
    namespaces.remove(NAME)
    assert NAME not in names_seen_by_others()
    namespaces.remove(NAME)


def test_remove_while_a_process_is_inside(namespace_fd: int) -> None:
    command = ["nsenter", f"--net={namespaces.NETNS_DIR / NAME}", "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"inside\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"inside\n"
        namespaces.remove(NAME)
        assert NAME not in names_seen_by_others()


def test_inside(namespace_fd: int) -> None:
    home = os.readlink(HOME)
    with namespaces.inside(namespace_fd):
        assert interfaces() == ["lo"]
        with namespaces.temporary():
            assert os.readlink(HOME) not in (home, f"net:[{os.fstat(namespace_fd).st_ino}]")
        assert os.readlink(HOME) == f"net:[{os.fstat(namespace_fd).st_ino}]"
    assert os.readlink(HOME) == home


def test_an_error_brings_the_thread_home(namespace_fd: int) -> None:
    home = os.readlink(HOME)

    def fail() -> None:
        with namespaces.inside(namespace_fd):
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert os.readlink(HOME) == home


def test_other_threads_stay_where_they_are(namespace_fd: int) -> None:
    home = os.readlink(HOME)
    with namespaces.inside(namespace_fd), ThreadPoolExecutor(1) as pool:
        # A thread begins where the one that starts it is, then goes its own way.
        assert pool.submit(interfaces).result() == ["lo"]
        pool.submit(lambda: namespaces.temporary().__enter__()).result()
        assert os.readlink(HOME) == f"net:[{os.fstat(namespace_fd).st_ino}]"
    assert os.readlink(HOME) == home


def test_a_temporary_one_has_no_name() -> None:
    before, files = names_seen_by_others(), len(os.listdir("/proc/self/fd"))
    home = os.readlink(HOME)
    with namespaces.temporary():
        assert interfaces() == ["lo"]
        assert set(names_seen_by_others()) <= set(before)
    assert os.readlink(HOME) == home
    assert len(os.listdir("/proc/self/fd")) == files


def test_sysctls_are_those_of_the_namespace(namespace_fd: int) -> None:
    path = Path("/proc/sys/net/ipv4/ip_default_ttl")
    own = path.read_text()
    with namespaces.inside(namespace_fd):
        namespaces.write_sysctl("net/ipv4/ip_default_ttl", 99)
        assert path.read_text() == "99\n"
    assert path.read_text() == own


def test_sysctls_that_fail() -> None:
    with namespaces.temporary():
        assert namespaces.has_sysctl("net/ipv4/ip_default_ttl")
        assert not namespaces.has_sysctl("net/ipv4/no_such_setting")
        with pytest.raises(HostUnfit, match="no sysctl net/ipv4/no_such_setting"):
            namespaces.write_sysctl("net/ipv4/no_such_setting", 1)
        with pytest.raises(CommandFailed, match="ip_default_ttl = 256: Invalid argument"):
            namespaces.write_sysctl("net/ipv4/ip_default_ttl", 256)
