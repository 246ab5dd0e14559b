"""How evenly a scheme loads the uplinks, seed by seed, for fabrics of any size.

A scheme whose queue pairs keep to one path is hashed, packet header by packet header. Sprayed
flows load all uplinks of a leaf in proportion to their shares, but for chance when every packet's
entropy is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.flow_table import FlowTable
from fabric_emu.model.numbering import MAX_HOPS, Numbering, Stage
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.predict.entropy import hashes_source_port
from fabric_emu.predict.fluid import link_loads
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.predict.placement import Packets, Placement
from fabric_emu.predict.source_ports import source_ports

ROWS_AT_ONCE = 1 << 19
"""Queue pairs placed at a time: some 200 MB of columns."""

_PORTS_AT_ONCE = 1 << 22
_HEADERS = {4: 14 + 20 + 8 + 12 + 16 + 4, 6: 14 + 40 + 8 + 12 + 16 + 4}
"""Ethernet, IP, UDP, BTH, RETH and ICRC, in bytes."""


@dataclass(frozen=True)
class Spread:
    """Loads of uplinks over their rates in runs of several seeds.

    Leaves of all planes, plane by plane.

    Attributes:
        seeds: (s,) int64.
        worst: (s,) of the fullest uplink of the fabric: of leaves, and for hashed schemes also of
            spines.
        leaf_worst: (s, leaves) of each leaf's fullest uplink.
        leaf_mean: (s, leaves) over each leaf's uplinks; 0: sends nothing up.
        leaf_streams: (s, leaves) int64, queue pairs that leave each leaf; sprayed: flows.
    """

    seeds: NDArray[np.int64]
    worst: NDArray[np.float64]
    leaf_worst: NDArray[np.float64]
    leaf_mean: NDArray[np.float64]
    leaf_streams: NDArray[np.int64]

    @property
    def leaf_imbalance(self) -> NDArray[np.float64]:
        """(s, leaves) fullest uplink over the mean; NaN for leaves that send nothing up."""
        with np.errstate(invalid="ignore"):
            return self.leaf_worst / self.leaf_mean

    @classmethod
    def joined(cls, parts: Sequence[Spread]) -> Spread:
        """Return the runs of several spreads of one scheme, in order."""
        return cls(
            *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls))
        )


def spread(
    scenario: Scenario, scheme: Scheme, seeds: Sequence[int], at_once: int = ROWS_AT_ONCE
) -> Spread:
    """Return how evenly a scheme loads uplinks in runs of these seeds.

    Args:
        scenario, scheme: what runs.
        seeds: of the runs.
        at_once: queue pairs to place at a time. In runs of more spines are taken to be asked for
            all that leaves were, whether the leaves' uplinks can carry it or not.
    """
    if not scenario.topology.uplinks_per_leaf:
        nothing = np.zeros((len(seeds), scenario.topology.planes * scenario.topology.total_leaves))
        none = nothing.astype(np.int64)
        return Spread(np.array(seeds), nothing[:, 0], nothing, nothing, none)
    if scheme.nic.entropy != "qp" and hashes_source_port(scheme.switch):
        return Spread.joined([_sprayed(scenario, scheme, seed) for seed in seeds])
    pairs = len(_table(scenario, seeds[0])) * _pairs_per_flow(scheme)
    if pairs > at_once:
        return Spread.joined([_large(scenario, scheme, seed, at_once) for seed in seeds])
    ports = Numbering(scenario.topology).ports
    together = max(1, min(at_once // max(pairs, 1), _PORTS_AT_ONCE // ports))
    groups = [seeds[i : i + together] for i in range(0, len(seeds), together)]
    return Spread.joined([_whole(scenario, scheme, group) for group in groups])


def _table(scenario: Scenario, seed: int) -> FlowTable:
    return scenario.workload.table(scenario.topology, seed)


def _pairs_per_flow(scheme: Scheme) -> int:
    """Return into how many parts, each on its own path, a flow is divided."""
    # Sprayed where switches ignore the source port: one path for all packets.
    return scheme.nic.queue_pairs if scheme.nic.entropy == "qp" else 1


def _whole(scenario: Scenario, scheme: Scheme, seeds: Sequence[int]) -> Spread:
    """Place all queue pairs of several runs at once."""
    n = _pairs_per_flow(scheme)
    tables = [_table(scenario, seed) for seed in seeds]
    table = FlowTable.joined(tables)
    run = np.repeat(np.arange(len(seeds)), [len(part) for part in tables])
    ports = [
        source_ports(scenario.workload, len(part) * n, seed)
        for part, seed in zip(tables, seeds, strict=True)
    ]
    placement = _placement(scenario, scheme, seeds)
    numbering = placement.numbering
    stages = np.empty((len(table) * n, MAX_HOPS), np.int64)
    for rows, packets in _grouped(table, n, np.concatenate(ports), run):
        stages[rows] = placement.stages(packets)
    rate, run = np.repeat(table.rate_bps / n, n), np.repeat(run, n)
    offered = link_loads(stages, rate, numbering.rates_bps(), run, len(seeds)).offered
    leaf_load = offered[:, numbering.leaf_uplink_ports()]
    leaf_load = leaf_load.reshape(len(seeds), -1, numbering.leaf_uplinks)
    spine_load = offered[:, numbering.spine_uplink_ports()].reshape(len(seeds), -1)
    streams = _streams(numbering, stages, run, len(seeds))
    return _condensed(seeds, leaf_load, spine_load, streams)


def _large(scenario: Scenario, scheme: Scheme, seed: int, at_once: int) -> Spread:
    """Place the queue pairs of one run part by part."""
    n, t = _pairs_per_flow(scheme), scenario.topology
    table = _table(scenario, seed)
    ports = source_ports(scenario.workload, len(table) * n, seed)
    placement = _placement(scenario, scheme, [seed])
    numbering = placement.numbering
    leaf_bps = np.zeros((t.planes, t.total_leaves * numbering.leaf_uplinks))
    spine_bps = np.zeros((t.planes, t.spines * t.pods * numbering.spine_uplinks))
    streams = np.zeros((t.planes, t.total_leaves), np.int64)
    for rows in _parts(len(table), max(1, at_once // n)):
        part = slice(rows.start * n, rows.stop * n)
        for own, packets in _grouped(table.take(rows), n, ports[part], None):
            rate, plane = table.rate_bps[rows][own // n] / n, packets.plane
            choices = placement.choices(packets)
            leaf, last_leaf = (
                end // t.hosts_per_leaf for end in (packets.source, packets.destination)
            )
            spine, last_spine = numbering.spines_between(
                leaf, last_leaf, choices[:, 0] // numbering.parallel
            )
            for bps, switch, other, uplinks, chosen in (
                (leaf_bps, leaf, last_leaf, numbering.leaf_uplinks, choices[:, 0]),
                (spine_bps, spine, last_spine, numbering.spine_uplinks, choices[:, 1]),
            ):
                up = np.flatnonzero(switch != other)
                if len(up):
                    link = switch[up] * uplinks + chosen[up]
                    bps[plane] += np.bincount(link, rate[up], bps.shape[1])
            streams[plane] += np.bincount(leaf[leaf != last_leaf], minlength=t.total_leaves)
    leaf_load = leaf_bps.reshape(1, -1, numbering.leaf_uplinks) / _leaf_rates_bps(t)
    return _condensed([seed], leaf_load, (spine_bps / t.link_rate).reshape(1, -1), streams)


def _leaf_rates_bps(topology: Topology) -> NDArray[np.float64]:
    """Return (uplinks,) the rates of a leaf's uplinks."""
    return np.repeat(np.array(topology.rates_to_spines, np.float64), topology.links_per_pair)


