"""Messages over real transports in namespaces: complete, whatever is in the way."""

import socket
import threading

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.jobs import job_of
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scheme import Nic, Scheme, Switch
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.traffic import Traffic
from fabric_emu.wire.icrc import icrc

pytestmark = pytest.mark.root

SCENARIO = """
title: messages
topology: {leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 20mbit, stands_for: 400gbit}
workload: {kind: messages, collective: permutation, size: 200KB, message_size: 64KiB, duration: 20s}
schemes: [ecmp]
"""


def run(scheme, *changes, seed=1):
    return run_whole(scheme, *changes, seed=seed).summary


def run_whole(scheme, *changes, seed=1):
    scenario = parse_scenario(SCENARIO, "messages.yaml", changes)
    scheme = Scheme.named(scheme) if isinstance(scheme, str) else scheme
    result = run_scheme(scenario, scheme, seed)
    summary = result.summary
    packets = summary["packets"]
    gone = packets["delivered"] + sum(packets["dropped"].values())
    assert packets["sent"] == gone + packets["trimmed"] + packets["queued"] > 0
    assert summary["paths"]["agree"]
    checks = {check["name"]: check["ok"] for check in summary["verdict"]["checks"]}
    assert checks["conservation"]
    assert checks["order on one path"]
    if summary["prediction"]["offered"]:
        assert summary["prediction"]["matched"] == summary["prediction"]["checked"]
        # Of runs with faults only what is sent once the routes are known to be settled.
        assert summary["prediction"]["checked"] > 0 or scenario.faults
    return result


def assert_done(summary):
    assert summary["completion"]["unfinished"] == 0
    assert summary["queue_pairs_failed"] == 0
    # An idle link lets a frame pass at once: a message may beat the ideal by the store and forward
    # of its path, three frames, and by one more, 4 of the 16 that the smallest here (13 packets)
    # takes. A busy machine misses it by anything.
    assert summary["completion"]["over_ideal"] > 0.7
    assert summary["busbw"] > 0


@pytest.mark.parametrize("ip", ["4", "6"])
@pytest.mark.parametrize("scheme", ["ecmp", "ecmp-4qp", "mrc", "mrc-random"])
def test_a_permutation_completes(scheme, ip):
    summary = run(scheme, f"topology.ip={ip}")
    assert_done(summary)
    assert summary["packets"]["dropped"] == {}
    if scheme.startswith("ecmp"):
        assert summary["retransmitted"] == summary["nak"] == 0
        assert summary["prediction"]["offered"]
    else:
        assert summary["sack"] > 0


@pytest.mark.parametrize("collective", ["ring-all-reduce", "all-to-all", "broadcast", "incast"])
def test_collectives_complete(collective):
    summary = run("mrc", f"workload.collective={collective}", "workload.size=200KB")
    assert_done(summary)


def test_a_training_loop_repeats_its_collective():
    summary = run(
        "ecmp",
        "workload.collective=ring-all-reduce",
        "workload.size=200KB",
        "workload.iterations=3",
        "workload.compute_time=50ms",
    )
    assert_done(summary)
    assert summary["completion"]["count"] == 3
    assert summary["iteration"]["p50"] > 0.05


def test_three_tiers_and_one_chassis():
    three = [
        "topology.tiers=3", "topology.pods=2", "topology.leaves=1", "topology.spines=2",
        "topology.super_spines=2",
    ]  # fmt: skip
    assert_done(run("mrc", *three))
    one = ["topology.tiers=1", "topology.leaves=1", "topology.spines=0"]
    assert_done(run("ecmp", *one, "workload.shift=1"))


def test_full_queues_make_rc_go_back():
    # Policy 0 puts both hosts' messages on one uplink; a queue of 12 kB holds two packets.
    scheme = Scheme(
        name="lossy",
        nic=Nic(retries=100),
        switch=Switch(hash_policy=0, drop_at="12KB", lossless=False),
    )
    summary = run(scheme, "topology.spines=1")
    assert_done(summary)
    assert set(summary["packets"]["dropped"]) == {"queue_limit"}
    assert summary["nak"] > 0
    assert summary["retransmitted"] > summary["packets"]["dropped"]["queue_limit"]
    assert summary["efficiency"] < 0.9


LOSSY = "faults=[{at: 0, link: leaf1-spine1, action: loss, probability: 0.05}]"


@pytest.mark.parametrize("scheme", ["ecmp-4qp", "mrc"])
def test_a_lossy_link_costs_retransmissions_only(scheme):
    result = run_whole(scheme, LOSSY)
    summary, flows = result.summary, result.flows
    assert_done(summary)
    assert summary["packets"]["dropped"].keys() <= {"fault_loss"}
    lost = zip(flows["carries"], flows["dropped"], strict=True)
    # A lost answer is made up for by a later one.
    lost_data = sum(dropped for carries, dropped in lost if carries == "data")
    assert summary["retransmitted"] >= lost_data


