"""Switches with policies of their own, live: what they spread, mark, trim and tell each other."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.measure.summary import SchemeResult
from fabric_emu.model.fault import Fault
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.policies import Dlb, Glb, SwitchSpray
from fabric_emu.model.queueing import Ecn, Trimming
from fabric_emu.model.scheme import Nic, Scheme, Switch
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric

pytestmark = pytest.mark.root

SMALL = """
title: small
topology: {leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 40mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.9, payload: 1024, duration: 600ms}
schemes: [ecmp]
"""
THREE_TIERS = (
    "topology.tiers=3", "topology.pods=2", "topology.leaves=1", "topology.spines=2",
    "topology.super_spines=4",
)  # fmt: skip
FRAME = 1098  # of 1,024 bytes of payload, IPv4


def run(scheme: Scheme | str, *changes: str, **update: Any) -> SchemeResult:
    scenario = parse_scenario(SMALL, "small.yaml", changes).model_copy(update=update)
    chosen = Scheme.named(scheme) if isinstance(scheme, str) else scheme
    return run_scheme(scenario, chosen, 1)


def scheme(policy: Any = "ecmp", nic: Nic | None = None, **switch: Any) -> Scheme:
    return Scheme(name="own", nic=nic or Nic(), switch=Switch(policy=policy, **switch))


def check(summary: dict[str, Any], name: str) -> dict[str, Any]:
    checks: list[dict[str, Any]] = summary["verdict"]["checks"]
    return next(check for check in checks if check["name"] == name)


def assert_sound(summary: dict[str, Any]) -> None:
    """Assert what holds on any machine, however busy: packets, paths and order."""
    packets = summary["packets"]
    dropped = {reason: n for reason, n in packets["dropped"].items() if reason != "no_route"}
    gone = packets["delivered"] + sum(dropped.values())
    assert packets["sent"] == gone + packets["trimmed"] + packets["queued"]
    assert packets["sent"] > 0
    assert packets["queued"] == 0
    assert summary["paths"]["agree"]
    for name in ("drops outside the fabric", "order on one path"):
        assert check(summary, name)["ok"], summary["verdict"]


def loads(summary: dict[str, Any], switch: str = "leaf1") -> list[float]:
    return [uplink["offered"] for uplink in summary["uplinks"][switch]]


@pytest.mark.parametrize("ip", ["4", "6", "both"])
@pytest.mark.parametrize("name", ["dlb", "dlb-packet", "glb", "switch-spray", "switch-spray-rr"])
def test_every_policy_forwards_all(name: str, ip: str) -> None:
    # Chance may put all eight flows of a leaf on one uplink; at this load it carries them.
    summary = run(name, f"topology.ip={ip}", "workload.load=0.45").summary
    assert_sound(summary)
    assert summary["packets"]["delivered"] == summary["packets"]["sent"]
    # Each packet has one choice, at its leaf.
    assert summary["switch"]["balanced"] == summary["packets"]["sent"]
    assert sum(loads(summary)) == pytest.approx(2 * 0.45, rel=0.02)
    assert not summary["prediction"]["offered"]


@pytest.mark.parametrize("ip", ["4", "6"])
@pytest.mark.parametrize("name", ["dlb", "glb", "dlb-packet", "switch-spray-rr"])
def test_three_tiers_choose_twice(name: str, ip: str) -> None:
    summary = run(name, *THREE_TIERS, f"topology.ip={ip}", "workload.load=0.4").summary
    assert_sound(summary)
    sent = summary["packets"]["sent"]
    assert summary["switch"]["balanced"] == 2 * sent  # at the leaf, and at the spine
    assert {"leaf1", "spine1", "spine2"} <= summary["uplinks"].keys()


def test_turns_keep_uplinks_within_a_percent() -> None:
    summary = run("switch-spray-rr", "workload.duration=1s").summary
    assert_sound(summary)
    # Turns differ by one packet of about 1,000 on each uplink.
    found = loads(summary)
    assert max(found) - min(found) < 0.002 * max(found)
    assert summary["imbalance"]["leaf1"]["max_over_mean"] < 1.01


def test_chance_keeps_uplinks_as_even_as_chance_does() -> None:
    summary = run("switch-spray", "workload.duration=1s").summary
    assert_sound(summary)
    packets = summary["packets"]["sent"]
    # Binomial of p = 1/4: six standard deviations, over a mean of packets / 4.
    allowed = 6 * (packets * 3 / 16) ** 0.5 / (packets / 4)
    mean = np.mean(loads(summary))
    assert max(abs(load / mean - 1) for load in loads(summary)) < allowed


def test_best_quality_per_packet_is_evener_than_chance() -> None:
    summary = run("dlb-packet", "workload.duration=1s").summary
    assert_sound(summary)
    # Load and queue in eight bands each: no uplink gets ahead by more than a band of the load's
    # half and one of the queue's; a hash over 8 flows does four times as badly on average.
    assert summary["imbalance"]["leaf1"]["max_over_mean"] < 1.2
    assert summary["switch"]["flowlets"] == 0


def one_flow(*changes: str, policy: Any, faults: tuple[Fault, ...] = ()) -> SchemeResult:
    """Run one flow at a third of an uplink's rate over two spines."""
    return run(
        scheme(policy), "topology.spines=2", "topology.hosts_per_leaf=1",
        "workload.flows_per_host=1", "workload.load=0.33", "workload.duration=1500ms", *changes,
        faults=faults,
    )  # fmt: skip