def _parts(total: int, most: int) -> Iterator[slice]:
    for start in range(0, total, most):
        yield slice(start, min(start + most, total))


def _placement(scenario: Scenario, scheme: Scheme, seeds: Sequence[int]) -> Placement:
    mode = scenario.hash_seeds_of(scheme)
    return Placement.of(scenario.topology, scheme.switch, seeds, mode)


def _grouped(
    table: FlowTable,
    pairs_per_flow: int,
    ports: NDArray[np.uint16],
    run: NDArray[np.int64] | None,
) -> Iterator[tuple[NDArray[np.intp], Packets]]:
    """Yield rows of queue pairs of one family and plane, and a packet of each.

    Args:
        table: flows.
        pairs_per_flow: how many queue pairs each has.
        ports: (queue pairs,) source ports.
        run: (flows,) which run they are of.
    """
    groups = table.family * 256 + table.plane
    for group in np.unique(groups):
        flows = np.flatnonzero(groups == group)
        rows = (flows[:, None] * pairs_per_flow + np.arange(pairs_per_flow)).ravel()
        own = np.repeat(flows, pairs_per_flow)
        yield (
            rows,
            Packets(
                4 if group < 6 * 256 else 6,
                int(group % 256),
                table.source[own],
                table.destination[own],
                ports[rows],
                run=None if run is None else run[own],
            ),
        )


