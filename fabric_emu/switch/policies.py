"""From described policies to what the programs read: settings of ports, switches, next hops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabric_emu.errors import ScenarioError
from fabric_emu.model.policies import Balancing
from fabric_emu.model.scale import largest_frame_bytes
from fabric_emu.model.scheme import Switch
from fabric_emu.model.topology import Link, Node, Role, Topology
from fabric_emu.switch.columns import Records
from fabric_emu.switch.ports import PortTable, dscp_bits
from fabric_emu.switch.quality import TICK_SHIFT, TICKS_PER_SAMPLE, full_load_bytes
from fabric_emu.switch.switches import ADVERT_LEAVES, GROUP_PORTS, Mode, SwitchSizes, group_of

DROP_AT_SECONDS = 0.010
"""Default queue limit of a switch port, as time at its rate."""

_DROP_AT_FRAMES, _DROP_AT_TRIMS = 8, 2


@dataclass(frozen=True)
class SwitchPlan:
    """What a fabric's switches are to do.

    Attributes:
        topology: the fabric.
        switch: what they do.
        frame_bytes: largest frame that the hosts send.
        balancing: the policy in numbers.
        switches: those that choose next hops themselves or listen to adverts.
        groups: ports of each group of equal next hops.
        routes: per switch and leaf the number of its group, from 1; 0: one way only.
    """

    topology: Topology
    switch: Switch
    frame_bytes: int
    balancing: Balancing
    switches: tuple[Node, ...]
    groups: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, topology: Topology, switch: Switch, frame_bytes: int | None = None) -> SwitchPlan:
        """Return the plan of a fabric.

        Raises:
            ScenarioError: more equal next hops than the programs take.
        """
        frame = frame_bytes or largest_frame_bytes(topology)
        balancing = switch.policy.resolved(topology, frame)
        switches: list[Node] = []
        groups: dict[tuple[int, tuple[int, ...]], int] = {}
        routes = []
        for node in topology.switches if balancing.mode != "kernel" else ():
            ways = [next_hop_ports(topology, node, leaf) for leaf in _leaves(topology, node.plane)]
            listens = balancing.glb_interval_s > 0 and bool(advertisers(topology, node))
            if not listens and max(map(len, ways)) < 2:
                continue
            if max(map(len, ways)) > GROUP_PORTS:
                raise ScenarioError(
                    "topology.links_per_pair",
                    topology.links_per_pair,
                    f"at most {GROUP_PORTS} equal next hops with policy {switch.policy.kind}",
                )
            row = len(switches)
            switches.append(node)
            routes.append(
                tuple(
                    groups.setdefault((row, way), len(groups) + 1) if len(way) > 1 else 0
                    for way in ways
                )
            )
        members = tuple(way for _, way in groups)
        return cls(topology, switch, frame, balancing, tuple(switches), members, tuple(routes))

    @property
    def sizes(self) -> SwitchSizes:
        """How many of everything there are."""
        return SwitchSizes(len(self.switches), len(self.groups))

    @property
    def constants(self) -> dict[str, int]:
        """What the programs take as fixed, by the names of ``PortConstants``."""
        leaves = self.topology.total_leaves
        balances = bool(self.switches)
        trimming = self.switch.trimming
        return {
            "control_dscps": dscp_bits(*self.switch.control_dscps),
            "trimmed_dscps": dscp_bits(*(trimming.trimmed_dscps if trimming else ())),
            "leaf_count": leaves if balances else 0,
            "host_bits": self.topology.host_bits,
            "flowlet_entries": self.balancing.max_flows if balances else 0,
            "advert_blocks": -(-leaves // ADVERT_LEAVES) if self.balancing.glb_interval_s else 0,
        }

    def apply(self, table: PortTable) -> None:
        """Write the plan into the programs' maps."""
        for link in self.topology.links:
            self._apply_to_link(table.configs, link)
        switches = table.switches
        switches.names = tuple(node.name for node in self.switches)
        for row, node in enumerate(self.switches):
            for port in self._ports_of(node):
                table.configs["switch_number"][port] = row
            switches.configs["plane"][row] = node.plane
        balancing = self.balancing
        switches.configs["mode"] = Mode[balancing.mode.upper().replace("-", "_")]
        switches.configs["flowlet_gap_ns"] = round(balancing.flowlet_gap_s * 1e9)
        switches.configs["advert_ageing_ns"] = round(balancing.ageing_s * 1e9)
        switches.configs["table_entries"] = balancing.max_flows
        switches.configs["hash_seed"] = balancing.hash_seed
        for number, members in enumerate(self.groups):
            switches.groups[number] = group_of(members)
        if self.switches:
            switches.routes[:] = np.array(self.routes, np.uint32)

    def _ports_of(self, node: Node) -> Iterator[int]:
        for link in self.topology.uplinks[node.name]:
            yield link.up_port
        for link in self.topology.downlinks[node.name]:
            yield link.down_port

    def _apply_to_link(self, configs: Records, link: Link) -> None:
        at_host = link.lower.role is Role.HOST
        # A host's NIC has no limit: its packet ring holds senders back.
        for port in (link.down_port,) if at_host else (link.up_port, link.down_port):
            config = configs[port]
            self._limit(config, link.rate_bps, at_host)
            if self.switch.ecn:
                self._mark(config, at_host)
            if not at_host:
                self._measure(config, link.rate_bps)
        configs["path_stamp"][link.down_port] = self.topology.path_stamp(link.upper)

    def _limit(self, config: np.void, rate_bps: int, at_host: bool) -> None:
        """Write when a port drops and trims."""
        least = _DROP_AT_FRAMES * largest_frame_bytes(self.topology)
        drop_at = max(round(rate_bps / 8 * DROP_AT_SECONDS), least)
        config["control_limit_bytes"] = self.switch.drop_at or drop_at
        if self.switch.trimming:
            trims = self.switch.trimming.resolved(self.topology, self.frame_bytes)
            above = trims.last_hop_above_bytes if at_host else trims.above_bytes
            drop_at = max(drop_at, _DROP_AT_TRIMS * above)
            config["trim_above_bytes"] = above
            config["trim_to_bytes"] = trims.trim_to_bytes
            config["trimmable_dscps"] = dscp_bits(*trims.trimmable)
            config["trimmed_dscp"] = trims.trimmed_last_hop if at_host else trims.trimmed
            config["control_limit_bytes"] = trims.control_limit_bytes
        config["drop_at_bytes"] = self.switch.drop_at or drop_at
        if self.switch.lossless:
            config["drop_at_bytes"] = config["control_limit_bytes"] = 0

    def _mark(self, config: np.void, at_host: bool) -> None:
        """Write when a port marks."""
        assert self.switch.ecn is not None
        marking = self.switch.ecn.resolved(self.topology, self.frame_bytes)
        if at_host and not marking.host_ports:
            return
        config["mark_above_bytes"] = marking.above_bytes
        config["mark_all_above_bytes"] = marking.all_above_bytes
        config["mark_per_million"] = marking.per_million

    def _measure(self, config: np.void, rate_bps: int) -> None:
        """Write how a port's load and queue make its quality."""
        balancing = self.balancing
        if not balancing.sampling_s:
            return
        tick_ns = max(round(balancing.sampling_s * 1e9 / TICKS_PER_SAMPLE), 1)
        shift = balancing.exponent + TICK_SHIFT
        full = full_load_bytes(rate_bps, tick_ns, shift)
        weight = round(balancing.load_weight * 256)
        config["load_tick_ns"] = tick_ns
        config["load_shift"] = shift
        config["load_low_bytes"], config["load_high_bytes"] = (
            round(full * share) for share in balancing.load_range
        )
        config["queue_low_bytes"], config["queue_high_bytes"] = balancing.queue_range
        config["load_weight"], config["queue_weight"] = weight, 256 - weight


def _leaves(topology: Topology, plane: int) -> list[Node]:
    return [
        topology.switch(Role.LEAF, number, plane) for number in range(1, topology.total_leaves + 1)
    ]


def next_hop_ports(topology: Topology, switch: Node, leaf: Node) -> tuple[int, ...]:
    """Return the ports of the equal next hops from a switch to a leaf."""
    return tuple(
        link.up_port if link.lower == switch else link.down_port
        for link in topology.next_hops(switch, leaf)
    )


def advertisers(topology: Topology, switch: Node) -> tuple[Link, ...]:
    """Return the links by which a switch hears adverts: of those it may send packets through."""
    above = topology.uplinks[switch.name]
    # A spine says how good its links to leaves are, not the leaf at their end.
    below = topology.downlinks[switch.name] if switch.role is Role.SUPER_SPINE else ()
    return above + below
