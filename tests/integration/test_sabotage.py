"""Runs sabotaged on purpose: each must be called doubtful, for the right reason."""

import array
import contextlib
import fcntl
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import time

import pytest
from click.testing import CliRunner

from fabric_emu.cli import main
from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.net import namespaces
from fabric_emu.net.selftest import SEED_SYSCTL
from fabric_emu.nic import plan

pytestmark = pytest.mark.root

SMALL = """
title: small
topology: {leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 20mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.7, duration: 1s}
schemes: [ecmp]
"""


def nothing(fabric):
    return contextlib.nullcontext({})


def run(*changes, attach=nothing, observer=lambda elapsed_s, ports: None):
    scenario = parse_scenario(SMALL, "small.yaml", changes)
    return run_scheme(scenario, scenario.schemes[0], 1, observer=observer, attach=attach).summary


def assert_doubtful(summary, *names):
    verdict = summary["verdict"]
    assert not verdict["trustworthy"]
    failed = {check["name"] for check in verdict["checks"] if not check["ok"]}
    assert failed & set(names), verdict["reasons"]


def hog(cpu):
    """Take a processor at a priority over the workers', most of half a second."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        until = time.monotonic() + 0.045
        while time.monotonic() < until:
            pass
        time.sleep(0.005)


def test_a_hog_beside_the_workers():
    hogs: list[multiprocessing.process.BaseProcess] = []

    def observer(elapsed_s, ports):
        if not hogs and elapsed_s > 0.2:
            context = multiprocessing.get_context("fork")
            for cpu in os.sched_getaffinity(0):
                hogs.append(context.Process(target=hog, args=(cpu,)))
                hogs[-1].start()

    # Of every 50 ms in half of the run the hogs take 45: a packet due meanwhile is 22 ms late on
    # average, against the 6.6 ms of a round trip.
    summary = run(observer=observer)
    for process in hogs:
        process.join()
    assert_doubtful(summary, "sender lag p99")


def ordinary_hog(ended):
    while not ended.is_set():
        for _ in range(10_000):
            pass


@pytest.fixture
def ordinary_hogs():
    """Three processes for each processor that want all of it, at everybody's priority."""
    context = multiprocessing.get_context("fork")
    ended = context.Event()
    count = 3 * len(os.sched_getaffinity(0))
    hogs = [context.Process(target=ordinary_hog, args=(ended,)) for _ in range(count)]
    for process in hogs:
        process.start()
    yield hogs
    ended.set()
    for process in hogs:
        process.join()


TIMING = {"sender lag p99", "longest pause", "worker busy share", "offered load sent"}


def test_ordinary_hogs_take_nothing_from_the_workers(ordinary_hogs):
    summary = run("workload.duration=2s")
    assert all(process.is_alive() for process in ordinary_hogs)
    verdict = summary["verdict"]
    failed = {check["name"] for check in verdict["checks"] if not check["ok"]}
    # What is counted is right however late it comes.
    assert failed <= TIMING, verdict["reasons"]
    packets = summary["packets"]
    assert packets["delivered"] + sum(packets["dropped"].values()) == packets["sent"]
    if not verdict["trustworthy"]:
        return
    # Each flow asks for 0.7 / 4 of a link, to a packet more or less at both ends of two seconds
    # with 209 of its packets.
    flows = summary["worst_uplink_load"] / (0.7 / 4)
    assert round(flows) >= 2  # eight flows of a leaf on four uplinks
    assert abs(flows / round(flows) - 1) < 2 / 209
    if round(flows) <= 4:  # 5.7 fill an uplink
        assert packets["delivered"] == packets["scheduled"]
        # Flows of one period T queue no more than one frame each, 1.7 ms of a link: four at each
        # of four hops.
        assert summary["delay"]["p99"] < 4 * 4 * 0.0017 + summary["lag"]["p99"]


def test_a_rate_beyond_the_machine():
    # 4 hosts of 4 Gbit/s are 120,000 packets a second in and as many out, of numpy and of the
    # kernel's three switches each: several times what two processors do.
    summary = run("topology.link_rate=4gbit", "workload.duration=300ms", "workload.payload=1024")
    assert_doubtful(summary, "sender lag p99", "offered load sent", "worker busy share")


def test_a_ring_too_small(monkeypatch):
    # A page of 16 slots: 850 packets a second to each host, all of them kept waiting for 80 ms.
    monkeypatch.setattr(plan, "RECEIVE_SLOTS", 16)
    monkeypatch.setattr(plan, "TICK_S", 0.08)
    assert_doubtful(run(), "drops outside the fabric")


def test_a_worker_stopped_for_200_ms():
    workers: list[list[tuple[int, int]]] = []
    stopped: list[float] = []

    def attach(fabric):
        workers.append(fabric.lease.processes)
        return contextlib.nullcontext({})

    def observer(elapsed_s, ports):
        pid = workers[0][0][0]
        if not stopped and elapsed_s > 0.3:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(elapsed_s)
        elif len(stopped) == 1 and elapsed_s > stopped[0] + 0.2:
            os.kill(pid, signal.SIGCONT)
            stopped.append(elapsed_s)

    assert_doubtful(run(attach=attach, observer=observer), "longest pause")
    assert len(stopped) == 2


@pytest.mark.skipif(not namespaces.has_sysctl(SEED_SYSCTL), reason="no hash seeds, no predictions")
def test_a_prediction_with_the_wrong_seed():
    def attach(fabric):
        with namespaces.inside(fabric.namespace_fds["leaf1"]):
            namespaces.write_sysctl(SEED_SYSCTL, 12345)
        return contextlib.nullcontext({})

    # 8 flows of leaf 1 on 4 uplinks: all stay where they were once in 4^8.
    assert_doubtful(run(attach=attach), "predicted paths")


def turn_gro_off(interface):
    """Do what ``ethtool -K INTERFACE gro off`` does."""
    command = array.array("I", (0x2C, 0))  # ETHTOOL_SGRO
    request = struct.pack("16sP16x", interface.encode(), command.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8946, request)  # SIOCETHTOOL


@pytest.mark.parametrize("sabotage", ["gro", "rps"])
def test_a_link_that_two_processors_may_serve(sabotage):
    def attach(fabric):
        if sabotage == "gro":
            with namespaces.inside(fabric.namespace_fds["spine1"]):
                turn_gro_off("leaf1")
        else:
            mask = "/sys/class/net/leaf1/queues/rx-0/rps_cpus"
            words = ["ip", "netns", "exec", fabric.namespace("spine1"), "tee", mask]
            subprocess.run(words, input=b"3", stdout=subprocess.DEVNULL, check=True)
        return contextlib.nullcontext({})

    summary = run("workload.duration=200ms", attach=attach)
    assert_doubtful(summary, "links altered")
    assert "1 interfaces have" in " ".join(summary["verdict"]["reasons"])


def test_no_sabotage_leaves_no_doubt_about_links():
    summary = run("workload.duration=200ms")
    checks = {check["name"]: check for check in summary["verdict"]["checks"]}
    assert checks["links altered"]["ok"]
    assert checks["predicted paths"]["ok"]


def test_strict_makes_doubt_an_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "RECEIVE_SLOTS", 16)
    monkeypatch.setattr(plan, "TICK_S", 0.08)
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    words = ["run", str(file), "--set", "workload.duration=300ms", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, words).exit_code == 0
    result = CliRunner().invoke(main, [*words, "--strict"])
    assert result.exit_code == 5
    assert "lost in full receive rings" in result.output
