"""How evenly a scheme loads the uplinks, seed by seed, for fabrics of any size.

A scheme whose queue pairs keep to one path is hashed, packet header by packet header. Sprayed
flows load all uplinks of a leaf alike, but for chance when every packet's entropy is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.flow_table import FlowTable
from fabric_emu.model.numbering import MAX_HOPS, Numbering, Stage
from fabric_emu.model.queue_pair import draw_source_ports
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.predict.entropy import hashes_source_port
from fabric_emu.predict.fluid import link_loads
from fabric_emu.predict.placement import Packets, Placement

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


def spread(scenario: Scenario, scheme: Scheme, seeds: Sequence[int]) -> Spread:
    """Return how evenly a scheme loads uplinks in runs of these seeds.

    In runs of more than ``ROWS_AT_ONCE`` queue pairs spines are taken to be asked for all that
    leaves were, whether their uplinks can carry it or not.
    """
    if not scenario.topology.uplinks_per_leaf:
        nothing = np.zeros((len(seeds), scenario.topology.planes * scenario.topology.total_leaves))
        none = nothing.astype(np.int64)
        return Spread(np.array(seeds), nothing[:, 0], nothing, nothing, none)
    if scheme.nic.entropy != "qp" and hashes_source_port(scheme.switch):
        return Spread.joined([_sprayed(scenario, scheme, seed) for seed in seeds])
    pairs = len(_table(scenario, seeds[0])) * _pairs_per_flow(scheme)
    if pairs > ROWS_AT_ONCE:
        return Spread.joined([_large(scenario, scheme, seed) for seed in seeds])
    ports = Numbering(scenario.topology).ports
    together = max(1, min(ROWS_AT_ONCE // max(pairs, 1), _PORTS_AT_ONCE // ports))
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
        draw_source_ports(len(part) * n, seed) for part, seed in zip(tables, seeds, strict=True)
    ]
    placement = _placement(scenario, scheme, seeds)
    rates = placement.numbering.rates_bps()
    stages, rate = _place(placement, table, n, np.concatenate(ports), run)
    run = np.repeat(run, n)
    loads = link_loads(stages, rate, rates, run, len(seeds))
    streams = _streams(placement.numbering, stages, run, len(seeds))
    return _condensed(placement.numbering, seeds, loads.offered, streams)


def _large(scenario: Scenario, scheme: Scheme, seed: int) -> Spread:
    """Place the queue pairs of one run part by part."""
    n = _pairs_per_flow(scheme)
    table = _table(scenario, seed)
    ports = draw_source_ports(len(table) * n, seed)
    placement = _placement(scenario, scheme, [seed])
    numbering = placement.numbering
    asked = np.zeros(numbering.ports)
    streams = np.zeros((1, numbering.topology.planes * numbering.topology.total_leaves), np.int64)
    for rows in _parts(len(table), max(1, ROWS_AT_ONCE // n)):
        part = slice(rows.start * n, rows.stop * n)
        stages, rate = _place(placement, table.take(rows), n, ports[part], None)
        for stage in (Stage.LEAF_UP, Stage.SPINE_UP):
            there = stages[:, stage] >= 0
            asked += np.bincount(stages[there, stage], rate[there], len(asked))
        streams += _streams(numbering, stages, np.zeros(len(stages), np.int64), 1)
    return _condensed(numbering, [seed], (asked / numbering.rates_bps())[None], streams)


def _parts(total: int, most: int) -> Iterator[slice]:
    for start in range(0, total, most):
        yield slice(start, min(start + most, total))


def _placement(scenario: Scenario, scheme: Scheme, seeds: Sequence[int]) -> Placement:
    mode = scenario.hash_seeds_of(scheme)
    return Placement.of(scenario.topology, scheme.switch, seeds, mode)


def _place(
    placement: Placement,
    table: FlowTable,
    pairs_per_flow: int,
    ports: NDArray[np.uint16],
    run: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the path and the rate of every queue pair of some flows."""
    stages = np.empty((len(ports), MAX_HOPS), np.int64)
    flow = np.repeat(np.arange(len(table)), pairs_per_flow)
    groups = table.family * 256 + table.plane
    for group in np.unique(groups):
        rows = np.flatnonzero(groups[flow] == group)
        own = flow[rows]
        stages[rows] = placement.stages(
            Packets(
                4 if group < 6 * 256 else 6,
                int(group % 256),
                table.source[own],
                table.destination[own],
                ports[rows],
                run=None if run is None else run[own],
            )
        )
    return stages, table.rate_bps[flow] / pairs_per_flow


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
    numbering: Numbering,
    seeds: Sequence[int],
    offered: NDArray[np.float64],
    streams: NDArray[np.int64],
) -> Spread:
    """Keep of (runs, ports) loads what a spread tells."""
    runs = len(seeds)
    leaf = offered[:, numbering.leaf_uplink_ports()]
    leaf = leaf.reshape(runs, -1, leaf.shape[-1])
    spine = offered[:, numbering.spine_uplink_ports()].reshape(runs, -1)
    leaf_worst = leaf.max(axis=2)
    worst = np.maximum(leaf_worst.max(axis=1), spine.max(axis=1, initial=0))
    return Spread(np.array(seeds, np.int64), worst, leaf_worst, leaf.mean(axis=2), streams)


def _sprayed(scenario: Scenario, scheme: Scheme, seed: int) -> Spread:
    """Spread every flow that leaves its leaf over all uplinks, packets at random or in turn."""
    t, table = scenario.topology, _table(scenario, seed)
    source, destination = table.source // t.hosts_per_leaf, table.destination // t.hosts_per_leaf
    up = source != destination
    leaf = (table.plane * t.total_leaves + source)[up]
    leaves = t.planes * t.total_leaves
    bps = np.bincount(leaf, table.rate_bps[up], leaves)
    links = t.uplinks_per_leaf
    mean = bps / (links * t.link_rate)
    worst = mean
    if scheme.nic.entropy == "random":
        headers = np.where(table.family == 4, _HEADERS[4], _HEADERS[6])[up]
        frame_bits = 8 * (scenario.workload.payload + headers)
        rate = np.bincount(leaf, table.rate_bps[up] / frame_bits, leaves)
        packets = np.rint(rate * scenario.workload.duration).astype(np.int64)
        draw = np.random.default_rng([seed, 5])
        counts = draw.multinomial(packets, np.full(links, 1 / links))
        worst = mean * counts.max(axis=1) * links / np.maximum(packets, 1)
    streams = np.bincount(leaf, minlength=leaves)
    return Spread(
        np.array([seed]), worst.max(keepdims=True), worst[None], mean[None], streams[None]
    )
