"""Faults under BGP: what finds them, what they cost until routes have settled, and the way back."""

import shutil

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.faults import LiveSwitch
from fabric_emu.net.kernel_routes import RTPROT_BGP, expected_routes, leaf_routes
from fabric_emu.switch.ports import waiting_packets

pytestmark = pytest.mark.root

TOPOLOGY = Topology(leaves=3, spines=3, hosts_per_leaf=1, ip="both")
WITH_BFD = Bgp(keepalive=1, hold=3, bfd=True, bfd_interval=0.1)
LEAF2 = [str(TOPOLOGY.leaf_prefix4(TOPOLOGY.nodes["leaf2"]))]
LEAF2 += [str(TOPOLOGY.leaf_prefix6(TOPOLOGY.nodes["leaf2"]))]

SCENARIO = """
title: faults under BGP
topology: {leaves: 3, spines: 3, hosts_per_leaf: 1, link_rate: 20mbit}
workload: {pattern: ring, flows_per_host: 12, load: 0.5, payload: 512, duration: %s}
control_plane: {kind: bgp, keepalive: 1, hold: 3, %s}
faults: [{at: 300ms, %s}]
"""
FLOWS = 3 * 12


@pytest.fixture(autouse=True, scope="module")
def needs_frr():
    assert shutil.which("vtysh"), "scripts/setup --with-test installs FRR"


@pytest.fixture(scope="module")
def fabric(nothing_survives_a_module):
    with Fabric(TOPOLOGY, control_plane=WITH_BFD) as fabric:
        yield fabric


def test_sessions_are_no_data(fabric, wait_until):
    table = fabric.ports
    before = table.ports["routing_packets"].copy()
    fabric_links = [link for link in TOPOLOGY.links if link.lower in TOPOLOGY.switches]
    ports = [port for link in fabric_links for port in (link.up_port, link.down_port)]
    # Ten BFD packets a second, in each direction of each link between switches.
    wait_until(lambda: (table.ports["routing_packets"] > before)[ports].all())
    counted = table.snapshot().ports
    assert (counted["enqueued_packets"] == counted["routing_packets"]).all()
    assert counted["control_enqueued_bytes"].sum() == counted["enqueued_bytes"].sum() > 0
    assert not table.offered_bytes.any()
    assert not waiting_packets(counted).any()


def test_bfd_finds_what_has_not_lost_its_carrier(fabric):
    routers = fabric.routers
    with fabric.link("leaf2", "spine2").blackhole(towards="leaf2"):
        routers.wait_until(
            "leaf1", lambda routes: [len(routes.get(prefix, ())) for prefix in LEAF2] == [2, 2]
        )
        fabric.check_whole()  # every interface is up
    routers.wait_ready()


def test_a_leaf_that_reboots_is_forgotten_and_found_again():
    topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, ip="both")
    with Fabric(topology, control_plane=Bgp(keepalive=1, hold=3)) as fabric:
        routers = fabric.routers
        assert routers
        with LiveSwitch(fabric, topology.nodes["leaf2"]).rebooting():
            for name in ("leaf1", "spine1"):
                routers.wait_until(name, lambda routes: not routes.keys() & set(LEAF2))
        routers.wait_ready()
        fabric.check_whole()
        assert fabric.net.ping([fabric.net["h1"], fabric.net["h2"]]) == 0


def run(fault, duration="2s", bfd="bfd: true, bfd_interval: 100ms", *, carrier_lost=False):
    scenario = parse_scenario(SCENARIO % (duration, bfd, fault), "faulty.yaml")
    summary = run_scheme(scenario, scenario.schemes[0], 1).summary
    packets, recovery, prediction = (
        summary[name] for name in ("packets", "recovery", "prediction")
    )
    lost = packets["sent"] - packets["delivered"]
    unnamed = lost - sum(packets["dropped"].values())
    # BGP's and BFD's own packets were lost as well and are no data. No link is ever asked for more
    # than one host's half of its rate: only the fault takes packets.
    if carrier_lost:
        # The kernel forgets the neighbours on a link that goes down, and what waits for one at that
        # moment is lost without a count.
        assert 0 <= unnamed <= sum(packets["dropped"].values())
    else:
        assert unnamed == 0
        assert recovery["lost"] == lost
    assert summary["paths"]["agree"] or carrier_lost
    assert summary["control_plane"]["packets"] > 0
    assert prediction["matched"] == prediction["checked"]
    if prediction["offered"]:
        assert prediction["checked"] == FLOWS
    else:
        prediction["after_repair"] = None  # this kernel has no seeds to predict with
    return packets, recovery, prediction


