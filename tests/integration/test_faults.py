"""Faults of live links, by hand and from scenarios: losses are named, what is undone is whole."""

import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric
from fabric_emu.switch.ports import DropReason

pytestmark = pytest.mark.root

SCENARIO = """
title: faulty
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 40mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.4, payload: 1024, duration: 1s}
faults: [{at: 300ms, for: 300ms, link: leaf1-spine2, %s}]
"""


def run(fault, scheme="mrc", *changes):
    scenario = parse_scenario(SCENARIO % fault, "faulty.yaml", changes)
    summary = run_scheme(scenario, Scheme.named(scheme), 1).summary
    packets = summary["packets"]
    gone = packets["delivered"] + sum(packets["dropped"].values())
    assert packets["sent"] == gone + packets["queued"] == packets["scheduled"]
    assert packets["queued"] == 0
    assert summary["paths"]["agree"]
    return summary


def share(summary, reason):
    return summary["packets"]["dropped"].get(reason, 0) / summary["packets"]["scheduled"]


def test_a_blackhole_takes_what_is_sent_towards_it():
    summary = run("action: blackhole, towards: spine2")
    # Half of the packets for 0.3 of 1 s; the start of a fault is up to 20 ms late.
    assert share(summary, "blackhole") == pytest.approx(0.15, abs=0.03)
    assert summary["packets"]["dropped"].keys() == {"blackhole"}


def test_a_lossy_link_loses_its_share():
    summary = run("action: loss, probability: 0.5")
    # A quarter of 0.3: 1,900 packets sent over it, so a deviation of 22, 0.6 % of all.
    assert share(summary, "fault_loss") == pytest.approx(0.075, abs=0.03)


def test_a_slow_link_fills_its_queue():
    summary = run("action: slow, rate: 4mbit", "mrc", "schemes=[mrc]")
    # 16 Mbit/s are asked of a link of 4 for 0.3 s: 0.45 MB too many, a queue holds 72 kB.
    assert share(summary, "queue_limit") > 0.05
    assert summary["delay"]["max"] > 0.05


@pytest.mark.parametrize("scheme", ["ecmp", "mrc"])
def test_a_link_that_is_down_is_left_by_its_own_switch(scheme):
    summary = run("action: down", scheme)
    # Leaf 1 knows at once and sends everything over spine 1; only what was queued is lost.
    assert share(summary, "link_down") < 0.02
    assert share(summary, "no_route") == 0
    assert summary["efficiency"] > 0.97
    spine1, spine2 = summary["uplinks"]["leaf1"]
    if scheme == "mrc":
        assert spine1["offered"] == pytest.approx(0.4 + 0.3 * 0.4, abs=0.03)
        assert spine2["offered"] == pytest.approx(0.4 - 0.3 * 0.4, abs=0.03)


def test_a_dead_downlink_has_no_route_left_at_its_spine():
    summary = run("action: down", "mrc", "faults.0.link=leaf2-spine2")
    # Leaf 1 hears nothing of it and goes on sending half of everything to spine 2.
    assert share(summary, "no_route") == pytest.approx(0.15, abs=0.03)


def test_a_flapping_link_loses_something_and_ends_up():
    summary = run("action: flap, period: 100ms")
    assert 0.9 < summary["efficiency"] <= 1.0


def test_ipv6_comes_back_as_well():
    summary = run("action: down", "mrc", "topology.ip=6", "faults.0.for=200ms")
    spine1, spine2 = summary["uplinks"]["leaf1"]
    assert spine2["offered"] == pytest.approx(0.4 - 0.2 * 0.4, abs=0.03)
    assert spine1["offered"] == pytest.approx(0.4 + 0.2 * 0.4, abs=0.03)


def test_by_hand_everything_is_as_before_in_the_end():
    with Fabric(Topology(leaves=2, spines=1, hosts_per_leaf=1)) as fabric:
        net = fabric.net
        pair = [net["h1"], net["h2"]]
        link = fabric.link("spine1", "leaf2")
        assert net.ping(pair) == 0
        with link.down():
            assert net.ping(pair, timeout="0.2") == 100
        assert net.ping(pair) == 0
        with link.blackhole(towards="leaf2"):
            assert net.ping(pair, timeout="0.2") == 100
        with link.lossy(1.0):
            assert net.ping(pair, timeout="0.2") == 100
        assert net.ping(pair) == 0
        dropped = fabric.ports.ports["dropped_packets"].sum(axis=0)
        assert dropped[DropReason.BLACKHOLE] > 0
        assert dropped[DropReason.FAULT_LOSS] > 0
        before = fabric.net["spine1"].cmd("tc class show dev leaf2")
        with link.slowed("1mbit", towards="leaf2"):
            assert "ceil 1Mbit" in fabric.net["spine1"].cmd("tc class show dev leaf2")
            assert "ceil 1Mbit" not in fabric.net["leaf2"].cmd("tc class show dev spine1")
        assert fabric.net["spine1"].cmd("tc class show dev leaf2") == before


def test_links_that_are_not_there():
    with (
        Fabric(Topology(leaves=2, spines=1, hosts_per_leaf=1)) as fabric,
        pytest.raises(ScenarioError, match="two nodes that a link joins"),
    ):
        fabric.link("leaf1", "leaf2")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("action: slow", "rate: None: expected a value with action slow"),
        ("action: down, rate: 1mbit", "expected nothing with action down"),
        ("action: down, towards: spine2", "which hits both ends"),
        ("action: loss, probability: 2", "1 or less"),
        ("action: blackhole, towards: spine1", "leaf1 or spine2"),
        ("action: melt", "did you mean"),
    ],
)
def test_mistakes_are_named(fault, text):
    with pytest.raises(InvalidScenario) as caught:
        parse_scenario(SCENARIO % fault, "faulty.yaml")
    assert text in str(caught.value) or "expected" in str(caught.value)
    assert "faults[0]" in str(caught.value)
