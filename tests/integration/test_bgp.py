"""FRR in the switches: routes as in the topology, vtysh, predicted paths, and nothing left."""

import shutil

import pytest

from fabric_emu.errors import WaitTimeout
from fabric_emu.experiment import run_scheme
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric

pytestmark = pytest.mark.root

SMALL = Topology(leaves=2, spines=2, hosts_per_leaf=1, ip="both")
FAST = Bgp(keepalive=1, hold=3, bfd=True)

SCENARIO = """
title: bgp
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 20mbit, ip: both}
workload: {pattern: pairs, flows_per_host: 8, load: 0.4, payload: 1024, duration: 1s}
control_plane: {kind: bgp, keepalive: 1, hold: 3}
"""


@pytest.fixture(autouse=True, scope="module")
def needs_frr():
    assert shutil.which("vtysh"), "scripts/setup --with-test installs FRR"


def test_routes_shell_and_an_end_without_traces(wait_until):
    with Fabric(SMALL, control_plane=FAST) as fabric:  # built: every route was checked
        folder, routers = fabric.lease.folder, fabric.routers
        assert routers
        leaf = fabric.net["leaf1"]
        summary = leaf.cmd('vtysh -c "show bgp summary"')
        assert "local AS number 65001" in summary
        assert summary.count("65534") == 4  # two spines, two families
        # One BFD peer per link; it comes up after the BGP neighbour that asked for it.
        wait_until(lambda: leaf.cmd('vtysh -c "show bfd peers brief"').count(" up ") == 2)
        pair = [fabric.net["h1"], fabric.net["h2"]]
        assert fabric.net.ping(pair) == 0
        assert "0% packet loss" in pair[0].cmd(
            f"ping -6 -c 1 -w 5 {SMALL.address6(SMALL.hosts[1])}"
        )
        # The prefix of the leaf behind a lost link goes by withdrawal: leaf 1 hears of it.
        with fabric.link("leaf2", "spine2").down():
            routers.wait_until(
                "leaf1", lambda routes: all(len(hops) == 1 for hops in routes.values())
            )
            assert fabric.net.ping(pair) == 0
        routers.wait_ready()
    assert not folder.exists()


def test_queue_pairs_take_the_predicted_paths():
    scenario = parse_scenario(SCENARIO, "bgp.yaml")
    summary = run_scheme(scenario, scenario.schemes[0], 1).summary
    prediction = summary["prediction"]
    assert prediction["matched"] == prediction["checked"]
    assert summary["control_plane"]["kind"] == "bgp"
    if prediction["offered"]:
        assert prediction["checked"] == 16  # eight flows of each host of leaf 1


def test_what_is_missing_is_said():
    hasty = Bgp(ready_within=0.001)
    with pytest.raises(WaitTimeout, match=r"leaf1: 10\.0\.2\.0/24 has next hops \[\], not"):
        Fabric(SMALL, control_plane=hasty).__enter__()
