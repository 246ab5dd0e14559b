"""Topologies: one chassis, leaf-spine, or three tiers with super-spines; pure description.

Positions give everything: names, addresses, MAC addresses, port numbers. The two ends of link
``i`` are ports ``2i`` (the end nearer the hosts) and ``2i + 1``; a port's peer is ``port ^ 1``.

Address plan, IPv4 (all inside 10.0.0.0/8)::

    host          10 | plane (4 bits) | leaf number | host number on its leaf (8 bits or more)
    switch        10.(240 + tier).x.y with x.y = plane * 2048 + number in its tier, on loopback

so 10.0.3.2 is the second host of leaf 3 and 10.242.0.1 is spine 1. IPv6 host addresses are
``fd00:plane:leaf::host``, switches ``fd00:ffff:tier::number``. Links between nodes are
unnumbered: an interface borrows its node's own address. Numbers start at 1, as names do.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from fabric_emu.model.ecmp import NexthopGroups
from fabric_emu.model.fields import Description, Rate


class Role(StrEnum):
    """What a node is; switches in order of their tier."""

    HOST = "host"
    LEAF = "leaf"
    SPINE = "spine"
    SUPER_SPINE = "super-spine"


_TIER = {Role.HOST: 0, Role.LEAF: 1, Role.SPINE: 2, Role.SUPER_SPINE: 3}
_SHORT = {Role.HOST: "h", Role.LEAF: "leaf", Role.SPINE: "spine", Role.SUPER_SPINE: "super"}

PATH_STAMPS = 63
"""Top switches a path stamp can tell apart: six bits of the BTH, zero meaning "none"."""


@dataclass(frozen=True, slots=True)
class Node:
    """A host or a switch.

    Attributes:
        name: ``h1``, ``leaf2``, ``spine3``, ``super1``; in plane 2 and up ``leaf2p2``.
        role: what it is.
        number: counts from 1 within its role (and plane), over all pods.
        plane: 0-based; hosts belong to all planes and have 0.
        pod: 0-based; 0 for super-spines.
    """

    name: str
    role: Role
    number: int
    plane: int = 0
    pod: int = 0

    @property
    def tier(self) -> int:
        """0 for hosts, then 1 (leaf), 2 (spine), 3 (super-spine)."""
        return _TIER[self.role]


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: ``lower`` is the end nearer the hosts.

    Attributes:
        index: position in ``Topology.links``; gives the two port numbers.
        lower, upper: the nodes it joins.
        lower_interface, upper_interface: interface names at the two ends.
        rate_bps: of each direction.
    """

    index: int
    lower: Node
    upper: Node
    lower_interface: str
    upper_interface: str
    rate_bps: int

    @property
    def up_port(self) -> int:
        """Port number of the lower end, which sends upwards."""
        return 2 * self.index

    @property
    def down_port(self) -> int:
        """Port number of the upper end, which sends downwards."""
        return 2 * self.index + 1

    @property
    def name(self) -> str:
        """As people say it: ``leaf1-spine2``."""
        suffix = self.lower_interface.removeprefix(self.upper.name)
        return f"{self.lower.name}-{self.upper.name}{suffix if suffix.startswith('.') else ''}"


