"""Next hops that still lead to a leaf when links are dead, and which switches know of them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from fabric_emu.model.topology import Link, Node, Topology


@dataclass(frozen=True)
class Knowledge:
    """Which links are dead, and who knows.

    Attributes:
        down: indexes of the links that are down, which the switches at their ends know.
        known: indexes of the dead links that all switches know of.
    """

    down: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()

    def dead_for(self, topology: Topology, switch: Node) -> frozenset[int]:
        """Return the indexes of the links that a node knows to be dead."""
        ends = (*topology.uplinks[switch.name], *topology.downlinks[switch.name])
        return self.known | (self.down & {link.index for link in ends})


def next_hops_without(
    topology: Topology, switch: Node, leaf: Node, dead: Set[int]
) -> tuple[Link, ...]:
    """Return the topology's next hops from a switch that reach a leaf over links alive.

    Paths go up and then down: a switch above the leaf that has lost its link down has no other,
    as in a Clos whose equal switches share an AS number.

    Args:
        topology: the fabric.
        switch, leaf: from where and to where.
        dead: indexes of links that are dead.

    Source: RFC 7938, sections 5.2.1 and 7.
    """
    hops = topology.next_hops(switch, leaf)
    if not dead:
        return hops
    found = []
    for link in hops:
        there = link.upper if link.lower == switch else link.lower
        alive = link.index not in dead
        if alive and (there == leaf or next_hops_without(topology, there, leaf, dead)):
            found.append(link)
    return tuple(found)
