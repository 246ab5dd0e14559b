"""Port numbers, switch numbers and host addresses of whole columns at once.

The same numbers as ``Topology``'s nodes and links have, computed from positions: a fabric of any
size needs no object per node or link. All positions are 0-based here.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.topology import Topology

Ints = NDArray[np.int64]
Choices = NDArray[np.int64]
"""(n, 4) what switches picked; see ``Numbering.path_ports``."""

MAX_HOPS = 6
"""Ports on the longest path: host, leaf, spine, super-spine, spine, leaf."""


class Stage(IntEnum):
    """Who sends a packet on: the columns of paths, which may skip some."""

    HOST = 0
    LEAF_UP = 1
    SPINE_UP = 2
    SUPER_DOWN = 3
    SPINE_DOWN = 4
    LEAF_DOWN = 5


class Numbering:
    """Arithmetic on the positions of one topology.

    Args:
        topology: the fabric.

    Attributes:
        ports: number of ports of the fabric.
        switches: number of switches, all planes.
        parallel: links between two switches.
        leaf_uplinks: uplinks of a leaf within one plane.
        super_group: super-spines that a spine meets.
        spine_uplinks: uplinks of a spine.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        t = topology
        self.parallel = t.links_per_pair
        self.leaf_uplinks = t.uplinks_per_leaf
        self.super_group = t.super_spines // t.spines if t.spines else 0
        self.spine_uplinks = self.super_group * t.links_per_pair
        self._leaf_links = t.total_leaves * self.leaf_uplinks
        self._plane_links = self._leaf_links + t.spines * t.pods * self.spine_uplinks
        self._host_links = t.planes * t.total_hosts
        self._plane_switches = t.total_leaves + t.spines * t.pods + t.super_spines
        self.ports = 2 * (self._host_links + t.planes * self._plane_links)
        self.switches = t.planes * self._plane_switches

    # Switches, in the order of Topology.switches.

    def leaf(self, plane: int, leaf: Ints) -> Ints:
        """Return the switch numbers of leaves."""
        return plane * self._plane_switches + leaf

    def spine(self, plane: int, spine: Ints) -> Ints:
        """Return the switch numbers of spines, which count over all pods."""
        return plane * self._plane_switches + self.topology.total_leaves + spine

    def super_spine(self, plane: int, super_spine: Ints) -> Ints:
        """Return the switch numbers of super-spines."""
        t = self.topology
        return plane * self._plane_switches + t.total_leaves + t.spines * t.pods + super_spine

    # Ports: a link's lower end is 2i, its upper end 2i + 1.

    def host_port(self, plane: int, host: Ints) -> Ints:
        """Return the port at which a host sends; the leaf's end is the port after it."""
        return 2 * (plane * self.topology.total_hosts + host)

    def leaf_port(self, plane: int, leaf: Ints, uplink: Ints) -> Ints:
        """Return the port of a leaf's uplink, ``uplink`` in ECMP order."""
        return 2 * (self._first(plane) + leaf * self.leaf_uplinks + uplink)

    def spine_port(self, plane: int, spine: Ints, uplink: Ints) -> Ints:
        """Return the port of a spine's uplink, ``uplink`` in ECMP order."""
        first = self._first(plane) + self._leaf_links
        return 2 * (first + spine * self.spine_uplinks + uplink)

    def _first(self, plane: int) -> int:
        return self._host_links + plane * self._plane_links

    # Paths.

    def spines_between(self, leaf: Ints, last_leaf: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return the spines at a place of the pods of two leaves; the same within a pod."""
        t = self.topology
        return leaf // t.leaves * t.spines + place, last_leaf // t.leaves * t.spines + place

    def super_spine_of(self, spine: Ints, place: Ints) -> Ints:
        """Return the super-spines at a place of the groups that spines meet."""
        return spine % self.topology.spines * self.super_group + place

    def path_ports(self, plane: int, source: Ints, destination: Ints, choices: Choices) -> Ints:
        """Return (n, MAX_HOPS) the port that sends a packet at each ``Stage``; -1: skipped.

        Up from its leaf a packet goes only as far as it must: not at all to a host of the same
        leaf, to a spine within a pod.

        Args:
            plane: of all packets.
            source, destination: (n,) hosts.
            choices: (n, 4) which uplink of the leaf, which uplink of the spine, which of the
                parallel links down from the super-spine and down from the spine, in ECMP order.
        """
        found = np.full((len(source), MAX_HOPS), -1, np.int64)
        found[:, Stage.HOST] = self.host_port(plane, source)
        found[:, Stage.LEAF_DOWN] = self.host_port(plane, destination) + 1
        leaf, last_leaf = (end // self.topology.hosts_per_leaf for end in (source, destination))
        up = np.flatnonzero(leaf != last_leaf)
        leaf, last_leaf = leaf[up], last_leaf[up]
        uplink, spine_uplink, super_parallel, spine_parallel = choices[up].T
        found[up, Stage.LEAF_UP] = self.leaf_port(plane, leaf, uplink)
        place = uplink // self.parallel
        down = place * self.parallel + spine_parallel
        found[up, Stage.SPINE_DOWN] = self.leaf_port(plane, last_leaf, down) + 1
        spine, last_spine = self.spines_between(leaf, last_leaf, place)
        over = spine != last_spine
        found[up[over], Stage.SPINE_UP] = self.spine_port(plane, spine, spine_uplink)[over]
        down = spine_uplink // self.parallel * self.parallel + super_parallel
        found[up[over], Stage.SUPER_DOWN] = self.spine_port(plane, last_spine, down)[over] + 1
        return found

    def path_switches(self, plane: int, source: Ints, destination: Ints, choices: Choices) -> Ints:
        """Return (n, 5) the switches of paths; -1: skipped. Arguments as of ``path_ports``."""
        found = np.full((len(source), MAX_HOPS - 1), -1, np.int64)
        leaf, last_leaf = (end // self.topology.hosts_per_leaf for end in (source, destination))
        found[:, 0] = self.leaf(plane, leaf)
        up = leaf != last_leaf
        found[up, 4] = self.leaf(plane, last_leaf)[up]
        spine, last_spine = self.spines_between(leaf, last_leaf, choices[:, 0] // self.parallel)
        found[up, 1] = self.spine(plane, spine)[up]
        over = np.flatnonzero(up & (spine != last_spine))
        above = self.super_spine_of(spine[over], choices[over, 1] // self.parallel)
        found[over, 2] = self.super_spine(plane, above)
        found[over, 3] = self.spine(plane, last_spine[over])
        return found

    def path_keys(self, choices: Choices) -> Ints:
        """Return (n,) a number for each path, the same for the same choices."""
        key = choices[:, 0] * max(self.spine_uplinks, 1) + choices[:, 1]
        return (key * self.parallel + choices[:, 2]) * self.parallel + choices[:, 3]

    def leaf_uplink_ports(self) -> Ints:
        """Return (planes, leaves, uplinks) the ports of every leaf's uplinks."""
        t = self.topology
        leaf, uplink = np.ix_(np.arange(t.total_leaves), np.arange(self.leaf_uplinks))
        return np.stack([self.leaf_port(plane, leaf, uplink) for plane in range(t.planes)])

    def spine_uplink_ports(self) -> Ints:
        """Return (planes, spines, uplinks) the ports of every spine's uplinks."""
        t = self.topology
        spine, uplink = np.ix_(np.arange(t.spines * t.pods), np.arange(self.spine_uplinks))
        return np.stack([self.spine_port(plane, spine, uplink) for plane in range(t.planes)])

    def rates_bps(self) -> NDArray[np.float64]:
        """Return (ports,) the rate of each port."""
        rates = np.full(self.ports, self.topology.link_rate, np.float64)
        rates[: 2 * self._host_links] = self.topology.host_rate_bps
        if self.topology.spine_rates:  # of two tiers: all other links are between leaf and spine
            of_leaf = np.repeat(self.topology.spine_rates, 2 * self.parallel)
            rates[2 * self._host_links :] = np.resize(of_leaf, self.ports - 2 * self._host_links)
        return rates

    # Addresses.

    def addresses4(self, plane: int) -> NDArray[np.uint32]:
        """Return (hosts,) every host's IPv4 address in a plane, as an integer in host order."""
        leaf, place = self._places()
        bits = self.topology.host_bits
        return (10 << 24 | plane << 20 | leaf << bits | place).astype(np.uint32)

    def addresses6(self, plane: int) -> NDArray[np.uint8]:
        """Return (hosts, 16) every host's IPv6 address in a plane, as bytes."""
        leaf, place = self._places()
        groups = np.zeros((len(leaf), 8), ">u2")
        groups[:, 0], groups[:, 1] = 0xFD00, plane
        groups[:, 2], groups[:, 7] = leaf, place
        return groups.view(np.uint8)

    def _places(self) -> tuple[Ints, Ints]:
        """Return leaf number and number on the leaf of every host, both from 1."""
        leaf, place = np.divmod(np.arange(self.topology.total_hosts), self.topology.hosts_per_leaf)
        return leaf + 1, place + 1
