"""Where packets go: the ports every packet of a fabric takes, from the switches' own hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.numbering import MAX_HOPS, Choices, Ints, Numbering
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scheme import Switch
from fabric_emu.model.topology import Topology, hash_seed
from fabric_emu.predict.multipath import FiveTuples, multipath_hash
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.wire.layout import ROCEV2_PORT


@dataclass(frozen=True)
class Packets:
    """RoCEv2 packets to place, one row each.

    Attributes:
        family: 4 or 6, of all rows.
        plane: of all rows.
        source, destination: (n,) int, 0-based host numbers.
        source_port: (n,) uint16.
        flow_label: (n,) uint32; IPv6 only.
        run: (n,) int, which of the placement's runs each packet is of; None: the first.
    """

    family: Literal[4, 6]
    plane: int
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    source_port: NDArray[np.uint16]
    flow_label: NDArray[np.uint32] | None = None
    run: NDArray[np.int64] | None = None

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

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Packets:
        """Return the packets of some rows."""
        return replace(
            self,
            source=self.source[rows],
            destination=self.destination[rows],
            source_port=self.source_port[rows],
            flow_label=None if self.flow_label is None else self.flow_label[rows],
            run=None if self.run is None else self.run[rows],
        )

    def with_ports(self, source_ports: NDArray[np.uint16]) -> Packets:
        """Return packets with source ports (n, m) in the place of each: n times m rows."""
        each = source_ports.shape[1]
        repeated = self.take(np.repeat(np.arange(len(self)), each))
        return replace(repeated, source_port=source_ports.ravel())


class Placement:
    """Places packets in a topology whose switches hash as Linux does.

    Args:
        topology: the fabric.
        switch: hash policy and fields.
        seeds: (runs, switches) hash seeds, switches in the order of ``Topology.switches``.

    Attributes:
        topology, switch: as given.
        numbering: its ports.
    """

    def __init__(self, topology: Topology, switch: Switch, seeds: NDArray[np.uint32]) -> None:
        self.topology = topology
        self.switch = switch
        self.numbering = Numbering(topology)
        self._seeds = seeds
        self._uplinks = NexthopGroup.of_leaf(topology)
        self._parallel = NexthopGroup.of_alike(topology, self.numbering.parallel)
        self._spine_uplinks = NexthopGroup.of_alike(topology, self.numbering.spine_uplinks)
        self._addresses: dict[tuple[int, int], NDArray[np.uint32] | NDArray[np.uint8]] = {}

    @classmethod
    def of(
        cls,
        topology: Topology,
        switch: Switch,
        seed: int | Sequence[int],
        mode: str = "per-switch",
    ) -> Placement:
        """Return a placement with the hash seeds that runs of these seeds give their switches."""
        runs = [seed] if isinstance(seed, int) else seed
        seeds = [[hash_seed(run, node, mode) for node in topology.switches] for run in runs]
        return cls(topology, switch, np.array(seeds, np.uint32))

    def tuples(self, packets: Packets) -> FiveTuples:
        """Return the five-tuples (and flow labels) that the switches hash."""
        addresses = self._host_addresses(packets.family, packets.plane)
        return FiveTuples(
            packets.family,
            addresses[packets.source],
            addresses[packets.destination],
            sport=packets.source_port,
            dport=ROCEV2_PORT,
            flow_label=0 if packets.flow_label is None else packets.flow_label,
        )

    def _host_addresses(
        self, family: Literal[4, 6], plane: int
    ) -> NDArray[np.uint32] | NDArray[np.uint8]:
        key = (family, plane)
        if key not in self._addresses:
            numbering = self.numbering
            of = numbering.addresses4 if family == 4 else numbering.addresses6
            self._addresses[key] = of(plane)
        return self._addresses[key]

    def choices(self, packets: Packets) -> Choices:
        """Return (n, 4) the next hop, of equal ones, that each packet's switches pick.

        Columns as in ``Numbering.path_ports``; 0 where a packet does not pass or nothing is to be
        picked.
        """
        t, numbering, plane = self.topology, self.numbering, packets.plane
        found = np.zeros((len(packets), 4), np.int64)
        leaf, last_leaf = (end // t.hosts_per_leaf for end in (packets.source, packets.destination))
        up = np.flatnonzero(leaf != last_leaf)
        if not len(up):
            return found
        packets, leaf, last_leaf = packets.take(up), leaf[up], last_leaf[up]
        uplink = self.choose(packets, numbering.leaf(plane, leaf), self._uplinks)
        found[up, 0] = uplink
        place = uplink // numbering.parallel
        spine, last_spine = numbering.spines_between(leaf, last_leaf, place)
        over = np.flatnonzero(spine != last_spine)
        if len(over):
            found[up[over], 1:3] = self._over_super_spines(packets.take(over), spine[over])
        last = numbering.spine(plane, last_spine)
        found[up, 3] = self.choose(packets, last, self._parallel)
        return found

    def _over_super_spines(self, packets: Packets, spine: Ints) -> Choices:
        numbering, plane = self.numbering, packets.plane
        uplink = self.choose(packets, numbering.spine(plane, spine), self._spine_uplinks)
        above = numbering.super_spine_of(spine, uplink // numbering.parallel)
        switch = numbering.super_spine(plane, above)
        return np.stack([uplink, self.choose(packets, switch, self._parallel)], axis=1)

    def stages(self, packets: Packets) -> NDArray[np.int64]:
        """Return (n, MAX_HOPS) the port that sends each packet at each ``Stage``; -1: skipped."""
        return self.numbering.path_ports(
            packets.plane, packets.source, packets.destination, self.choices(packets)
        )

    def choose(self, packets: Packets, switch: Ints, group: NexthopGroup) -> Ints:
        """Return (n,) the next hop, of equal ones, that each packet's switch picks.

        Args:
            packets: to be forwarded.
            switch: (n,) where each one is, counted as in ``Topology.switches``.
            group: the next hops.
        """
        if len(group.weights) == 1:
            return np.zeros(len(packets), np.int64)
        seeds = self._seeds[0 if packets.run is None else packets.run, switch]
        # One key for all rows hashes faster.
        seed = int(seeds[0]) if seeds.min() == seeds.max() else seeds
        policy, fields = self.switch.hash_policy, self.switch.hash_fields
        hashes = multipath_hash(self.tuples(packets), seed, policy, fields)
        return group.choose(hashes)

    def paths(self, packets: Packets) -> NDArray[np.int32]:
        """Return (n, MAX_HOPS) port numbers that send each packet, in order; then -1."""
        return without_skipped(self.stages(packets))

    def stages_of(self, pairs: QueuePairs) -> NDArray[np.int64]:
        """Return (queue pairs, MAX_HOPS) the path of each queue pair, as ``stages`` does."""
        found = np.full((len(pairs), MAX_HOPS), -1, np.int64)
        for rows in pairs.groups():
            found[rows] = self.stages(Packets.of(pairs, rows))
        return found

    def paths_of(self, pairs: QueuePairs) -> NDArray[np.int32]:
        """Return (queue pairs, MAX_HOPS) the path of each queue pair, as ``paths`` does."""
        return without_skipped(self.stages_of(pairs))


def without_skipped(stages: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return paths with the stages they skip moved to their ends."""
    order = np.argsort(stages < 0, axis=1, kind="stable")
    return np.take_along_axis(stages, order, axis=1).astype(np.int32)


def path_name(topology: Topology, path: NDArray[np.int32]) -> str:
    """Return the switches of one path of ports, such as ``leaf1>spine3>leaf2``."""
    names = []
    for port in path[path >= 0][1:]:
        link = topology.links[port // 2]
        names.append(link.upper.name if port % 2 else link.lower.name)
    return ">".join(names)


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
