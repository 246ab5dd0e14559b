"""Next hops that still lead to a leaf when links are dead."""

from __future__ import annotations

from collections.abc import Set

from fabric_emu.model.topology import Link, Node, Topology


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