class Topology(Description):
    """A Clos fabric, described before it is built.

    With three tiers ``leaves`` and ``spines`` count per pod, and super-spines are wired in groups
    as in a fat tree: spine ``i`` of every pod meets super-spines ``i*k`` to ``(i+1)*k - 1``,
    ``k = super_spines / spines``; so the super-spine alone names the path between pods.
    """

    tiers: Literal[1, 2, 3] = 2
    leaves: int = Field(2, ge=1, le=2047, description="leaves (of each pod, with three tiers)")
    spines: int = Field(2, ge=0, le=2047, description="spines (of each pod, with three tiers)")
    hosts_per_leaf: int = Field(2, ge=1, le=1000)
    pods: int = Field(1, ge=1, le=256, description="pods; more than one needs three tiers")
    super_spines: int = Field(0, ge=0, le=2047, description="super-spines in all; three tiers only")
    links_per_pair: int = Field(1, ge=1, le=64, description="parallel links between two switches")
    planes: int = Field(1, ge=1, le=8, description="NIC ports of a host, each into its own fabric")
    host_rate: Rate | None = Field(None, description="rate of host links; link_rate when left out")
    link_rate: Rate = Field(100_000_000, description="rate of links between switches")
    spine_rates: tuple[Rate, ...] = Field(
        (),
        description="rates of the links to each spine, spine1 first; link_rate when left out; two "
        "tiers only",
    )
    ecmp: NexthopGroups = Field(
        NexthopGroups(), description="weights of equal-cost next hops, resilient groups"
    )
    rate: Literal["exact", "auto"] = Field(
        "exact",
        description="auto: run slows all rates down, by one factor, to what this machine carries",
    )
    stands_for: Rate | None = Field(
        None, description="the real rate that link_rate stands for; results are also given in it"
    )
    mtu: int = Field(
        4200,
        ge=1280,
        le=65000,
        description="IP MTU of every interface, bytes; the shaper lets two such packets through at "
        "once, so no larger than needed",
    )
    ip: Literal[4, 6, "both"] = Field(4, description="address families of the fabric")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tiers == 1 and self.leaves != 1:
            raise ValueError("leaves: 1 with tiers: 1 (one chassis)")
        if self.tiers == 1 and self.spines:
            raise ValueError("spines: 0 with tiers: 1 (one chassis)")
        if self.tiers > 1 and self.spines < 1:
            raise ValueError("spines: 1 or more with two or three tiers")
        if self.tiers < 3 and (self.pods > 1 or self.super_spines):
            raise ValueError("tiers: 3 with pods over 1 or super_spines over 0")
        if self.tiers == 3 and (self.super_spines == 0 or self.super_spines % self.spines):
            raise ValueError("super_spines: a multiple of spines (groups as in a fat tree)")
        if self.spine_rates and self.tiers != 2:
            raise ValueError("spine_rates: left out, but with tiers: 2")
        if self.spine_rates and len(self.spine_rates) != self.spines:
            raise ValueError(f"spine_rates: one rate for each of the {self.spines} spines")
        resilient, members = self.ecmp.resilient, max(self.uplinks_per_leaf, self._super_uplinks)
        if resilient and resilient.buckets < members:
            raise ValueError(
                f"ecmp: resilient.buckets of {members} or more, one for each next hop, not "
                f"{resilient.buckets}"
            )
        if self.leaves * self.pods >= 1 << (20 - self.host_bits):
            raise ValueError("fewer leaves: the IPv4 address plan has no room for as many")
        return self

    # Counts.

    @property
    def total_leaves(self) -> int:
        """Leaves of one plane, over all pods."""
        return self.leaves * self.pods

    @property
    def total_hosts(self) -> int:
        """Hosts of the fabric."""
        return self.total_leaves * self.hosts_per_leaf

    @property
    def host_rate_bps(self) -> int:
        """Rate of one host link."""
        return self.host_rate or self.link_rate

    @property
    def uplinks_per_leaf(self) -> int:
        """Uplinks of a leaf within one plane."""
        return self.spines * self.links_per_pair if self.tiers > 1 else 0

    @property
    def _super_uplinks(self) -> int:
        return self.super_spines // self.spines * self.links_per_pair if self.tiers == 3 else 0

    @property
    def rates_to_spines(self) -> tuple[int, ...]:
        """Rate of a leaf's links to each spine of its pod."""
        return self.spine_rates or (self.link_rate,) * self.spines

    @property
    def leaf_capacity_bps(self) -> int:
        """Rate of all uplinks of a leaf within one plane."""
        return sum(self.rates_to_spines) * self.links_per_pair

    @property
    def slowest_rate_bps(self) -> int:
        """Rate of the slowest link between switches."""
        return min(self.rates_to_spines, default=self.link_rate)

    @property
    def oversubscription(self) -> float:
        """A leaf's host capacity over its uplink capacity; 0 with one tier."""
        if not self.uplinks_per_leaf:
            return 0.0
        return self.hosts_per_leaf * self.host_rate_bps / self.leaf_capacity_bps

    @property
    def families(self) -> tuple[Literal[4, 6], ...]:
        """Address families in use, IPv4 first."""
        if self.ip == "both":
            return (4, 6)
        return (self.ip,)

    @property
    def scale(self) -> float:
        """How many times slower than the real thing; 1 when ``stands_for`` is not given."""
        return self.stands_for / self.link_rate if self.stands_for else 1.0

    # Nodes and links.

    def _named(self, role: Role, number: int, plane: int = 0, pod: int = 0) -> Node:
        short = "chassis" if self.tiers == 1 and role is Role.LEAF else _SHORT[role]
        suffix = f"p{plane + 1}" if plane else ""
        return Node(f"{short}{number}{suffix}", role, number, plane, pod)

    @cached_property
    def hosts(self) -> tuple[Node, ...]:
        """Hosts, leaf by leaf."""
        per_pod = self.leaves * self.hosts_per_leaf
        return tuple(
            self._named(Role.HOST, i + 1, pod=i // per_pod) for i in range(self.total_hosts)
        )

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        """Switches of all planes: per plane leaves, spines, super-spines."""
        found: list[Node] = []
        for plane in range(self.planes):
            for role, per_pod in ((Role.LEAF, self.leaves), (Role.SPINE, self.spines)):
                found += [
                    self._named(role, i + 1, plane, i // per_pod)
                    for i in range(per_pod * self.pods)
                ]
            found += [self._named(Role.SUPER_SPINE, i + 1, plane) for i in range(self.super_spines)]
        return tuple(found)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """All nodes by name, hosts first."""
        return {node.name: node for node in (*self.hosts, *self.switches)}

    def switch(self, role: Role, number: int, plane: int = 0) -> Node:
        """Return the switch of a role and number. Raises KeyError."""
        return self.nodes[self._named(role, number, plane).name]

    def leaf_of(self, host: Node, plane: int = 0) -> Node:
        """Return the leaf a host is attached to in a plane."""
        return self.switch(Role.LEAF, (host.number - 1) // self.hosts_per_leaf + 1, plane)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links; host links first, then leaf to spine, then spine to super-spine, by plane."""
        found: list[Link] = []

        def join(lower: Node, upper: Node, lower_name: str, upper_name: str, rate: int) -> None:
            found.append(Link(len(found), lower, upper, lower_name, upper_name, rate))

        for plane in range(self.planes):
            for host in self.hosts:
                leaf = self.leaf_of(host, plane)
                join(host, leaf, f"eth{plane}", host.name, self.host_rate_bps)
        for plane in range(self.planes):
            for lower, upper in self._switch_pairs(plane):
                for i in range(self.links_per_pair):
                    suffix = f".{i + 1}" if self.links_per_pair > 1 else ""
                    rate = self.link_rate
                    if lower.role is Role.LEAF:
                        rate = self.rates_to_spines[(upper.number - 1) % self.spines]
                    join(lower, upper, upper.name + suffix, lower.name + suffix, rate)
        return tuple(found)

    def _switch_pairs(self, plane: int) -> list[tuple[Node, Node]]:
        if self.tiers == 1:
            return []
        pairs = []
        for pod in range(self.pods):
            for leaf in range(pod * self.leaves, (pod + 1) * self.leaves):
                for spine in range(pod * self.spines, (pod + 1) * self.spines):
                    pairs.append(
                        (
                            self.switch(Role.LEAF, leaf + 1, plane),
                            self.switch(Role.SPINE, spine + 1, plane),
                        )
                    )
        group = self.super_spines // self.spines
        for spine in range(self.spines * self.pods if group else 0):
            first = spine % self.spines * group
            for upper in range(first, first + group):
                pairs.append(
                    (
                        self.switch(Role.SPINE, spine + 1, plane),
                        self.switch(Role.SUPER_SPINE, upper + 1, plane),
                    )
                )
        return pairs

    @cached_property
    def uplinks(self) -> dict[str, tuple[Link, ...]]:
        """Links going up from each node, in the order of its ECMP group."""
        return self._by_end("lower")

    @cached_property
    def downlinks(self) -> dict[str, tuple[Link, ...]]:
        """Links going down from each node."""
        return self._by_end("upper")

    def _by_end(self, end: Literal["lower", "upper"]) -> dict[str, tuple[Link, ...]]:
        found: dict[str, list[Link]] = {name: [] for name in self.nodes}
        for link in self.links:
            found[getattr(link, end).name].append(link)
        return {name: tuple(links) for name, links in found.items()}

    def next_hops(self, switch: Node, leaf: Node) -> tuple[Link, ...]:
        """Return the equal-cost links from a switch towards a leaf, in ECMP order.

        Empty at the leaf itself. Links going down lead straight to the leaf or, from a
        super-spine, to the one spine of the leaf's pod that it is wired to.
        """
        if switch == leaf:
            return ()
        down = tuple(
            link
            for link in self.downlinks[switch.name]
            if link.lower.name == leaf.name
            or (switch.role is Role.SUPER_SPINE and link.lower.pod == leaf.pod)
        )
        return down or self.uplinks[switch.name]

    def path_stamp(self, switch: Node) -> int:
        """Return what a switch writes into packets it sends down; 0 for leaves.

        Spines count within their pod, super-spines after them.
        """
        if switch.role is Role.SPINE:
            return (switch.number - 1) % self.spines + 1
        if switch.role is Role.SUPER_SPINE:
            return self.spines + switch.number
        return 0

    # Addresses.

    @property
    def host_bits(self) -> int:
        """Low bits of an IPv4 host address that number the host on its leaf."""
        return max(8, (self.hosts_per_leaf + 1).bit_length())

    def leaf_prefix4(self, leaf: Node) -> ipaddress.IPv4Network:
        """Return the IPv4 prefix of a leaf's hosts."""
        bits = self.host_bits
        return ipaddress.IPv4Network((10 << 24 | leaf.plane << 20 | leaf.number << bits, 32 - bits))

    def leaf_prefix6(self, leaf: Node) -> ipaddress.IPv6Network:
        """Return the IPv6 prefix of a leaf's hosts."""
        return ipaddress.IPv6Network((0xFD00 << 112 | leaf.plane << 96 | leaf.number << 80, 48))

    def plane_prefix4(self, plane: int) -> ipaddress.IPv4Network:
        """Return the IPv4 prefix that holds every host address of a plane."""
        return ipaddress.IPv4Network((10 << 24 | plane << 20, 12))

    def plane_prefix6(self, plane: int) -> ipaddress.IPv6Network:
        """Return the IPv6 prefix that holds every host address of a plane."""
        return ipaddress.IPv6Network((0xFD00 << 112 | plane << 96, 32))

    def address4(self, node: Node, plane: int = 0) -> ipaddress.IPv4Address:
        """Return a node's IPv4 address; a host has one per plane."""
        if node.role is Role.HOST:
            prefix = self.leaf_prefix4(self.leaf_of(node, plane))
            return prefix.network_address + (node.number - 1) % self.hosts_per_leaf + 1
        number = node.plane * 2048 + node.number
        return ipaddress.IPv4Address(10 << 24 | (240 + node.tier) << 16 | number)

    def address6(self, node: Node, plane: int = 0) -> ipaddress.IPv6Address:
        """Return a node's IPv6 address; a host has one per plane."""
        if node.role is Role.HOST:
            prefix = self.leaf_prefix6(self.leaf_of(node, plane))
            return prefix.network_address + (node.number - 1) % self.hosts_per_leaf + 1
        number = node.plane * 2048 + node.number
        return ipaddress.IPv6Address(0xFD00 << 112 | 0xFFFF << 96 | node.tier << 80 | number)


def mac_address(port: int) -> str:
    """Return the MAC address of a port: locally administered, the port number at its end."""
    return "02:fe:" + ":".join(f"{port >> shift & 0xFF:02x}" for shift in (24, 16, 8, 0))


def hash_seed(run_seed: int, switch: Node, mode: str = "per-switch") -> int:
    """Return a switch's ``fib_multipath_hash_seed``: 32 bits, never zero.

    Zero would mean the kernel's boot-time value, the same in every namespace.

    Args:
        run_seed: the run's seed.
        switch: whose seed it is.
        mode: ``per-switch``, or ``same`` for one seed in all switches.
    """
    who = switch.name if mode == "per-switch" else "all"
    digest = hashlib.sha256(f"{run_seed} {who}".encode()).digest()
    return int.from_bytes(digest[:4], "big") or 1
