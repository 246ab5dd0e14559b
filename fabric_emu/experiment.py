"""One scheme of a scenario, run for real: fabric, traffic, record, figures."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.jobs import Job, Ran, job_of
from fabric_emu.measure.downlinks import room_share, summarise_downlinks
from fabric_emu.measure.links import LinkLoads
from fabric_emu.measure.record import Settled
from fabric_emu.measure.recovery import LossWatch, summarise_recovery
from fabric_emu.measure.series import Sampler, service
from fabric_emu.measure.summary import SchemeResult, summarise_run
from fabric_emu.measure.switching import lateness, summarise_routing, summarise_switches
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scale import data_frame_bytes
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.net.as_built import altered_interfaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.no_route import NoRouteCounts
from fabric_emu.net.route_watch import Period, RouteWatch, settling_s
from fabric_emu.net.selftest import prediction_support
from fabric_emu.net.timeline import Timeline
from fabric_emu.nic.order import OrderCounts, OrderPlan
from fabric_emu.nic.traffic import Traffic
from fabric_emu.predict.placement import Placement, path_stamps
from fabric_emu.predict.repaired import repaired_paths
from fabric_emu.switch.glb import LATENESS_BIN_S

SETTLE_SHARE, STEADY_SHARE = 0.3, 0.95
"""Between these shares of the sending time the service of saturated ports is measured."""

DRAIN_TIMEOUT_S = 3.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Progress:
    """How far a scheme's run is.

    Attributes:
        scheme, seed: which run.
        stage: build, start, send, drain or collect.
        share: of the whole, 0 to 1.
    """

    scheme: str
    seed: int
    stage: str
    share: float


Observer = Callable[[float, NDArray[np.void]], None]
Attach = Callable[[Fabric], contextlib.AbstractContextManager[dict[str, Any]]]


def run_scheme(
    scenario: Scenario,
    scheme: Scheme,
    seed: int,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    observer: Observer = lambda elapsed_s, ports: None,
    attach: Attach | None = None,
    order: OrderCounts | None = None,
    sample_every_s: float | None = None,
    base_delay_s: float = 0.0,
) -> SchemeResult:
    """Build the scenario's fabric, run its workload under a scheme, and measure.

    Args:
        scenario, scheme, seed: what to run.
        progress: told how far it is.
        observer: called many times a second while the hosts send, with the time since they began
            and the live port table, and once more when the queues have drained. It runs with
            real-time priority: what takes long belongs elsewhere.
        attach: called with the built fabric; the context it returns is held while there is
            traffic, and what it yields is added to the summary.
        order: where NIC workers are to count packets and late ones while they come; what was
            counted before is cleared. None spares them the work.
        sample_every_s: interval of the port counters' series; None: a few hundred samples.
        base_delay_s: of every message in the ideal, beside serialisation; see ``calibration``.

    Raises:
        FabricError: the machine cannot, or the run broke; nothing is left behind.
    """
    scenario.check_live()

    def tell(stage: str, share: float) -> None:
        progress(Progress(scheme.name, seed, stage, share))

    tell("build", 0.0)
    job = job_of(scenario, scheme, seed, base_delay_s)
    with Fabric(
        scenario.topology,
        job.scheme,
        seed=seed,
        hash_seeds=scenario.hash_seeds_of(scheme),
        queue_pairs=job.queue_pairs,
        control_plane=scenario.control_plane_of(scheme),
        frame_bytes=data_frame_bytes(scenario.topology, scenario.workload.payload),
    ) as fabric:
        support = prediction_support()
        placement = None
        if support.offered:
            placement = Placement.of(scenario.topology, scheme.switch, seed, fabric.hash_seeds)
        plans = job.plans(fabric, placement)
        if order:
            plans = _ordered(plans, order, job)
        tell("start", 0.02)

        def watch(elapsed_s: float) -> None:
            observer(elapsed_s, fabric.ports.ports)
            if scenario.faults:
                losses.look(elapsed_s)

        with (
            attach(fabric) if attach else contextlib.nullcontext({}) as noted,
            Traffic(plans, fabric.lease.add_process) as traffic,
            NoRouteCounts(fabric.topology.switches, fabric.namespace_fds) as unrouted,
        ):
            with (
                contextlib.closing(Timeline(fabric, scenario.faults)) as timeline,
                # Left before faults that remain are undone; its thread is not to run in real time.
                RouteWatch(fabric) if scenario.faults else contextlib.nullcontext() as routes,
                traffic.real_time(),
            ):
                # Interfaces that come up report their IPv6 groups, to others not up yet.
                losses = LossWatch(fabric.ports.ports, unrouted.total)
                sampler = Sampler(fabric.ports.ports, sample_every_s)
                series = _send(fabric, sampler, traffic, timeline, job, tell, watch)
            adverts = fabric.adverts.stop() if fabric.adverts else None
            _drain(fabric, tell)
            no_route = losses.no_route
            observer(traffic.elapsed_s(), fabric.ports.ports)
            reports = traffic.stop()
            fabric.check_whole()
        tell("collect", 0.97)
        served = _service(series, fabric, job)
        served[timeline.ports] = np.nan  # at a rate that is not the link's own
        snapshot = fabric.ports.snapshot()
        limits = fabric.ports.configs["drop_at_bytes"].copy()
        counters = fabric.switches.totals()
        altered = len(altered_interfaces(fabric))
    predicted: NDArray[np.int32] | None = None
    settled: tuple[Settled, ...] = ()
    unpredicted = "" if placement else support.reason
    if placement and not scheme.hashed:
        unpredicted = "paths change from packet to packet"
    elif placement and not scenario.faults:
        predicted = placement.paths_of(job.pairs)
    elif placement and scenario.topology.ecmp.resilient:
        unpredicted = "after a fault resilient groups depend on what they carried before"
    elif placement and routes:
        settled = _settled(routes.periods, placement, job.pairs)
        unpredicted = "the routes were never settled"
    record = job.record(
        Ran(
            plans,
            reports,
            snapshot.ports,
            snapshot.flow_ports,
            _queue_s(scenario.topology, limits),
            no_route,
            served,
            predicted,
            settled,
            altered,
        )
    )
    result = summarise_run(record, scheme.name, seed, unpredicted)
    result.summary.update(_downlinks(scenario, result, record.window_s))
    result.summary.update(job.figures())
    result.summary.update(noted)
    if scenario.faults:
        unfinished = result.summary.get("completion", {}).get("unfinished", 0)
        first = min(fault.at for fault in scenario.faults)
        result.summary["recovery"] = summarise_recovery(
            record, losses.last_s, first, traffic.start_realtime_ns, unfinished
        )
        result.summary["recovery"]["routes_settled"] = settling_s(routes.periods if routes else ())
    result.summary["control_plane"] = summarise_routing(
        fabric.control_plane.kind, fabric.ready_s, snapshot.ports
    )
    policy = scheme.switch.policy.kind
    result.summary["switch"] = summarise_switches(policy, counters, snapshot.ports)
    if adverts:
        result.summary["switch"]["adverts_late"] = lateness(adverts.lateness, LATENESS_BIN_S)
        result.summary["switch"]["adverts_skipped"] = adverts.skipped
    return replace(result, series=series, messages=job.messages())


def _ordered(plans: Sequence[Any], order: OrderCounts, job: Job) -> list[Any]:
    """Return the plans, each with a row of the counters."""
    order.clear()
    trimming = job.scheme.switch.trimming
    trimmed = tuple(trimming.trimmed_dscps) if trimming else ()
    return [
        replace(plan, order=OrderPlan(order.fd, row, job.data_pairs, trimmed))
        for row, plan in enumerate(plans)
    ]


def _settled(
    periods: Sequence[Period], placement: Placement, pairs: QueuePairs
) -> tuple[Settled, ...]:
    """Return the times in which routes were settled, with what packets must carry in them."""
    return tuple(
        Settled(
            period.settled_ns,
            period.end_ns,
            path_stamps(placement.topology, paths),
            period.repaired,
        )
        for period in periods
        if period.settled_ns is not None and period.end_ns is not None
        for paths in [repaired_paths(placement, pairs, period.knowledge)]
    )


def _downlinks(scenario: Scenario, result: SchemeResult, window_s: float) -> dict[str, Any]:
    offered, carried = (np.array(result.ports[name]) for name in ("offered", "carried"))
    room = room_share(scenario.topology, scenario.faults, window_s)
    return summarise_downlinks(scenario.topology, LinkLoads(offered, carried), room)


def _queue_s(topology: Topology, limits: NDArray[np.uint64]) -> float:
    rates = np.repeat([link.rate_bps for link in topology.links], 2)
    return float((limits * 8 / rates)[limits > 0].min(initial=np.inf))


def _send(
    fabric: Fabric,
    sampler: Sampler,
    traffic: Traffic,
    timeline: Timeline,
    job: Job,
    tell: Callable[[str, float], None],
    watch: Callable[[float], None],
) -> dict[str, NDArray[Any]]:
    """Let the hosts send; return the port counters over time."""
    traffic.start()
    pause = 0.0
    while not traffic.wait_sent(pause):
        elapsed = traffic.elapsed_s()
        timeline.advance(elapsed)
        sampler.sample(elapsed)
        watch(elapsed)
        tell("send", 0.05 + 0.85 * min(max(elapsed / job.duration, 0.0), 1.0))
        if elapsed > job.duration + job.grace:
            break
        pause = min(timeline.next_s(), sampler.next_s()) - elapsed
        pause = min(max(pause, 0.001), _POLL_S)
    sampler.sample(traffic.elapsed_s())
    return sampler.series()


def _service(series: dict[str, NDArray[Any]], fabric: Fabric, job: Job) -> NDArray[np.float64]:
    """Return each port's service over the steady part of a run, as share of its rate."""
    rates = np.repeat([link.rate_bps for link in fabric.topology.links], 2)
    if not job.steady:
        return np.full(len(rates), np.nan)
    return service(series, rates, SETTLE_SHARE * job.duration, STEADY_SHARE * job.duration)


def _drain(fabric: Fabric, tell: Callable[[str, float], None]) -> None:
    """Wait until no port holds anything any more, or nothing has moved for a while."""
    tell("drain", 0.92)
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    empty = 0
    while empty < 3 and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        empty = empty + 1 if not fabric.ports.depth_bytes.any() else 0


def machine() -> dict[str, Any]:
    """Return what the run stands on: versions, kernel, processors."""
    names = ("fabric_emu", "numpy", "scapy", "pyroute2", "mininet")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return {
        "python": platform.python_version(),
        "versions": versions,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
    }
