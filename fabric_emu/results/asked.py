"""What a scenario builds and sends, as labels and texts."""

from __future__ import annotations

import numpy as np

from fabric_emu.errors import ScenarioError
from fabric_emu.model.ecmp import NexthopGroups
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import OpenLoop
from fabric_emu.results.describe import fault_text, nexthop_groups, nodes, plural, rates
from fabric_emu.results.figures import percent, printable
from fabric_emu.units import format_duration, format_rate, format_size


def asked(scenario: Scenario) -> list[tuple[str, str]]:
    """Return what a scenario builds and sends, as labels and texts."""

    topology = scenario.topology
    to_hosts = topology.total_hosts * topology.planes
    between = _links_between_switches(topology)
    families = " and ".join(f"IPv{family}" for family in topology.families)
    lines = [
        ("title", printable(scenario.title)),
        ("fabric", nodes(topology)),
        ("links", f"{to_hosts:,} to hosts, {between:,} between switches; {rates(topology)}"),
        ("addresses", f"{families}, MTU {topology.mtu}"),
    ]
    if topology.uplinks_per_leaf:
        lines.append(("oversubscription", f"{topology.oversubscription:.3g} : 1 at the leaves"))
    if topology.uplinks_per_leaf and topology.ecmp != NexthopGroups():
        lines.append(("next-hop groups", nexthop_groups(topology)))
    lines += [
        *_traffic(scenario),
        *(("fault", fault_text(fault)) for fault in scenario.faults),
        ("schemes", ", ".join(scheme.name for scheme in scenario.schemes)),
        ("seed", str(scenario.seed)),
    ]
    if expected := sum(len(bounds) for bounds in scenario.expect.values()):
        lines.append(("expectations", str(expected)))
    try:
        scenario.check_live()
    except ScenarioError as error:
        lines.append(("cannot run live", str(error)))
    return lines


def _links_between_switches(topology: Topology) -> int:
    # Counted, not listed: the largest fabrics, which are only predicted, have millions.
    above_spines = topology.pods * topology.super_spines * topology.links_per_pair
    return (topology.total_leaves * topology.uplinks_per_leaf + above_spines) * topology.planes


def _traffic(scenario: Scenario) -> list[tuple[str, str]]:
    """Return what the hosts send."""

    if isinstance(scenario.workload, OpenLoop):
        return _flows(scenario.topology, scenario.workload, scenario.seed)
    return _messages(scenario.topology, scenario.workload, scenario.seed)


def _messages(topology: Topology, workload: Messages, seed: int) -> list[tuple[str, str]]:

    ranks = len(workload.place(topology, seed))
    sizes = workload.graph(topology, seed).size_bytes
    times = f", {plural(workload.iterations, 'time')}" if workload.iterations > 1 else ""
    of = f"{workload.collective} of {format_size(workload.size)} over {ranks:,} hosts{times}"
    sent = f"{(sizes > 0).sum():,}, {format_size(sizes.sum())} in all"
    lines = [("collective", of), ("messages", sent)]
    if workload.timeout is not None:
        lines.append(("training job", _job(workload)))
    return lines


def _job(workload: Messages) -> str:
    """Return when a training job counts as stalled and what that costs."""
    computing = workload.compute_time
    parts = [f"computes for {format_duration(computing)} an iteration"] if computing else []
    parts.append(f"stalled after {format_duration(workload.timeout or 0.0)}")
    if every := workload.checkpoint_every:
        parts.append(f"a checkpoint every {plural(every, 'iteration')}")
    parts.append(f"time lost is that of {plural(workload.gpus, 'GPU')}")
    return ", ".join(parts)


def _flows(topology: Topology, workload: OpenLoop, seed: int) -> list[tuple[str, str]]:
    """Return the flows and the load they offer."""

    flows = workload.table(topology, seed)
    if not len(flows):
        return [("flows", "none")]
    senders = len(np.unique(flows.source))
    each = format_rate(flows.rate_bps.min())
    if flows.rate_bps.min() < flows.rate_bps.max():
        each += f" to {format_rate(flows.rate_bps.max())}"
    offered = flows.rate_bps.sum()
    of_senders = offered / (senders * topology.planes * topology.host_rate_bps)
    load = f"{format_rate(offered)} in all: {percent(of_senders, 1)} of the senders' links"
    if topology.uplinks_per_leaf:
        # The leaf, of any plane, that has most to send to other leaves.
        leaf = flows.source // topology.hosts_per_leaf
        upwards = leaf != flows.destination // topology.hosts_per_leaf
        by_leaf = np.zeros((topology.planes, topology.total_leaves))
        np.add.at(by_leaf, (flows.plane[upwards], leaf[upwards]), flows.rate_bps[upwards])
        share = by_leaf.max() / topology.leaf_capacity_bps
        load += f", {percent(share, 1)} of the busiest leaf's uplinks"
    return [
        (
            "flows",
            f"{len(flows):,} from {plural(senders, 'host')}, each {each} for "
            f"{format_duration(workload.duration)}; payload {workload.payload:,} bytes",
        ),
        ("offered load", load),
    ]