def test_flowlets_move_off_a_slow_uplink() -> None:
    # A frame every 0.66 ms at 13.2 Mbit/s: with a gap of no time every packet is a flowlet. An
    # uplink slowed to 4 Mbit/s queues, and only the queue counts: it gets what it can serve.
    slow = Fault(at="1us", link="leaf1-spine1", action="slow", rate="4mbit")
    policy = Dlb(flowlet_gap="1us", load_weight=0, queue_weight=1)
    summary = one_flow(policy=policy, faults=(slow,)).summary
    assert_sound(summary)
    slowed, fast = loads(summary)
    assert fast > 2 * slowed
    switch = summary["switch"]
    assert switch["flowlets"] == summary["packets"]["sent"]
    assert switch["reassignments"] > 0
    assert summary["packets"]["delivered"] == summary["packets"]["sent"]


def test_without_a_gap_a_flow_stays_where_it_is() -> None:
    slow = Fault(at="1us", link="leaf1-spine1", action="slow", rate="12mbit")
    summary = one_flow(policy=Dlb(flowlet_gap=10), faults=(slow,)).summary
    assert_sound(summary)
    assert summary["switch"]["flowlets"] == 1
    assert sorted(loads(summary))[0] == 0.0
    assert summary["reordering"]["ratio"] == 0.0


def test_a_dead_uplink_is_left_at_once() -> None:
    down = Fault(at=0.5, link="leaf1-spine1", action="down")
    summary = one_flow(policy=SwitchSpray(order="round-robin"), faults=(down,)).summary
    dead, alive = loads(summary)
    # Half of the packets of the first third of the time; all of the rest.
    assert dead == pytest.approx(0.33 / 2 / 3, rel=0.15)
    assert alive == pytest.approx(0.33 - dead, rel=0.02)


def incast(*changes: str, **switch: Any) -> dict[str, Any]:
    """Two hosts send to one at 60 % of its link each; frames queue at its leaf's port."""
    flows = "[{source: h1, destination: h3}, {source: h2, destination: h3}]"
    nic = switch.pop("nic", Nic(entropy="random"))
    return run(
        scheme(nic=nic, **switch), "workload.pattern=flows", f"workload.flows={flows}",
        "workload.load=0.6", *changes,
    ).summary  # fmt: skip


def test_marks_are_made_above_the_threshold_and_only_there() -> None:
    # 1.2 times the rate for 0.6 s make 0.6 MB of queue; the limit is 100 kB.
    summary = incast(drop_at="100KB", ecn=Ecn(mark_at="50KB"))
    assert_sound(summary)
    assert summary["packets"]["dropped"]["queue_limit"] > 0
    # Once the queue is over 50 kB, after 50 kB / (0.2 * 5 MB/s) = 50 ms, everything is marked that
    # is not dropped: of 600 ms.
    delivered = summary["packets"]["delivered"]
    assert summary["ecn_marked"] == pytest.approx(delivered * 0.92, rel=0.05)
    high = incast(drop_at="100KB", ecn=Ecn(mark_at="101KB"))
    assert (high["ecn_marked"], high["packets"]["dropped"].keys()) == (0, {"queue_limit"})


def test_host_ports_need_not_mark() -> None:
    summary = incast(drop_at="100KB", ecn=Ecn(mark_at="50KB", host_ports=False))
    assert summary["ecn_marked"] == 0  # the only long queue faces a host
    summary = incast(drop_at="100KB", ecn=Ecn(mark_at="50KB"), nic=Nic(entropy="random", ecn=False))
    assert summary["ecn_marked"] == 0


