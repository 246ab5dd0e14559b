"""Remote repair: which routes change when a link is lost for longer, and what that saves."""

import time

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.control_plane import Static
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.faults import LiveSwitch
from fabric_emu.net.kernel_routes import RTPROT_STATIC, expected_routes, leaf_routes

pytestmark = pytest.mark.root

SCENARIO = """
title: repaired
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 40mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.4, payload: 1024, duration: 1s}
faults: [{at: 300ms, for: 500ms, link: leaf2-spine2, action: %s}]
control_plane: {convergence: %s}
schemes: [mrc]
"""

WAIT_S = 10.0


def wrong_routes(fabric, dead):
    """Return the routes between switches that are not as the topology without dead links."""
    topology, base = fabric.topology, fabric.lease.ifindex_base
    wrong = []
    for switch in topology.switches:
        with fabric.netlink(switch.name) as sock:
            found = leaf_routes(sock, topology, RTPROT_STATIC)
        expected = expected_routes(topology, base, switch, dead)
        wrong += [
            (switch.name, prefix, found.get(prefix), expected.get(prefix))
            for prefix in found.keys() | expected.keys()
            if found.get(prefix) != expected.get(prefix)
        ]
    return wrong


def await_routes(fabric, dead):
    deadline = time.monotonic() + WAIT_S
    while wrong := wrong_routes(fabric, dead):
        assert time.monotonic() < deadline, wrong
        time.sleep(0.01)


def test_routes_are_as_without_the_links_and_whole_in_the_end():
    topology = Topology(leaves=3, spines=3, hosts_per_leaf=1, ip="both")
    with Fabric(topology, control_plane=Static(convergence=0)) as fabric:
        assert wrong_routes(fabric, set()) == []
        first, second = fabric.link("leaf2", "spine2"), fabric.link("leaf3", "spine1")
        with first.down():
            await_routes(fabric, {first.link.index})
            with second.down():
                await_routes(fabric, {first.link.index, second.link.index})
            # Its ends have routes again while a link of another pair is still dead.
            await_routes(fabric, {first.link.index})
        assert wrong_routes(fabric, set()) == []


def test_nothing_leads_to_a_leaf_that_reboots():
    topology = Topology(leaves=3, spines=2, hosts_per_leaf=1, ip="both")
    with Fabric(topology, control_plane=Static(convergence=0)) as fabric:
        leaf = topology.nodes["leaf2"]
        with LiveSwitch(fabric, leaf).rebooting():
            await_routes(fabric, {link.index for link in topology.uplinks[leaf.name]})
        assert wrong_routes(fabric, set()) == []


def test_without_convergence_only_the_ends_know():
    with Fabric(Topology(leaves=3, spines=2, hosts_per_leaf=1, ip="both")) as fabric:
        link = fabric.link("leaf2", "spine2")
        with link.down():
            names = {name for name, *_ in wrong_routes(fabric, {link.link.index})}
            assert names == {"leaf1", "leaf3"}
        assert wrong_routes(fabric, set()) == []


def run(action, convergence):
    scenario = parse_scenario(SCENARIO % (action, convergence), "repaired.yaml")
    summary = run_scheme(scenario, scenario.schemes[0], 1).summary
    packets, recovery = summary["packets"], summary["recovery"]
    assert packets["sent"] == packets["delivered"] + sum(packets["dropped"].values())
    # A lossless start, queues far from full: only the fault takes packets.
    assert recovery["lost"] == packets["sent"] - packets["delivered"]
    return packets, recovery


def test_repair_ends_the_losses_at_the_spine():
    packets, recovery = run("down", "100ms")
    # Leaf 1 sends half of everything to spine 2: for 0.1 of 1 s that has no route there, where
    # without repair it would be 0.5 s. The repair is late by as long as a thread waits to run.
    assert 0.03 < packets["dropped"]["no_route"] / packets["scheduled"] < 0.15
    assert 0.09 < recovery["last_loss"] < 0.3
    assert recovery["flows_hit"] == 8


def test_repaired_paths_are_as_predicted():
    fault = "{at: 1us, link: leaf2-spine2, action: down}"  # to the end
    changes = ["schemes=[ecmp]", f"faults=[{fault}]", "topology.ip=both"]
    scenario = parse_scenario(SCENARIO % ("down", "50ms"), "repaired.yaml", changes)
    summary = run_scheme(scenario, scenario.schemes[0], 1).summary
    prediction = summary["prediction"]
    assert summary["recovery"]["routes_settled"] >= 0.05
    if prediction["offered"]:
        # Four flows of either of the two pairs of hosts: checked after the repair, too.
        assert prediction["matched"] == prediction["checked"] == prediction["after_repair"] == 8


def test_nobody_repairs_what_nobody_notices():
    packets, recovery = run("blackhole", "100ms")
    assert packets["dropped"].keys() == {"blackhole"}
    assert packets["dropped"]["blackhole"] / packets["scheduled"] == pytest.approx(0.25, abs=0.05)
    assert recovery["last_loss"] > 0.4
