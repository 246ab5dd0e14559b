"""Where packets go when links are dead and switches have left them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.numbering import MAX_HOPS
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.reachability import Knowledge, next_hops_without
from fabric_emu.model.topology import Link, Node
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.predict.placement import Packets, Placement


def repaired_paths(
    placement: Placement, pairs: QueuePairs, knowledge: Knowledge
) -> NDArray[np.int32]:
    """Return (queue pairs, MAX_HOPS) ports that send each queue pair's packets, in order; then -1.

    A path ends where no next hop is left.

    Args:
        placement: of the whole fabric, in one run; its groups must not be resilient: what those
            do depends on what they did before.
        pairs: the queue pairs.
        knowledge: which links are dead, and who knows.
    """
    found = np.full((len(pairs), MAX_HOPS), -1, np.int32)
    for rows in pairs.groups():
        found[rows] = _Walk(placement, knowledge).paths(Packets.of(pairs, rows))
    return found


class _Walk:
    """Takes packets from switch to switch, all of one family and plane."""

    def __init__(self, placement: Placement, knowledge: Knowledge) -> None:
        self._placement, self._topology = placement, placement.topology
        self._number = {switch: i for i, switch in enumerate(self._topology.switches)}
        self._dead = {
            node: knowledge.dead_for(self._topology, node) for node in self._topology.nodes.values()
        }

    def paths(self, packets: Packets) -> NDArray[np.int32]:
        t = self._topology
        found = np.full((len(packets), MAX_HOPS), -1, np.int32)
        ends = np.stack([packets.source, packets.destination], axis=1)
        for source, destination in np.unique(ends, axis=0):
            rows = np.flatnonzero((ends == (source, destination)).all(axis=1))
            first, last = (
                t.uplinks[t.hosts[host].name][packets.plane] for host in (source, destination)
            )
            if first.index in self._dead[first.lower]:
                continue
            found[rows, 0] = first.up_port
            self._forward(packets, rows, first.upper, last, found, 1)
        return found

    def _forward(
        self,
        packets: Packets,
        rows: NDArray[np.intp],
        switch: Node,
        last: Link,
        found: NDArray[np.int32],
        hop: int,
    ) -> None:
        """Fill in the ports that some packets take from a switch on to the same last link."""
        if switch == last.upper:
            found[rows, hop] = -1 if last.index in self._dead[switch] else last.down_port
            return
        links = next_hops_without(self._topology, switch, last.upper, self._dead[switch])
        if not links:
            return
        group = NexthopGroup.of_links(self._topology, links)
        place = self._placement.choose(
            packets.take(rows), np.full(len(rows), self._number[switch]), group
        )
        for i, link in enumerate(links):
            there = rows[place == i]
            if not len(there):
                continue
            up = link.lower == switch
            found[there, hop] = link.up_port if up else link.down_port
            self._forward(packets, there, link.upper if up else link.lower, last, found, hop + 1)