def test_mrc_leaves_a_dead_path_and_rc_does_not():
    dead = "faults=[{at: 50ms, link: leaf1-spine2, action: blackhole}]"
    size = "workload.size=400KB"
    mrc = run("mrc", dead, size)
    assert_done(mrc)
    assert mrc["packets"]["dropped"]["blackhole"] > 0
    # Two queue pairs send from leaf 1 and two towards it; each has 8 entropy values, 2 of which
    # lead over the dead link, and some 8 packets in flight. Without learning a quarter of 392
    # packets would be lost, and again of those sent again.
    assert 0 < mrc["retransmitted"] < 60
    rc = run("ecmp-4qp", dead, size, "workload.duration=3s")
    assert rc["completion"]["unfinished"] > 0
    assert rc["timeouts"] > 0


def test_mrc_probes_a_path_and_takes_it_again_when_it_is_repaired():
    # Long enough to learn of the loss and, a few round trips after the repair, of the answers.
    outage = "faults=[{at: 50ms, for: 150ms, link: leaf1-spine2, action: blackhole}]"
    summary = run("mrc", outage, "workload.size=1MB")
    assert_done(summary)
    transport = summary["transport"]
    assert summary["packets"]["dropped"]["blackhole"] > 0
    assert summary["probes"] >= transport["probe_ack"] > 0
    noticed = summary["loss_noticed"]
    assert noticed["count"] >= summary["retransmitted"] > 0
    # Sooner would be before an acknowledgement of anything sent later can have come: the wire
    # alone takes a data frame's serialisation on four links, and half of that is room enough.
    assert noticed["max"] >= noticed["p99"] >= noticed["p50"] > 2 * 4096 * 8 / 20e6


def plane_packets(result):
    """Return the data packets that the first host sent into each plane."""
    sent = [
        count
        for port, count in zip(result.ports["from"], result.ports["enqueued_packets"], strict=True)
        if port == "h1"
    ]
    assert len(sent) == 2
    return sent


PLANES = ("topology.planes=2", "topology.spines=2", "workload.size=400KB")


@pytest.mark.parametrize("scheme", ["ecmp-4qp", "mrc", "uec"])
def test_messages_use_all_planes(scheme):
    result = run_whole(scheme, *PLANES)
    assert_done(result.summary)
    first, second = plane_packets(result)
    assert min(first, second) > 0
    if scheme == "mrc":  # the rotation takes turns
        assert max(first, second) < 1.2 * min(first, second)


@pytest.mark.parametrize("scheme", ["mrc", "uec"])
def test_a_dead_plane_is_left(scheme):
    """The link of one host into plane 2 dies in mid-run, without a word to anyone."""
    dead = "faults=[{at: 60ms, link: h1-leaf1p2, action: blackhole}]"
    result = run_whole(scheme, *PLANES, dead)
    assert_done(result.summary)
    assert result.summary["packets"]["dropped"]["blackhole"] > 0
    # Four queue pairs of 98 packets; two of them have an end at the host, and half of what they
    # send would be lost if nothing were learnt, and half of that again: as many as one sends.
    assert result.summary["packets"]["dropped"]["blackhole"] < 98


def test_every_frame_on_the_wire_is_whole():
    """Payload and ICRC of whole frames, captured at the receiving leaf."""
    scenario = parse_scenario(SCENARIO, "messages.yaml", ["workload.size=60001"])
    job = job_of(scenario, Scheme.named("ecmp"), 1)
    frames: list[bytes] = []
    with Fabric(scenario.topology, job.scheme, queue_pairs=job.queue_pairs) as fabric:
        with namespaces.inside(fabric.namespace_fds["leaf2"]):
            listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
            listener.bind(("spine1", 0x0800))
        listener.settimeout(0.2)
        stop = threading.Event()

        def listen():
            while not stop.is_set():
                try:
                    frames.append(listener.recv(9000))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        plans = job.plans(fabric, None)
        with Traffic(plans, fabric.lease.add_process) as traffic:
            thread.start()
            traffic.start()
            assert traffic.wait_sent(20.0)
            traffic.stop()
        stop.set()
        thread.join()
        listener.close()
    data = [frame for frame in frames if len(frame) > 100]
    assert len(data) > 5
    for frame in frames:
        assert int.from_bytes(frame[-4:], "little") == icrc(frame)
    # Behind the send time the payload is one byte over and over, padding aside.
    assert all(set(frame[70:-8]) == {0xA5} for frame in data)
