"""Where packets go: the ports every packet of a fabric takes, from the switches' own hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scheme import Switch
from fabric_emu.model.topology import Node, Role, Topology, hash_seed
from fabric_emu.predict.multipath import FiveTuples, multipath_hash, select_by_threshold
from fabric_emu.wire.layout import ROCEV2_PORT

MAX_HOPS = 6
"""Ports on the longest path: host, leaf, spine, super-spine, spine, leaf."""


@dataclass(frozen=True)
class Packets:
    """RoCEv2 packets to place, one row each.

    Attributes:
        family: 4 or 6, of all rows.
        plane: of all rows.
        source, destination: (n,) int, 0-based host numbers.
        source_port: (n,) uint16.
        flow_label: (n,) uint32; IPv6 only.
    """

    family: Literal[4, 6]
    plane: int
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    source_port: NDArray[np.uint16]
    flow_label: NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, pairs: QueuePairs, rows: NDArray[np.intp]) -> Packets:
        """Return one packet of each of some queue pairs, all of one family and plane."""
        return cls(
            4 if pairs.family[rows[0]] == 4 else 6,
            int(pairs.plane[rows[0]]),
            pairs.source[rows],
            pairs.destination[rows],
            pairs.source_port[rows],
        )

    def take(self, rows: NDArray[np.intp]) -> Packets:
        """Return the packets of some rows."""
        label = None if self.flow_label is None else self.flow_label[rows]
        return Packets(
            self.family,
            self.plane,
            self.source[rows],
            self.destination[rows],
            self.source_port[rows],
            label,
        )


class Placement:
    """Places packets in a topology whose switches hash as Linux does.

    Args:
        topology: the fabric.
        switch: hash policy and fields.
        seeds: hash seed of each switch, by name.
    """

    def __init__(self, topology: Topology, switch: Switch, seeds: Mapping[str, int]) -> None:
        self._topology = topology
        self._switch = switch
        self._seeds = seeds
        self._addresses: dict[tuple[int, int], NDArray[np.generic]] = {}

    @classmethod
    def of(
        cls, topology: Topology, switch: Switch, seed: int, mode: str = "per-switch"
    ) -> Placement:
        """Return a placement with the hash seeds that a run of this seed gives its switches."""
        seeds = {node.name: hash_seed(seed, node, mode) for node in topology.switches}
        return cls(topology, switch, seeds)

    def host_addresses(self, family: int, plane: int) -> NDArray[np.generic]:
        """Return every host's address: (hosts,) uint32, or (hosts, 16) uint8 for IPv6."""
        key = (family, plane)
        if key not in self._addresses:
            topology = self._topology
            if family == 4:
                self._addresses[key] = np.array(
                    [int(topology.address4(host, plane)) for host in topology.hosts], np.uint32
                )
            else:
                packed = [list(topology.address6(h, plane).packed) for h in topology.hosts]
                self._addresses[key] = np.array(packed, np.uint8)
        return self._addresses[key]

    def tuples(self, packets: Packets) -> FiveTuples:
        """Return the five-tuples (and flow labels) that the switches hash."""
        addresses = self.host_addresses(packets.family, packets.plane)
        return FiveTuples(
            packets.family,
            addresses[packets.source],
            addresses[packets.destination],
            sport=packets.source_port,
            dport=ROCEV2_PORT,
            flow_label=0 if packets.flow_label is None else packets.flow_label,
        )

    def paths(self, packets: Packets) -> NDArray[np.int32]:
        """Return (n, MAX_HOPS) port numbers that send each packet, in order; then -1."""
        topology, plane = self._topology, packets.plane
        n = len(packets.source)
        found = np.full((n, MAX_HOPS), -1, np.int32)
        host_ports = np.array(
            [
                next(k.up_port for k in topology.uplinks[host.name] if k.upper.plane == plane)
                for host in topology.hosts
            ]
        )
        found[:, 0] = host_ports[packets.source]
        leaf_number = packets.destination // topology.hosts_per_leaf + 1
        at: dict[Node, NDArray[np.intp]] = {}
        for number in np.unique(packets.source // topology.hosts_per_leaf + 1):
            rows = np.nonzero(packets.source // topology.hosts_per_leaf + 1 == number)[0]
            at[topology.switch(Role.LEAF, int(number), plane)] = rows
        for hop in range(1, MAX_HOPS):
            moved: dict[Node, list[NDArray[np.intp]]] = {}
            for switch, rows in at.items():
                arrived = leaf_number[rows] == switch.number if switch.role is Role.LEAF else None
                if arrived is not None and arrived.any():
                    there = rows[arrived]
                    found[there, hop] = host_ports[packets.destination[there]] ^ 1
                    rows = rows[~arrived]
                self._forward(switch, rows, hop, packets, leaf_number, found, moved)
            at = {switch: np.concatenate(parts) for switch, parts in moved.items()}
        return found

    def paths_of(self, pairs: QueuePairs) -> NDArray[np.int32]:
        """Return (queue pairs, MAX_HOPS) the path of each queue pair, as ``paths`` does."""
        found = np.full((len(pairs), MAX_HOPS), -1, np.int32)
        for rows in pairs.groups():
            found[rows] = self.paths(Packets.of(pairs, rows))
        return found

    def _forward(
        self,
        switch: Node,
        rows: NDArray[np.intp],
        hop: int,
        packets: Packets,
        leaf_number: NDArray[np.int64],
        found: NDArray[np.int32],
        moved: dict[Node, list[NDArray[np.intp]]],
    ) -> None:
        """Send the packets at one switch on their next hop, group by group."""
        topology = self._topology
        groups: dict[tuple[int, ...], list[int]] = {}
        links = {}
        for number in np.unique(leaf_number[rows]):
            leaf = topology.switch(Role.LEAF, int(number), packets.plane)
            hops = topology.next_hops(switch, leaf)
            key = tuple(link.index for link in hops)
            links[key] = hops
            groups.setdefault(key, []).append(int(number))
        for key, numbers in groups.items():
            own = rows[np.isin(leaf_number[rows], numbers)]
            hops = links[key]
            chosen = np.zeros(len(own), np.intp)
            if len(hops) > 1:
                chosen = self._choose(switch, packets.take(own), len(hops))
            up = hops[0].lower == switch
            ports = np.array([link.up_port if up else link.down_port for link in hops])
            found[own, hop] = ports[chosen]
            for index, link in enumerate(hops):
                onward = own[chosen == index]
                if len(onward):
                    moved.setdefault(link.upper if up else link.lower, []).append(onward)

    def _choose(self, switch: Node, packets: Packets, members: int) -> NDArray[np.intp]:
        hashes = multipath_hash(
            self.tuples(packets),
            self._seeds[switch.name],
            self._switch.hash_policy,
            self._switch.hash_fields,
        )
        return select_by_threshold(hashes, [1] * members)


def port_stamps(topology: Topology) -> NDArray[np.uint8]:
    """Return (ports,) what each port writes into unstamped packets; 0: nothing."""
    stamps = np.zeros(2 * len(topology.links), np.uint8)
    for link in topology.links:
        stamps[link.down_port] = topology.path_stamp(link.upper)
    return stamps


def path_stamps(topology: Topology, paths: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return (n,) the stamp that packets on these paths arrive with."""
    stamps = port_stamps(topology)[paths] * (paths >= 0)
    first = (stamps != 0).argmax(axis=1)
    result: NDArray[np.uint8] = stamps[np.arange(len(paths)), first]
    return result


def spread_evenly(
    placement: Placement, packets: Packets, values: int, draw: np.random.Generator
) -> NDArray[np.uint16]:
    """Return entropy values that use every path of each flow equally, in shuffled rotation.

    Args:
        placement: how the switches hash.
        packets: one row per flow; its source ports are not used.
        values: entropy values per flow; rounded up to a multiple of the number of paths.
        draw: of candidates and of the order.

    Returns:
        (flows, m) uint16 source ports, m >= values.

    Raises:
        ValueError: some path cannot be reached with any of the candidates.
    """
    flows = len(packets.source)
    candidates = draw.permutation(np.arange(0xC000, 0x10000, dtype=np.uint16))
    tried = min(len(candidates), max(2048, 16 * values))
    ports = candidates[:tried]
    rows = np.repeat(np.arange(flows), tried)
    every = packets.take(rows)
    every = Packets(
        every.family,
        every.plane,
        every.source,
        every.destination,
        np.tile(ports, flows),
        every.flow_label,
    )
    paths = placement.paths(every)
    rotations = []
    for flow in range(flows):
        own = paths[flow * tried : (flow + 1) * tried]
        distinct, which = np.unique(own, axis=0, return_inverse=True)
        each = -(-values // len(distinct))
        chosen = [ports[which.ravel() == path][:each] for path in range(len(distinct))]
        if min(len(part) for part in chosen) < each:
            raise ValueError(f"{tried} source ports are too few for {each} on every path")
        rotations.append(_rotation(np.array(chosen), draw))
    if len({len(rotation) for rotation in rotations}) > 1:
        longest = max(len(rotation) for rotation in rotations)
        rotations = [np.resize(rotation, longest) for rotation in rotations]
    return np.array(rotations)


def _rotation(chosen: NDArray[np.uint16], draw: np.random.Generator) -> NDArray[np.uint16]:
    """Order (paths, each) values in laps that visit every path once, each lap shuffled anew."""
    laps = [draw.permutation(chosen[:, lap]) for lap in range(chosen.shape[1])]
    return np.concatenate(laps)
