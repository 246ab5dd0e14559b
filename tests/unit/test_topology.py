"""Topologies: counts, names, wiring and addresses follow from positions."""

import ipaddress
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fabric_emu.model.topology import Role, Topology, hash_seed, mac_address

LEAF_SPINE = Topology(leaves=4, spines=3, hosts_per_leaf=2)
THREE_TIERS = Topology(
    tiers=3, pods=2, leaves=2, spines=2, super_spines=4, hosts_per_leaf=2, ip="both"
)
CHASSIS = Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=5)


def test_counts():
    assert (LEAF_SPINE.total_hosts, len(LEAF_SPINE.switches), len(LEAF_SPINE.links)) == (8, 7, 20)
    # Two pods of 2x2 leaf-spine links, and each of 4 spines meets 4/2 super-spines.
    assert (THREE_TIERS.total_hosts, len(THREE_TIERS.switches)) == (8, 12)
    assert len(THREE_TIERS.links) == 8 + 8 + 8
    assert (len(CHASSIS.switches), len(CHASSIS.links)) == (1, 5)


def test_every_leaf_meets_every_spine_once():
    pairs = Counter(
        (link.lower.name, link.upper.name)
        for link in LEAF_SPINE.links
        if link.upper.role is Role.SPINE
    )
    assert len(pairs) == 12
    assert set(pairs.values()) == {1}


def test_super_spines_are_wired_in_groups():
    joined = {link.name for link in THREE_TIERS.links if link.upper.role is Role.SUPER_SPINE}
    assert joined == {
        "spine1-super1", "spine1-super2", "spine2-super3", "spine2-super4",
        "spine3-super1", "spine3-super2", "spine4-super3", "spine4-super4",
    }  # fmt: skip


def test_parallel_links_have_names_of_their_own():
    topology = Topology(leaves=2, spines=1, links_per_pair=2)
    names = [link.name for link in topology.links[-4:]]
    assert names == ["leaf1-spine1.1", "leaf1-spine1.2", "leaf2-spine1.1", "leaf2-spine1.2"]


def test_next_hops_lead_up_and_then_straight_down():
    node = THREE_TIERS.nodes
    far = node["leaf4"]
    assert [k.name for k in THREE_TIERS.next_hops(node["leaf1"], far)] == [
        "leaf1-spine1",
        "leaf1-spine2",
    ]
    assert [k.name for k in THREE_TIERS.next_hops(node["spine2"], far)] == [
        "spine2-super3",
        "spine2-super4",
    ]
    assert [k.name for k in THREE_TIERS.next_hops(node["super3"], far)] == ["spine4-super3"]
    assert [k.name for k in THREE_TIERS.next_hops(node["spine4"], far)] == ["leaf4-spine4"]
    assert THREE_TIERS.next_hops(far, far) == ()


def test_an_address_names_its_node():
    node = THREE_TIERS.nodes
    assert str(THREE_TIERS.address4(node["h6"])) == "10.0.3.2"
    assert str(THREE_TIERS.address6(node["h6"])) == "fd00:0:3::2"
    assert str(THREE_TIERS.address4(node["spine2"])) == "10.242.0.2"
    assert str(THREE_TIERS.address6(node["super4"])) == "fd00:ffff:3::4"


def test_planes_have_switches_and_addresses_of_their_own():
    topology = Topology(planes=2)
    assert [s.name for s in topology.switches] == [
        "leaf1", "leaf2", "spine1", "spine2", "leaf1p2", "leaf2p2", "spine1p2", "spine2p2",
    ]  # fmt: skip
    host = topology.nodes["h3"]
    assert [str(topology.address4(host, plane)) for plane in (0, 1)] == ["10.0.2.1", "10.16.2.1"]
    assert [link.lower_interface for link in topology.uplinks["h3"]] == ["eth0", "eth1"]


@given(
    leaves=st.integers(1, 40),
    spines=st.integers(1, 8),
    hosts=st.integers(1, 300),
    planes=st.integers(1, 3),
)
def test_addresses_are_unique_and_inside_their_prefixes(leaves, spines, hosts, planes):
    hosts = min(hosts, 600 // leaves)
    topology = Topology(leaves=leaves, spines=spines, hosts_per_leaf=hosts, planes=planes)
    seen = set()
    for plane in range(planes):
        for host in topology.hosts:
            address = topology.address4(host, plane)
            prefix = topology.leaf_prefix4(topology.leaf_of(host, plane))
            assert address in prefix
            assert address not in (prefix.network_address, prefix.broadcast_address)
            assert prefix.subnet_of(topology.plane_prefix4(plane))
            assert topology.address6(host, plane) in topology.plane_prefix6(plane)
            seen.add(address)
    for switch in topology.switches:
        seen.add(topology.address4(switch))
    assert len(seen) == planes * topology.total_hosts + len(topology.switches)
    assert all(address in ipaddress.ip_network("10.0.0.0/8") for address in seen)


def test_path_stamps_tell_top_switches_apart():
    stamps = [THREE_TIERS.path_stamp(switch) for switch in THREE_TIERS.switches]
    # Leaves none; spines count within their pod, super-spines go on after them.
    assert stamps == [0, 0, 0, 0, 1, 2, 1, 2, 3, 4, 5, 6]


def test_ports_of_a_link_differ_in_the_last_bit():
    assert all(link.up_port ^ 1 == link.down_port for link in LEAF_SPINE.links)
    assert mac_address(0x1234) == "02:fe:00:00:12:34"


def test_oversubscription_follows_from_rates_and_counts():
    assert Topology(hosts_per_leaf=4, spines=2).oversubscription == 2.0
    topology = Topology(hosts_per_leaf=4, spines=2, host_rate="50mbit", link_rate="100mbit")
    assert topology.oversubscription == 1.0
    assert CHASSIS.oversubscription == 0.0


def test_scale_is_how_many_times_slower():
    assert Topology(link_rate="100mbit", stands_for="400gbit").scale == 4000


def test_hash_seeds_differ_per_switch_and_run_and_are_never_zero():
    seeds = {hash_seed(run, s) for run in range(50) for s in LEAF_SPINE.switches}
    assert len(seeds) == 50 * 7
    assert 0 not in seeds
    assert max(seeds) < 2**32
    assert len({hash_seed(1, s, "same") for s in LEAF_SPINE.switches}) == 1


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"tiers": 1}, "leaves: 1"),
        ({"tiers": 1, "leaves": 1, "spines": 3}, "spines: 0"),
        ({"tiers": 2, "spines": 0}, "spines: 1 or more"),
        ({"tiers": 2, "pods": 2}, "tiers: 3"),
        ({"tiers": 3, "super_spines": 0}, "multiple of spines"),
        ({"tiers": 3, "spines": 2, "super_spines": 3}, "multiple of spines"),
        ({"leaves": 2000, "hosts_per_leaf": 1000}, "fewer leaves"),
    ],
)
def test_topologies_that_cannot_be(given_, expected):
    with pytest.raises(ValidationError, match=expected):
        Topology(**given_)
