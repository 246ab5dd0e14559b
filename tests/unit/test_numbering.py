"""Ports, switch numbers and addresses by arithmetic are those of nodes and links."""

import numpy as np
import pytest

from fabric_emu.model.numbering import Numbering
from fabric_emu.model.topology import Role, Topology

TOPOLOGIES = [
    Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=3, planes=2),
    Topology(leaves=3, spines=4, hosts_per_leaf=2, host_rate="50mbit"),
    Topology(leaves=2, spines=2, hosts_per_leaf=300, links_per_pair=3, planes=2),
    Topology(tiers=3, pods=3, leaves=2, spines=2, super_spines=6, hosts_per_leaf=2),
    Topology(tiers=3, pods=2, leaves=1, spines=3, super_spines=3, links_per_pair=2, planes=3),
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_ports_are_those_of_the_links(topology):
    numbering = Numbering(topology)
    assert numbering.ports == 2 * len(topology.links)
    assert numbering.rates_bps().tolist() == [
        link.rate_bps for link in topology.links for _ in range(2)
    ]
    host_ports = [
        link.up_port
        for plane in range(topology.planes)
        for host in topology.hosts
        for link in topology.uplinks[host.name]
        if link.upper.plane == plane
    ]
    hosts = np.arange(topology.total_hosts)
    assert host_ports == [
        port
        for plane in range(topology.planes)
        for port in numbering.host_port(plane, hosts).tolist()
    ]
    for role, ports in (
        (Role.LEAF, numbering.leaf_uplink_ports()),
        (Role.SPINE, numbering.spine_uplink_ports()),
    ):
        expected = [
            link.up_port
            for switch in topology.switches
            if switch.role is role
            for link in topology.uplinks[switch.name]
        ]
        assert ports.ravel().tolist() == expected


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_switches_are_counted_as_the_topology_lists_them(topology):
    numbering = Numbering(topology)
    number_of = {Role.LEAF: numbering.leaf, Role.SPINE: numbering.spine}
    number_of[Role.SUPER_SPINE] = numbering.super_spine
    numbers = [
        int(number_of[switch.role](switch.plane, np.array(switch.number - 1)))
        for switch in topology.switches
    ]
    assert numbers == list(range(numbering.switches))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_addresses_are_those_of_the_hosts(topology):
    numbering = Numbering(topology)
    for plane in range(topology.planes):
        assert numbering.addresses4(plane).tolist() == [
            int(topology.address4(host, plane)) for host in topology.hosts
        ]
        assert numbering.addresses6(plane).tolist() == [
            list(topology.address6(host, plane).packed) for host in topology.hosts
        ]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_different_choices_have_different_keys(topology):
    numbering = Numbering(topology)
    counts = (numbering.leaf_uplinks, numbering.spine_uplinks, *[numbering.parallel] * 2)
    choices = np.indices([max(1, count) for count in counts]).reshape(4, -1).T
    assert len(np.unique(numbering.path_keys(choices))) == len(choices)


def test_a_fabric_of_131072_hosts_and_8_planes_has_a_description():
    numbering = Numbering(
        Topology(leaves=512, spines=256, hosts_per_leaf=256, planes=8, link_rate="100gbit")
    )
    assert numbering.topology.total_hosts == 131_072
    # A link per NIC port, and 512 x 256 between leaves and spines of each plane.
    assert numbering.ports == 2 * 8 * (131_072 + 512 * 256)
    addresses = [numbering.addresses4(plane) for plane in range(8)]
    assert len(np.unique(addresses)) == 8 * 131_072
