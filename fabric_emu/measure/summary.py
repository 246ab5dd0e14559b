"""The figures of a recorded run: one nested summary, and tables of its flows and ports."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
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
    delivered_bytes_by_path,
    paths_agree,
)
from fabric_emu.measure.record import Record
from fabric_emu.measure.reorder_profile import reorder_profile
from fabric_emu.measure.reordering import summarise, unwrap_sequence
from fabric_emu.measure.statistics import percentiles
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.predict.placement import path_name, port_stamps
from fabric_emu.switch.ports import (
    DropReason,
    carried_bytes,
    link_down_packets,
    offered_bytes,
)


@dataclass(frozen=True)
class SchemeResult:
    """Figures of one scheme.

    Attributes:
        summary: nested, ready for JSON, in SI units.
        flows: columns of one row per queue pair.
        ports: columns of one row per port.
        series: port counters over time; see ``measure.series``.
        reordering: shares of packets by displacement; see ``measure.reorder_profile``.
        messages: start and finish of every message and collective, goodput over time; see
            ``measure.completion.Completion.columns`` and ``measure.goodput``. Empty for open
            loops.
    """

    summary: dict[str, Any]
    flows: dict[str, list[Any]]
    ports: dict[str, list[Any]]
    series: dict[str, NDArray[Any]] = field(default_factory=dict)
    reordering: dict[str, NDArray[Any]] = field(default_factory=dict)
    messages: dict[str, NDArray[Any]] = field(default_factory=dict)


def summarise_run(record: Record, name: str, seed: int, unpredicted: str) -> SchemeResult:
    """Return the figures of a recorded run.

    Args:
        record: the run.
        name, seed: the scheme's name, the run's seed.
        unpredicted: why there are no predicted paths, where there are none.
    """
    loads = LinkLoads.of(
        record.topology,
        offered_bytes(record.ports),
        carried_bytes(record.ports),
        record.window_s,
    )
    packets = conservation(record)
    agree = paths_agree(record, port_stamps(record.topology))
    prediction = check_prediction(record)
    fidelity = judge_fidelity(record, packets, agree, prediction, loads.offered)
    arrivals = record.arrivals
    data = record.data
    delay_s = (arrivals.arrival_ns - arrivals.send_ns)[data] * 1e-9
    delay = percentiles(delay_s)
    least = float(delay_s.min()) if len(delay_s) else 0.0
    paths = delivered_by_path(record)
    pair = arrivals.queue_pair[data]
    sequence = unwrap_sequence(arrivals.psn[data], flow=pair)
    summary = {
        "name": name,
        "seed": seed,
        "verdict": _verdict(fidelity),
        **summarise_links(record.topology, loads),
        "efficiency": record.efficiency(),
        "reordering": _reordering(record, pair, sequence, arrivals.arrival_ns[data]),
        "delay": {"min": least, "p50": delay.p50, "p99": delay.p99, "max": delay.max},
        "packets": _without(asdict(packets), "unaccounted"),
        "paths": {"agree": agree, "used": int((paths[:, 1:].sum(axis=0) > 0).sum())},
        "prediction": _prediction(prediction, unpredicted),
        "lag": dict(zip(("p50", "p99", "max"), record.senders.lag_s, strict=True)),
        "ecn_marked": int(record.ports["marked_packets"].sum()),
        "trims": int(record.ports["trimmed_packets"].sum()),
        "icrc_errors": int(record.ports["icrc_errors"].sum()),
    }
    return SchemeResult(
        summary,
        _flow_columns(record, prediction, paths),
        _port_columns(record, loads),
        reordering=reorder_profile(pair, sequence),
    )


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _verdict(fidelity: Fidelity) -> dict[str, Any]:
    return {
        "trustworthy": fidelity.trustworthy,
        "reasons": fidelity.reasons,
        "checks": [_without(asdict(check), "reason") for check in fidelity.checks],
    }


def _reordering(
    record: Record,
    pair: NDArray[np.int64],
    sequence: NDArray[np.int64],
    arrival_ns: NDArray[np.int64],
) -> dict[str, Any]:
    found = summarise(pair, sequence, arrival_ns, record.payload_bytes)
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


def _prediction(prediction: PathCheck | None, unpredicted: str) -> dict[str, Any]:
    if prediction is None:
        return {
            "offered": False,
            "checked": 0,
            "matched": 0,
            "after_repair": 0,
            "reason": unpredicted,
        }
    return {
        "offered": True,
        "checked": int(prediction.checked.sum()),
        "matched": int(prediction.matched.sum()),
        "after_repair": prediction.after_repair,
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
        "carries": np.where(np.arange(len(pairs)) < record.data_pairs, "data", "answers").tolist(),
        "qpn": (np.arange(len(pairs)) + QPN_BASE).tolist(),
        "source": [hosts[i] for i in pairs.source],
        "destination": [hosts[i] for i in pairs.destination],
        "plane": pairs.plane.tolist(),
        "family": pairs.family.tolist(),
        "source_port": pairs.source_port.tolist(),
        "sent": record.senders.sent.tolist(),
        "delivered": paths.sum(axis=1).tolist(),
        "dropped": dropped.tolist(),
        "trimmed": record.flow_ports["trimmed_packets"].sum(axis=1).tolist(),
        "marked": record.flow_ports["marked_packets"].sum(axis=1).tolist(),
    }
    path_bytes = delivered_bytes_by_path(record)
    for stamp in np.nonzero(paths.sum(axis=0))[0]:
        columns[f"delivered_bytes_path_{stamp}"] = path_bytes[:, stamp].tolist()
    if record.predicted is not None:
        columns["predicted_path"] = [path_name(topology, path) for path in record.predicted]
    if prediction is not None:
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
    columns["dropped_link_down"] = link_down_packets(ports).tolist()
    for name in (
        "high_water_bytes",
        "marked_packets",
        "trimmed_packets",
        "advert_bytes",
        "icrc_errors",
    ):
        columns[name] = ports[name].tolist()
    for name in ("routing_packets", "routing_bytes"):
        columns[name] = ports[name].tolist()
    return columns
