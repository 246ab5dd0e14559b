"""A fabric's life: used as lab people do, misused, interrupted, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.errors import FabricError
from fabric_emu.model.topology import Topology
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.netlink import NetlinkSocket
from fabric_emu.net.registry import Lease

pytestmark = pytest.mark.root

SMALL = Topology(leaves=2, spines=2, hosts_per_leaf=1)
NODES = len(SMALL.nodes)


def test_shells_start_on_demand() -> None:
    def children() -> list[str]:
        return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()

    with Fabric(SMALL) as fabric:
        before = children()
        net = fabric.net
        assert [node.name for node in net.hosts] == ["h1", "h2"]
        assert {node.name for node in net.switches} == {"leaf1", "leaf2", "spine1", "spine2"}
        assert children() == before
        assert net["h1"].cmd("echo $((6 * 7))").strip() == "42"
        assert "10.0.1.1" in net["h1"].cmd("ip address show dev eth0")
        started = set(children()) - set(before)
        assert len(started) == 1
        assert [str(pid) for pid, _ in fabric.lease.processes] == list(started)


def test_popen_runs_in_the_namespace_without_a_shell() -> None:
    with Fabric(SMALL) as fabric:
        process = fabric.net["leaf2"].popen(["ip", "-json", "link"], stdout=subprocess.PIPE)
        output, _ = process.communicate()
        names = {interface["ifname"] for interface in json.loads(output)}
        assert names == {"lo", "h2", "spine1", "spine2"}
        assert process.returncode == 0
        assert fabric.net["leaf2"].shell is None
        assert [pid for pid, _ in fabric.lease.processes] == [process.pid]


def test_two_fabrics_at_once() -> None:
    with Fabric(SMALL, seed=1) as one, Fabric(SMALL, seed=2) as other:
        assert one.lease.number != other.lease.number
        assert one.net.pingAll() == 0
        assert other.ports.ports["enqueued_packets"].sum() == 0  # nothing strayed over there
        assert other.net.pingAll() == 0
        one.close()
        assert other.net.pingAll() == 0
        assert other.ports.ports["departed_packets"].sum() > 0


def test_a_name_already_taken() -> None:
    lease = Lease.take()  # the number that the next fabric will get
    taken = f"{lease.prefix}spine1"
    with namespaces.restored():
        namespaces.take_names([taken], str)
        os.close(namespaces.create(taken))
    lease.release()
    try:
        with pytest.raises(FabricError, match=f"{taken} exists already.*fabric-emu clean"):
            Fabric(SMALL).__enter__()
        # It is not ours to remove.
        assert (namespaces.NETNS_DIR / taken).exists()
    finally:
        namespaces.remove(taken)


def test_too_many_links() -> None:
    topology = Topology(leaves=200, spines=200, hosts_per_leaf=1)
    with pytest.raises(FabricError, match="40200 links: a live fabric has at most 32768"):
        Fabric(topology).__enter__()


def test_namespaces_deleted_under_the_fabric() -> None:
    with Fabric(SMALL) as fabric:
        assert fabric.net["h1"].cmd("true") == ""
        for node in ("h1", "spine1"):
            subprocess.run(["ip", "netns", "delete", fabric.namespace(node)], check=True)


def test_close_twice() -> None:
    fabric = Fabric(SMALL).__enter__()
    fabric.close()
    fabric.close()
    assert not [
        name for name in os.listdir(namespaces.NETNS_DIR) if name in fabric.lease.namespaces
    ]


def test_an_exception_in_the_block_frees_everything() -> None:
    fds = len(os.listdir("/proc/self/fd"))
    fabric = Fabric(SMALL)

    def fail() -> None:
        with fabric:
            fabric.net["h1"].cmd("true")
            assert set(fabric.lease.namespaces) <= set(os.listdir(namespaces.NETNS_DIR))
            raise RuntimeError("in the block")

    with pytest.raises(RuntimeError, match="in the block"):
        fail()
    assert not set(fabric.lease.namespaces) & set(os.listdir(namespaces.NETNS_DIR))
    assert not fabric.lease.path.exists()
    assert len(os.listdir("/proc/self/fd")) == fds


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def build_and_close() -> None:
    with Fabric(SMALL):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("call", [1, 2, NODES - 1, NODES])
@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_a_namespace_that_is_not_made(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], call: int, made: bool
) -> None:
    interrupted = failing_at(call, namespaces.create, error, made)
    monkeypatch.setattr(namespaces, "create", interrupted)
    assert_all_freed(error)


# One flush makes the links, then each node has one for its interfaces and one for its routes.
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("call", [1, 2, NODES, NODES + 1, NODES + 2, 2 * NODES + 1])
@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_netlink_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], call: int, made: bool
) -> None:
    interrupted = failing_at(call, NetlinkSocket.flush, error, made)
    monkeypatch.setattr(NetlinkSocket, "flush", interrupted)
    assert_all_freed(error)


def failing_at(
    number: int, function: Callable[..., Any], error: type[BaseException], made: bool
) -> Callable[..., Any]:
    """Return the function, its n-th call raising before or after its work; none may follow."""
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        assert calls <= number, "called once more after it had failed"
        if calls < number:
            return function(*arguments)
        if made:
            result = function(*arguments)
            if isinstance(result, int):
                os.close(result)
        raise error("injected")

    return interrupted


def assert_all_freed(error: type[BaseException]) -> None:
    """Assert that a build fails so and keeps no file open; the rest is checked after each test."""
    home, files = os.readlink("/proc/thread-self/ns/net"), open_files()
    with pytest.raises(error, match="injected"):
        build_and_close()
    assert open_files() == files
    assert os.readlink("/proc/thread-self/ns/net") == home


def test_ctrl_c_at_any_time() -> None:
    home, files = os.readlink("/proc/thread-self/ns/net"), open_files()
    start = time.monotonic()
    build_and_close()
    whole_s = time.monotonic() - start
    interrupted = 0
    # An alarm raises the real signal; its own handler runs between two steps of the interpreter,
    # as that of a signal from outside does.
    handler = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for step in range(1, 61):  # from the start to past the end
            interrupted += is_interrupted(whole_s * 1.2 * step / 60)
            assert open_files() == files
            assert os.readlink("/proc/thread-self/ns/net") == home
    finally:
        signal.signal(signal.SIGALRM, handler)
    # The machine is shared and the first build no exact measure of the others.
    assert interrupted >= 20


def is_interrupted(after_s: float) -> bool:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            build_and_close()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


def test_the_calling_thread_stays_in_its_namespace() -> None:
    home = os.readlink("/proc/thread-self/ns/net")
    with Fabric(SMALL) as fabric:
        assert os.readlink("/proc/thread-self/ns/net") == home
        fabric.net["h1"].cmd("true")
        assert os.readlink("/proc/thread-self/ns/net") == home
    assert os.readlink("/proc/thread-self/ns/net") == home


def test_the_machines_own_network_is_untouched() -> None:
    before = own_network()
    with Fabric(Topology(leaves=2, spines=2, hosts_per_leaf=1, ip="both")) as fabric:
        during = own_network()
        assert fabric.net.pingAll() == 0
    assert during == before
    assert own_network() == before


def own_network() -> dict[str, object]:
    """Return links, addresses, routes, rules, nexthops, shapers and sysctls of this namespace."""
    questions: tuple[str, ...] = (
        "address",
        "-4 route show table all",
        "-6 route show table all",
        "-4 rule",
    )
    questions += ("-6 rule", "nexthop", "neighbour show nud permanent")
    found: dict[str, object] = {
        words: subprocess.check_output(["ip", *words.split()], text=True) for words in questions
    }
    found["qdisc"] = subprocess.check_output(["tc", "qdisc"], text=True)
    for path in Path("/proc/sys/net").rglob("*"):
        # Counts, and switches that are written only.
        if path.is_file() and os.access(path, os.R_OK) and not path.name.endswith("_count"):
            try:
                found[str(path)] = path.read_bytes()
            except OSError:
                continue
    return found


def test_build_and_close_are_fast() -> None:
    topology = Topology(leaves=4, spines=4, hosts_per_leaf=4)
    builds, closes = [], []
    for _ in range(3):  # the best of three: other work may share the machine
        start = time.monotonic()
        fabric = Fabric(topology).__enter__()
        built = time.monotonic()
        fabric.close()
        builds.append(built - start)
        closes.append(time.monotonic() - built)
    assert min(builds) < 1.0
    assert min(closes) < 0.5