@pytest.mark.parametrize(("ip", "kept"), [("4", 64), ("6", 74)])
def test_trimmed_headers_arrive_and_nothing_is_lost(ip: str, kept: int) -> None:
    summary = incast(
        f"topology.ip={ip}", trimming=Trimming(trim_at="20KB"),
        nic=Nic(entropy="random", trimmable=True),
    )  # fmt: skip
    assert_sound(summary)
    packets = summary["packets"]
    assert packets["dropped"] == {}
    assert packets["trimmed"] == summary["trims"] > 0
    # What exceeds the link's rate is cut, headers taking their share: x of the packets whole,
    # 1.2 (x + (1 - x) kept / frame) = 1, and a queue of 30 kB besides, of 5 MB/s * 0.6 s.
    frame = FRAME + (20 if ip == "6" else 0)
    share = (1 / 1.2 - kept / frame) / (1 - kept / frame)
    assert packets["delivered"] / packets["sent"] == pytest.approx(share, abs=0.03)
    assert summary["efficiency"] == packets["delivered"] / packets["scheduled"]
    # All that was asked of the port counts as offered, cut off or not.
    assert summary["worst_link_load"] == pytest.approx(1.2, rel=0.02)


def test_packets_that_may_not_be_trimmed_are_dropped() -> None:
    summary = incast(trimming=Trimming(trim_at="20KB"))
    assert_sound(summary)
    assert (summary["trims"], summary["packets"]["trimmed"]) == (0, 0)
    assert summary["packets"]["dropped"].keys() == {"queue_limit"}


def test_headers_without_room_are_dropped_for_a_reason_of_their_own() -> None:
    summary = incast(
        trimming=Trimming(trim_at="20KB", control_limit=64),
        nic=Nic(entropy="random", trimmable=True),
    )
    assert_sound(summary)
    packets = summary["packets"]
    assert packets["dropped"].keys() <= {"control_limit"}
    assert packets["trimmed"] + packets["dropped"].get("control_limit", 0) > 0


def test_trimmed_and_lossy_all_are_accounted_for() -> None:
    loss = Fault(at="1us", link="leaf2-spine1", action="loss", probability=0.2)
    flows = "[{source: h1, destination: h3}, {source: h2, destination: h3}]"
    summary = run(
        scheme(
            SwitchSpray(), Nic(trimmable=True), trimming=Trimming(trim_at="10KB"), ecn=Ecn()
        ),
        "topology.spines=2", "workload.pattern=flows", f"workload.flows={flows}",
        "workload.load=0.9", faults=(loss,),
    ).summary  # fmt: skip
    assert_sound(summary)
    assert check(summary, "conservation")["ok"]
    assert summary["packets"]["dropped"]["fault_loss"] > 0
    assert summary["packets"]["trimmed"] > 0
    assert summary["ecn_marked"] > 0


GLB = Glb(glb_interval="20ms", flowlet_gap="1us", load_weight=0, queue_weight=1)


@pytest.mark.parametrize("ip", ["4", "6"])
def test_adverts_arrive_and_are_paid_for(ip: str) -> None:
    summary = one_flow(f"topology.ip={ip}", policy=GLB).summary
    assert_sound(summary)
    switch = summary["switch"]
    # Two spines tell two leaves every 20 ms for 1.5 s at least, unless rounds had to be skipped.
    rounds = switch["adverts_sent"] / 4
    assert rounds + switch["adverts_skipped"] >= 75
    assert switch["adverts_received"] == switch["adverts_sent"]
    # Ethernet, IP, UDP, eight bytes of header, two qualities.
    size = 14 + (20 if ip == "4" else 40) + 8 + 8 + 2
    assert switch["adverts_bytes"] == switch["adverts_sent"] * size
    assert switch["adverts_refused"] == switch["adverts_lost"] == 0
    assert 0 < switch["adverts_late"]["p50"] <= switch["adverts_late"]["max"]


def downlinks(summary: dict[str, Any], result: SchemeResult) -> list[float]:
    """Return what was asked of each spine's port to leaf 2."""
    ports = result.ports
    rows = zip(ports["from"], ports["to"], ports["offered"], strict=True)
    return [load for sender, receiver, load in rows if (sender[:5], receiver) == ("spine", "leaf2")]


