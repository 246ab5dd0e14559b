"""One scheme of a scenario, run for real: fabric, traffic, record, figures."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.fidelity import Fidelity, judge_fidelity
from fabric_emu.measure.links import LinkLoads, summarise_links
from fabric_emu.measure.paths import (
    PathCheck,
    check_prediction,
    conservation,
    delivered_by_path,
    paths_agree,
)
from fabric_emu.measure.record import Arrivals, Record, Senders
from fabric_emu.measure.reordering import summarise, unwrap_sequence
from fabric_emu.measure.statistics import percentiles
from fabric_emu.model.queue_pair import QPN_BASE, QueuePairs
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.faults import Timeline, no_route_drops
from fabric_emu.net.selftest import PredictionSupport, prediction_support
from fabric_emu.nic.plan import Planner
from fabric_emu.nic.traffic import Traffic
from fabric_emu.nic.worker import LAG_BIN_S, Plan, Report
from fabric_emu.predict.placement import Placement, path_name, port_stamps
from fabric_emu.switch.ports import DropReason

SETTLE_SHARE, STEADY_SHARE = 0.3, 0.95
"""Between these shares of the sending time the service of saturated ports is measured."""

DRAIN_TIMEOUT_S = 3.0
SEND_GRACE_S = 2.0
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


@dataclass(frozen=True)
class SchemeResult:
    """Figures of one scheme.

    Attributes:
        summary: nested, ready for JSON, in SI units.
        flows: columns of one row per queue pair.
        ports: columns of one row per port.
    """

    summary: dict[str, Any]
    flows: dict[str, list[Any]]
    ports: dict[str, list[Any]]


def run_scheme(
    scenario: Scenario,
    scheme: Scheme,
    seed: int,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SchemeResult:
    """Build the scenario's fabric, run its workload under a scheme, and measure.

    Raises:
        FabricError: the machine cannot, or the run broke; nothing is left behind.
    """
    scenario.check_live()

    def tell(stage: str, share: float) -> None:
        progress(Progress(scheme.name, seed, stage, share))

    tell("build", 0.0)
    flows = scenario.workload.expand(scenario.topology, seed)
    pairs = QueuePairs.of(flows, scheme.nic, seed)
    with Fabric(
        scenario.topology,
        scheme,
        seed=seed,
        hash_seeds=scenario.hash_seeds_of(scheme),
        queue_pairs=len(pairs),
    ) as fabric:
        support = prediction_support()
        placement = None
        if support.offered:
            placement = Placement.of(scenario.topology, scheme.switch, seed, fabric.hash_seeds)
        planner = Planner(fabric, scenario.workload, flows, pairs, placement)
        plans = planner.plans()
        tell("start", 0.02)
        with Traffic(plans, fabric.lease.add_process) as traffic:
            with contextlib.closing(Timeline(fabric, scenario.faults)) as timeline:
                service = _send(fabric, traffic, timeline, scenario.workload.duration, tell)
            _drain(fabric, tell)
            reports = traffic.stop()
        tell("collect", 0.97)
        snapshot = fabric.ports.snapshot()
        limits = fabric.ports.configs["drop_at_bytes"].copy()
        no_route = no_route_drops(fabric)
    predicted = None
    if placement and scheme.hashed and not scenario.faults:
        predicted = placement.paths_of(pairs)
    record = Record(
        scenario.topology,
        pairs,
        scenario.workload.duration,
        scenario.workload.payload,
        _queue_s(scenario.topology, limits),
        snapshot.ports,
        snapshot.flow_ports,
        no_route,
        service,
        predicted,
        _senders(plans, reports, len(pairs)),
        _arrivals(reports, len(pairs)),
    )
    frame = plans[0].streams[0].templates.length if plans[0].streams else 0
    result = measure(record, scheme, seed, support, frame)
    result.summary["entropy"] = planner.entropy
    return result


def _queue_s(topology: Topology, limits: NDArray[np.uint64]) -> float:
    rates = np.repeat([link.rate_bps for link in topology.links], 2)
    return float((limits * 8 / rates)[limits > 0].min())


def _send(
    fabric: Fabric,
    traffic: Traffic,
    timeline: Timeline,
    duration: float,
    tell: Callable[[str, float], None],
) -> NDArray[np.float64]:
    """Let the hosts send; return each port's service over the steady part, as share of its rate.

    Links that a fault hits are not measured: theirs is NaN.
    """
    ports = fabric.ports
    rates = np.repeat([link.rate_bps for link in fabric.topology.links], 2)
    begin = end = None
    traffic.start()
    while not traffic.wait_sent(min(_POLL_S, max(timeline.next_s() - traffic.elapsed_s(), 0.0))):
        elapsed = traffic.elapsed_s()
        timeline.advance(elapsed)
        tell("send", 0.05 + 0.85 * min(elapsed / duration, 1.0))
        if begin is None and elapsed >= SETTLE_SHARE * duration:
            begin = (time.monotonic_ns(), ports.ports["departed_bytes"].copy())
        if begin and end is None and elapsed >= STEADY_SHARE * duration:
            end = (time.monotonic_ns(), ports.ports["departed_bytes"].copy())
        if elapsed > duration + SEND_GRACE_S:
            break
    if begin is None or end is None:
        return np.full(len(rates), np.nan)
    seconds = (end[0] - begin[0]) * 1e-9
    share: NDArray[np.float64] = (end[1] - begin[1]) * 8 / (rates * seconds)
    share[timeline.ports] = np.nan
    return share


def _drain(fabric: Fabric, tell: Callable[[str, float], None]) -> None:
    """Wait until no port holds anything any more, or nothing has moved for a while."""
    tell("drain", 0.92)
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    empty = 0
    while empty < 3 and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        empty = empty + 1 if not fabric.ports.depth_bytes.any() else 0


def _senders(plans: list[Plan], reports: list[Report], pairs: int) -> Senders:
    sent = np.zeros(pairs, np.int64)
    scheduled = 0
    for plan, report in zip(plans, reports, strict=True):
        for stream, count in zip(plan.streams, report.sent, strict=True):
            by_pair = stream.schedule.sent_by_queue_pair(count)
            sent[stream.queue_pairs[stream.schedule.queue_pair]] += by_pair
            scheduled += int(stream.schedule.total.sum())
    late = np.sum([report.lag for report in reports], axis=0)
    total = np.cumsum(late)
    ranks = [np.searchsorted(total, share * total[-1]) for share in (0.5, 0.99, 1.0)]
    p50, p99, most = (float(rank + 1) * LAG_BIN_S for rank in ranks)
    return Senders(
        scheduled,
        sent,
        sum(report.unsent for report in reports),
        sum(report.ring_dropped for report in reports),
        (p50, p99, most),
        max(report.busy_s / report.wall_s for report in reports),
    )


def _arrivals(reports: list[Report], pairs: int) -> Arrivals:
    columns = [report.columns for report in reports if report.columns is not None]

    def joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
        return np.concatenate([np.asarray(p).astype(dtype) for p in parts] or [np.empty(0, dtype)])

    pair = joined([c.qpn for c in columns], np.int64) - QPN_BASE
    ours = joined([c.is_rocev2 for c in columns], bool) & (pair >= 0) & (pair < pairs)
    seen = [report for report in reports if report.columns is not None]
    return Arrivals(
        np.where(ours, pair, -1),
        joined([c.psn for c in columns], np.int64),
        joined([c.source_port for c in columns], np.uint16),
        joined([c.path_stamp for c in columns], np.uint8),
        joined([report.lengths for report in seen], np.int64),
        joined([c.send_ns for c in columns], np.int64),
        joined([report.arrival_ns for report in seen], np.int64),
    )


def measure(
    record: Record, scheme: Scheme, seed: int, support: PredictionSupport, frame_bytes: int
) -> SchemeResult:
    """Return the figures of a recorded run."""
    loads = LinkLoads.of(
        record.topology,
        _offered_bytes(record.ports),
        record.ports["departed_bytes"],
        record.window_s,
    )
    packets = conservation(record)
    agree = paths_agree(record, port_stamps(record.topology))
    prediction = check_prediction(record) if record.predicted is not None else None
    fidelity = judge_fidelity(record, packets, agree, prediction, loads.offered, frame_bytes)
    arrivals = record.arrivals
    known = arrivals.queue_pair >= 0
    delay = percentiles((arrivals.arrival_ns - arrivals.send_ns)[known] * 1e-9)
    paths = delivered_by_path(record)
    summary = {
        "name": scheme.name,
        "seed": seed,
        "verdict": _verdict(fidelity),
        **summarise_links(record.topology, loads),
        "efficiency": packets.delivered / max(packets.scheduled, 1),
        "reordering": _reordering(record, known),
        "delay": {"p50": delay.p50, "p99": delay.p99, "max": delay.max},
        "packets": _without(asdict(packets), "unaccounted"),
        "paths": {"agree": agree, "used": int((paths[:, 1:].sum(axis=0) > 0).sum())},
        "prediction": _prediction(prediction, support, scheme),
        "lag": dict(zip(("p50", "p99", "max"), record.senders.lag_s, strict=True)),
    }
    return SchemeResult(
        summary, _flow_columns(record, prediction, paths), _port_columns(record, loads)
    )


def _offered_bytes(ports: NDArray[np.void]) -> NDArray[np.uint64]:
    # What was dropped with a dead link had been enqueued before.
    dropped = ports["dropped_bytes"].sum(axis=1) - ports["dropped_bytes"][:, DropReason.LINK_DOWN]
    offered: NDArray[np.uint64] = ports["enqueued_bytes"] + dropped
    return offered


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _verdict(fidelity: Fidelity) -> dict[str, Any]:
    return {
        "trustworthy": fidelity.trustworthy,
        "reasons": fidelity.reasons,
        "checks": [_without(asdict(check), "reason") for check in fidelity.checks],
    }


def _reordering(record: Record, known: NDArray[np.bool_]) -> dict[str, Any]:
    arrivals = record.arrivals
    pair = arrivals.queue_pair[known]
    sequence = unwrap_sequence(arrivals.psn[known], flow=pair)
    found = summarise(pair, sequence, arrivals.arrival_ns[known], record.payload_bytes)
    return {
        "ratio": found.ratio,
        "max_extent": found.max_extent,
        "p99_extent": found.p99_extent,
        "max_n_reordering": found.max_n_reordering,
        "mean_late": found.mean_late_seconds,
        "max_late": found.max_late_seconds,
        "buffer_bytes": found.buffer_bytes_max,
        "reordered": found.reordered,
        "received": found.received,
        "duplicates": found.duplicates,
    }


def _prediction(
    prediction: PathCheck | None, support: PredictionSupport, scheme: Scheme
) -> dict[str, Any]:
    if prediction is None:
        reason = "its paths change from packet to packet, or with failing links"
        if not support.offered:
            reason = support.reason
        return {"offered": False, "checked": 0, "matched": 0, "reason": reason}
    return {
        "offered": True,
        "checked": int(prediction.checked.sum()),
        "matched": int(prediction.matched.sum()),
        "reason": "",
    }


def _flow_columns(
    record: Record, prediction: PathCheck | None, paths: NDArray[np.int64]
) -> dict[str, list[Any]]:
    pairs, topology = record.pairs, record.topology
    hosts = [host.name for host in topology.hosts]
    dropped = record.flow_ports["dropped_packets"].sum(axis=1)
    columns: dict[str, list[Any]] = {
        "flow": pairs.flow.tolist(),
        "qpn": (np.arange(len(pairs)) + QPN_BASE).tolist(),
        "source": [hosts[i] for i in pairs.source],
        "destination": [hosts[i] for i in pairs.destination],
        "plane": pairs.plane.tolist(),
        "family": pairs.family.tolist(),
        "source_port": pairs.source_port.tolist(),
        "sent": record.senders.sent.tolist(),
        "delivered": paths.sum(axis=1).tolist(),
        "dropped": dropped.tolist(),
    }
    for stamp in np.nonzero(paths.sum(axis=0))[0]:
        columns[f"delivered_bytes_path_{stamp}"] = (paths[:, stamp] * record.payload_bytes).tolist()
    if prediction is not None and record.predicted is not None:
        columns["predicted_path"] = [path_name(topology, path) for path in record.predicted]
        columns["as_predicted"] = prediction.matched.tolist()
    return columns


def _port_columns(record: Record, loads: LinkLoads) -> dict[str, list[Any]]:
    topology, ports = record.topology, record.ports
    sender, receiver = [], []
    for link in topology.links:
        sender += [link.lower.name, link.upper.name]
        receiver += [link.upper.name, link.lower.name]
    columns: dict[str, list[Any]] = {
        "port": list(range(len(ports))),
        "from": sender,
        "to": receiver,
        "offered": loads.offered.tolist(),
        "carried": loads.carried.tolist(),
    }
    for name in ("enqueued_bytes", "enqueued_packets", "departed_bytes", "departed_packets"):
        columns[name] = ports[name].tolist()
    for reason in DropReason:
        columns[f"dropped_{reason.name.lower()}"] = ports["dropped_packets"][:, reason].tolist()
    columns["high_water_bytes"] = ports["high_water_bytes"].tolist()
    return columns


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