def _streams(
    numbering: Numbering, stages: NDArray[np.int64], run: NDArray[np.int64], runs: int
) -> NDArray[np.int64]:
    """Return (runs, leaves) how many rows go up from each leaf."""
    leaves = numbering.topology.planes * numbering.topology.total_leaves
    leaf_of = np.full(numbering.ports, -1)
    leaf_of[numbering.leaf_uplink_ports()] = np.arange(leaves).reshape(
        numbering.topology.planes, -1, 1
    )
    up = stages[:, Stage.LEAF_UP]
    there = up >= 0
    return np.bincount(run[there] * leaves + leaf_of[up[there]], minlength=runs * leaves).reshape(
        runs, leaves
    )


def _condensed(
    seeds: Sequence[int],
    leaf: NDArray[np.float64],
    spine: NDArray[np.float64],
    streams: NDArray[np.int64],
) -> Spread:
    """Keep what a spread tells of loads: leaf (s, leaves, uplinks), spine (s, uplinks)."""
    leaf_worst = leaf.max(axis=2)
    worst = np.maximum(leaf_worst.max(axis=1), spine.max(axis=1, initial=0))
    mean = leaf.mean(axis=2)
    return Spread(np.array(seeds), worst, leaf_worst, mean, streams.reshape(mean.shape))


def _sprayed(scenario: Scenario, scheme: Scheme, seed: int) -> Spread:
    """Spread every flow that leaves its leaf over all uplinks, packets at random or in turn."""
    t, table = scenario.topology, _table(scenario, seed)
    source, destination = table.source // t.hosts_per_leaf, table.destination // t.hosts_per_leaf
    up = source != destination
    leaf = (table.plane * t.total_leaves + source)[up]
    leaves = t.planes * t.total_leaves
    bps = np.bincount(leaf, table.rate_bps[up], leaves)
    links = t.uplinks_per_leaf
    group = NexthopGroup.of_leaf(t)
    even = scheme.nic.entropy == "even"
    shares = np.full(links, 1 / links) if even else group.shares()
    load = bps[:, None] * shares / _leaf_rates_bps(t)
    if scheme.nic.entropy == "random":
        headers = np.where(table.family == 4, _HEADERS[4], _HEADERS[6])[up]
        frame_bits = 8 * (scenario.workload.payload + headers)
        rate = np.bincount(leaf, table.rate_bps[up] / frame_bits, leaves)
        packets = np.rint(rate * scenario.workload.duration).astype(np.int64)
        draw = np.random.default_rng([seed, 5])
        counts = draw.multinomial(packets, shares)
        sent = counts / np.maximum(packets, 1)[:, None]
        load = bps[:, None] * sent / _leaf_rates_bps(t)
    worst, mean = load.max(axis=1), load.mean(axis=1)
    streams = np.bincount(leaf, minlength=leaves)
    return Spread(
        np.array([seed]), worst.max(keepdims=True), worst[None], mean[None], streams[None]
    )