def test_a_black_hole_lasts_until_bfd_has_missed_three_packets():
    packets, recovery, prediction = run("link: leaf2-spine2, action: blackhole, towards: leaf2")
    # The last one came up to 100 ms before, and the time is up 300 ms after it. Four times as late
    # is a machine with other things to do.
    assert 0.15 < recovery["last_loss"] < 1.2
    assert packets["dropped"]["blackhole"] > packets["dropped"].get("no_route", 0)
    assert recovery["routes_settled"] < 1.5
    assert recovery["all_running"] < 1.5
    assert prediction["after_repair"] in (FLOWS, None)


def test_without_bfd_a_black_hole_outlives_the_run():
    # Keepalives come every second and are missed after three: 2 s after the fault at the earliest.
    _, recovery, prediction = run(
        "link: leaf2-spine2, action: blackhole, towards: leaf2", "1500ms", bfd="bfd: false"
    )
    assert recovery["last_loss"] > 1.0  # of 1.2 s
    assert recovery["routes_settled"] is None
    assert prediction["after_repair"] in (0, None)


def test_a_gray_link_is_left_by_nobody():
    packets, recovery, prediction = run(
        "link: leaf2-spine2, action: loss, probability: 0.01", "1500ms", bfd="bfd: true"
    )
    assert packets["dropped"].keys() == {"fault_loss"}
    # At most all packets to and from leaf 2 went over the link: two thirds. Six deviations above
    # one percent of them. Of those that spread evenly over three spines it is some twenty packets.
    most = packets["sent"] * 2 / 3 * 0.01
    assert 0 < recovery["lost"] < most + 6 * most**0.5
    assert recovery["routes_settled"] is None
    assert prediction["after_repair"] in (0, None)


def test_a_flapping_link_is_left_and_ends_whole():
    packets, recovery, _ = run(
        "for: 600ms, link: leaf2-spine2, action: flap, period: 300ms",
        "1500ms",
        carrier_lost=True,
    )
    # Carrier is lost for 150 ms at a time: others leave the spine after tens of milliseconds or
    # not before the link is back; sessions take seconds to return, as in a fabric that waits.
    assert packets["dropped"].keys() <= {"link_down", "no_route", "no_carrier"}
    assert 0 < recovery["last_loss"] < 1.0


def test_a_spine_that_reboots_is_left_at_once():
    packets, recovery, prediction = run(
        "switch: spine2, action: reboot", "1500ms", carrier_lost=True
    )
    # All its neighbours have lost the carrier; what was in its queues and theirs is lost.
    assert packets["dropped"].keys() <= {"link_down", "no_route", "no_carrier"}
    assert recovery["all_running"] < 1.0  # of 1.2 s
    assert recovery["routes_settled"] < 1.0
    assert prediction["after_repair"] in (FLOWS, None)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(tiers=3, pods=2, leaves=1, spines=2, super_spines=2, hosts_per_leaf=1, ip="both"),
        Topology(leaves=2, spines=2, hosts_per_leaf=1, planes=2),
    ],
    ids=["three tiers", "planes"],
)
def test_every_kernel_has_the_routes_of_the_model(topology):
    with Fabric(topology, control_plane=Bgp(keepalive=1, hold=3)) as fabric:
        base = fabric.lease.ifindex_base
        for switch in topology.switches:
            with fabric.netlink(switch.name) as sock:
                found = leaf_routes(sock, topology, RTPROT_BGP)
            assert found == expected_routes(topology, base, switch, frozenset()) != {}
        assert fabric.net.ping([fabric.net["h1"], fabric.net["h2"]]) == 0