def test_adverts_lead_around_a_slow_downlink() -> None:
    # The flow asks 13.2 of 40 Mbit/s; spine 1's port to leaf 2 serves 4. A leaf that sees its own
    # ports only sends half of the flow there.
    slow = Fault(at="1us", link="leaf2-spine1", action="slow", rate="4mbit", towards="leaf2")
    local = one_flow(
        policy=Dlb(mode="per-packet-quality", load_weight=0, queue_weight=1), faults=(slow,)
    )
    blind = downlinks(local.summary, local)
    assert blind[0] == pytest.approx(0.33 / 2, rel=0.2)
    result = one_flow(policy=GLB, faults=(slow,))
    assert_sound(result.summary)
    slowed, other = downlinks(result.summary, result)
    # 4 of 40 Mbit/s are 0.1; and what arrives before a queue is told of.
    assert slowed < 0.14
    assert other > 2 * slowed
    assert result.summary["switch"]["stale"] < 0.05 * result.summary["packets"]["sent"]


def test_adverts_tell_of_the_last_hop_in_three_tiers() -> None:
    slow = Fault(at="1us", link="leaf2-spine3", action="slow", rate="4mbit", towards="leaf2")
    result = run(
        scheme(GLB), *THREE_TIERS, "topology.hosts_per_leaf=1", "workload.flows_per_host=1",
        "workload.load=0.33", "workload.duration=1500ms", faults=(slow,),
    )  # fmt: skip
    assert_sound(result.summary)
    # Spine 3 is in the second pod what spine 1 is in the first: leaf 1 must avoid spine 1.
    first, second = loads(result.summary)
    assert second > 1.5 * first
    slowed, other = downlinks(result.summary, result)
    assert slowed < 0.15 < other


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        os.sched_yield()


def test_adverts_go_stale_when_they_stop() -> None:
    topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="40mbit")
    policy = Glb(glb_interval="10ms", ageing="50ms", mode="per-packet-quality")
    with Fabric(topology, scheme(policy)) as fabric:
        switches, ports = fabric.switches, fabric.ports
        uplink = topology.uplinks["leaf1"][0].up_port
        wait_until(lambda: bool(switches.totals()["adverts_received"] >= 20))
        ping = "ping -c 1 -W 2 -s 10"
        stale = switches.totals()["stale"]
        assert fabric.adverts is not None
        report = fabric.adverts.stop()
        assert report.rounds >= 5
        last = int(switches.adverts["heard_ns"][uplink, 0])
        wait_until(lambda: time.monotonic_ns() - last > 60_000_000)
        received = switches.totals()["adverts_received"]
        assert received == ports.ports["advert_packets"].sum()
        # A ping is left to the kernel; a datagram has the leaf choose, with nothing fresh to go by.
        host, other = fabric.net.get("h1", "h2")
        assert "1 received" in host.cmd(f"{ping} {other.IP()}")
        host.cmd(f"bash -c 'echo x > /dev/udp/{other.IP()}/9999'")
        wait_until(lambda: bool(switches.totals()["stale"] > stale))
        assert switches.totals()["adverts_received"] == received


def test_knobs_turn_while_packets_flow() -> None:
    topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="40mbit")
    with Fabric(topology, Scheme.named("dlb")) as fabric:
        host, other = fabric.net.get("h1", "h2")
        leaf = fabric.switches.row("leaf1")
        counters = fabric.switches.counters
        send = f"bash -c 'for i in 1 2 3 4 5 6; do echo x > /dev/udp/{other.IP()}/9999; done'"
        host.cmd(send)  # each from a port of its own: six flows
        wait_until(lambda: bool(counters["balanced"][leaf] == 6))
        # Two of the flows may share a place in the table of flowlets; more hardly ever do.
        chosen = int(counters["flowlets"][leaf])
        assert 4 <= chosen <= 6
        fabric.switches.configs["mode"][leaf] = 6  # in turn
        before = fabric.ports.ports["enqueued_packets"].copy()
        host.cmd(send)
        wait_until(lambda: bool(counters["balanced"][leaf] == 12))
        uplinks = [link.up_port for link in topology.uplinks["leaf1"]]
        added = fabric.ports.ports["enqueued_packets"][uplinks] - before[uplinks]
        assert added.tolist() == [3, 3]
        assert counters["flowlets"][leaf] == chosen


def test_the_process_that_sends_adverts_ends_with_its_fabric() -> None:
    topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="40mbit")
    with Fabric(topology, Scheme.named("glb")) as fabric:
        assert fabric.adverts is not None
        pid = fabric.adverts.pid
        assert os.path.exists(f"/proc/{pid}")
        lease = json.loads(fabric.lease.path.read_text())
        assert pid in [process for process, _ in lease["processes"]]
    assert not os.path.exists(f"/proc/{pid}")
