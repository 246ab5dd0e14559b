"""What one scheme of a scenario will do, without a kernel: paths, loads, the worst uplink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.links import LinkLoads, summarise_links
from fabric_emu.model.flow_table import FlowTable
from fabric_emu.model.numbering import Stage
from fabric_emu.model.queue_pair import QPN_BASE, QueuePairs
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.predict.entropy import ALL_PORTS, hashes_source_port, rotations
from fabric_emu.predict.fluid import Loads, link_loads
from fabric_emu.predict.placement import Packets, Placement, path_name, without_skipped
from fabric_emu.predict.source_ports import source_ports

_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Streams:
    """Parts of flows, each on one path.

    Attributes:
        flow: (n,) index of the flow.
        stages: (n, MAX_HOPS) its ports.
        share: (n,) of the flow's packets.
    """

    flow: NDArray[np.int64]
    stages: NDArray[np.int64]
    share: NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """What a run of one scheme should measure.

    Attributes:
        summary: figures under the names that a run's summary has; ``paths`` also counts those
            that flows of the workload could use (``possible``).
        flows: columns of one row per queue pair, or per flow when sprayed.
    """

    summary: dict[str, Any]
    flows: dict[str, list[Any]]


def forecast(scenario: Scenario, scheme: Scheme, seed: int) -> Forecast:
    """Return what a run of a scheme should measure; links are taken to be whole.

    Rates are those of a long run: a short one shows that its packets come in whole messages. Of
    messages, loads are those while every host sends at its full rate to all its peers.

    Fidelity: see ``predict.fluid``; random entropy is taken at its expectation.
    """
    topology = scenario.topology
    table = scenario.workload.table(topology, seed)
    pairs = QueuePairs.of(table, scheme.nic, seed)
    if scheme.nic.entropy == "qp":
        pairs = replace(pairs, source_port=source_ports(scenario.workload, len(pairs), seed))
    mode = scenario.hash_seeds_of(scheme)
    placement = Placement.of(topology, scheme.switch, seed, mode)
    streams = streams_of(placement, table, pairs, scheme, seed)
    rate = table.rate_bps[streams.flow] * streams.share
    loads = link_loads(streams.stages, rate, placement.numbering.rates_bps())
    link = LinkLoads(loads.offered[0], loads.carried[0])
    summary = {
        "name": scheme.name,
        "seed": seed,
        "hash_seeds": mode,
        **summarise_links(topology, link),
        "efficiency": float((loads.delivered * rate).sum() / rate.sum()),
        "paths": {
            "used": len(_tops_used(topology, streams.stages)),
            "possible": _tops_possible(topology, table),
        },
    }
    return Forecast(summary, _flow_columns(topology, table, pairs, scheme, streams, loads))


def streams_of(
    placement: Placement, table: FlowTable, pairs: QueuePairs, scheme: Scheme, seed: int
) -> Streams:
    """Return the parts of flows on each path: queue pairs, or packets sprayed over paths.

    Raises:
        ValueError: even spraying does not find enough entropy values.
    """
    nic = scheme.nic
    if nic.entropy == "qp":
        share = np.full(len(pairs), 1 / nic.queue_pairs)
        return Streams(pairs.flow, placement.stages_of(pairs), share)
    if nic.entropy == "even" and hashes_source_port(scheme.switch):
        return _sprayed(placement, table, rotations(placement, pairs, nic, seed))
    ports = ALL_PORTS if hashes_source_port(scheme.switch) else ALL_PORTS[:1]
    # All flows from one host to another do the same.
    ends = np.stack([table.family, table.plane, table.source, table.destination])
    _, first, kind = np.unique(ends, axis=1, return_index=True, return_inverse=True)
    kinds = _sprayed(placement, table.take(first), np.broadcast_to(ports, (len(first), len(ports))))
    return _for_each(kinds, kind.ravel())


def _for_each(kinds: Streams, kind: NDArray[np.intp]) -> Streams:
    """Return the streams of flows, given each flow's kind and the streams of the kinds."""
    order = np.argsort(kinds.flow, kind="stable")
    counts = np.bincount(kinds.flow)
    starts = np.cumsum(counts) - counts
    own = counts[kind]
    within = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
    rows = order[np.repeat(starts[kind], own) + within]
    return Streams(np.repeat(np.arange(len(kind)), own), kinds.stages[rows], kinds.share[rows])


def _sprayed(placement: Placement, table: FlowTable, ports: NDArray[np.uint16]) -> Streams:
    """Place every source port of every flow and count those on each path."""
    parts = list(_sprayed_parts(placement, table, ports))
    return Streams(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Streams)))


def _sprayed_parts(
    placement: Placement, table: FlowTable, ports: NDArray[np.uint16]
) -> Iterator[Streams]:
    numbering = placement.numbering
    groups = table.family * 256 + table.plane
    at_once = max(1, _ROWS_AT_ONCE // ports.shape[1])
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        for start in range(0, len(rows), at_once):
            own = rows[start : start + at_once]
            one_each = Packets(
                4 if group < 6 * 256 else 6,
                int(group % 256),
                table.source[own],
                table.destination[own],
                ports[own, 0],
            )
            choices = placement.choices(one_each.with_ports(ports[own]))
            keys = numbering.path_keys(choices)
            flow = np.repeat(np.arange(len(own)), ports.shape[1])
            _, first, count = np.unique(
                flow * (int(keys.max()) + 1) + keys, return_index=True, return_counts=True
            )
            of = flow[first]
            stages = numbering.path_ports(
                one_each.plane, one_each.source[of], one_each.destination[of], choices[first]
            )
            yield Streams(own[of], stages, count / ports.shape[1])


def _tops_used(topology: Topology, stages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the path stamps that arrive: those of the highest switch of each path."""
    stamps = np.zeros(2 * len(topology.links), np.int64)
    for link in topology.links:
        stamps[link.down_port] = topology.path_stamp(link.upper)
    over, up = stages[:, Stage.SUPER_DOWN], stages[:, Stage.SPINE_DOWN]
    top = np.where(over >= 0, over, up)
    return np.unique(stamps[top[top >= 0]])


def _tops_possible(topology: Topology, table: FlowTable) -> int:
    """Return how many path stamps flows of the workload could arrive with."""
    leaf, last_leaf = (end // topology.hosts_per_leaf for end in (table.source, table.destination))
    within_pod = leaf // topology.leaves == last_leaf // topology.leaves
    spines = topology.spines if bool((within_pod & (leaf != last_leaf)).any()) else 0
    return spines + (0 if bool(within_pod.all()) else topology.super_spines)


def _flow_columns(
    topology: Topology,
    table: FlowTable,
    pairs: QueuePairs,
    scheme: Scheme,
    streams: Streams,
    loads: Loads,
) -> dict[str, list[Any]]:
    hashed = scheme.nic.entropy == "qp"
    flow = streams.flow if hashed else np.arange(len(table))
    columns: dict[str, list[Any]] = {
        "flow": flow.tolist(),
        "source": [f"h{host + 1}" for host in table.source[flow]],
        "destination": [f"h{host + 1}" for host in table.destination[flow]],
        "plane": table.plane[flow].tolist(),
        "family": table.family[flow].tolist(),
    }
    if hashed:
        columns["qpn"] = (np.arange(len(pairs)) + QPN_BASE).tolist()
        columns["source_port"] = pairs.source_port.tolist()
        columns["rate_bps"] = (table.rate_bps[flow] * streams.share).tolist()
        columns["delivered"] = loads.delivered.tolist()
        paths = without_skipped(streams.stages)
        columns["predicted_path"] = [path_name(topology, path) for path in paths]
    else:
        columns["rate_bps"] = table.rate_bps.tolist()
        arrived = np.bincount(streams.flow, loads.delivered * streams.share, len(table))
        columns["delivered"] = arrived.tolist()
        columns["paths"] = np.bincount(streams.flow, minlength=len(table)).tolist()
    return columns
