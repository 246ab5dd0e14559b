"""Paths: conservation of packets, bytes per path from both ends, prediction against measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.record import Record
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.topology import PATH_STAMPS, Role, Topology
from fabric_emu.switch.ports import OF_NO_HOST, DropReason, link_down_packets, waiting_packets


@dataclass(frozen=True)
class Conservation:
    """Where every packet went.

    A packet stays one packet when a switch trims it, and each ends in one way: it arrives whole,
    its headers alone arrive, it is dropped (whole, or as headers later), or it is still queued
    (likewise). So sent = delivered + trimmed + dropped + queued, exactly. What switches say to each
    other (adverts, BGP, BFD) is no host's packet and counts nowhere.

    Attributes:
        scheduled: asked for by the workload.
        sent: handed to the kernel.
        delivered: arrived whole in the receive rings.
        dropped: by reason.
        trimmed: arrived as headers alone, known by their DSCP; less than what switches have cut
            by what was dropped or queued after that.
        queued: left in a ring or a port's queue at the end.
        unaccounted: what is missing from the equation; 0 in a sound run.
    """

    scheduled: int
    sent: int
    delivered: int
    dropped: dict[str, int]
    trimmed: int
    queued: int
    unaccounted: int


def conservation(record: Record) -> Conservation:
    """Account for every packet of a run."""
    senders, ports = record.senders, record.ports
    sent = int(senders.sent.sum())
    delivered = int(np.count_nonzero(record.arrivals.whole))
    trimmed = int(np.count_nonzero(record.arrivals.known)) - delivered
    by_reason = ports["dropped_packets"].sum(axis=0)
    dropped = {reason.name.lower(): int(by_reason[reason]) for reason in DropReason}
    for reason in OF_NO_HOST:
        del dropped[reason.name.lower()]
    dropped["link_down"] = int(link_down_packets(ports).sum())
    dropped["receive_ring"] = senders.ring_dropped
    queued = int(waiting_packets(ports).sum()) + senders.unsent
    missing = sent - delivered - sum(dropped.values()) - trimmed - queued
    # The kernel also counts packets of its own that it had no route for.
    dropped["no_route"] = min(max(missing, 0), record.no_route)
    missing -= dropped["no_route"]
    # So with forged frames, which no NIC has sent.
    dropped["icrc_errors"] = min(max(missing, 0), int(ports["icrc_errors"].sum()))
    missing -= dropped["icrc_errors"]
    dropped = {name: count for name, count in dropped.items() if count}
    return Conservation(senders.scheduled, sent, delivered, dropped, trimmed, queued, missing)


def delivered_by_path(record: Record) -> NDArray[np.int64]:
    """Return (queue pairs, PATH_STAMPS + 1) packets received by path stamp; 0: within a leaf."""
    return _by_path(record, record.arrivals.whole)


def delivered_bytes_by_path(record: Record) -> NDArray[np.int64]:
    """Return (queue pairs, PATH_STAMPS + 1) bytes of the whole frames received by path stamp."""
    return _by_path(record, record.arrivals.whole, record.arrivals.frame_bytes)


def _by_path(
    record: Record, counted: NDArray[np.bool_], weights: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    arrivals = record.arrivals
    index = arrivals.queue_pair[counted] * (PATH_STAMPS + 1) + arrivals.path_stamp[counted]
    size = len(record.pairs) * (PATH_STAMPS + 1)
    # bincount sums in float64: exact below 2**53 bytes.
    found = np.bincount(index, None if weights is None else weights[counted], size)
    return found.astype(np.int64).reshape(-1, PATH_STAMPS + 1)


def paths_agree(record: Record, stamps: NDArray[np.uint8]) -> bool:
    """Tell whether switches and receivers counted the same packets on every path.

    Packets of a queue pair that a stamping switch sent down a path are those received, whole or
    trimmed, with its stamp and those dropped after it, which carry some stamp: so no path may
    show more received than sent, and all together exactly the later drops.

    Args:
        record: the run.
        stamps: (ports,) what each port writes.
    """
    topology, pairs = record.topology, record.pairs
    tops = _top_roles(topology, pairs)
    passed = (record.flow_ports["offered_packets"] - record.flow_ports["dropped_packets"]).astype(
        np.int64
    )
    dropped = record.flow_ports["dropped_packets"].astype(np.int64)
    sent = np.zeros((len(pairs), PATH_STAMPS + 1), np.int64)
    later = np.zeros(len(pairs), np.int64)
    for role in (Role.SPINE, Role.SUPER_SPINE):
        rows = tops == role
        from_top = np.zeros(len(stamps), bool)
        below = np.zeros(len(stamps), bool)
        for link in topology.links:
            from_top[link.down_port] = link.upper.role is role
            below[link.down_port] = link.upper.tier < _TIER[role]
        for stamp in np.unique(stamps[from_top]):
            down = from_top & (stamps == stamp)
            sent[rows, stamp] = passed[np.ix_(rows, down)].sum(axis=1)
        later[rows] = dropped[np.ix_(rows, below)].sum(axis=1)
    received = _by_path(record, record.arrivals.known)
    received[:, 0] = 0
    left = sent - received
    # What no flow is charged with: full rings, queues of dead links, switches without a route,
    # packets that came damaged.
    link_down = link_down_packets(record.ports).sum()
    other = record.senders.ring_dropped + int(link_down) + record.no_route
    other += int(record.ports["icrc_errors"].sum())
    missing = int(left.sum() - later.sum())
    return bool((left >= 0).all()) and 0 <= missing <= other


_TIER = {Role.SPINE: 2, Role.SUPER_SPINE: 3}


def _top_roles(topology: Topology, pairs: QueuePairs) -> NDArray[np.object_]:
    """Return (queue pairs,) the role of the highest switch on each one's way."""
    source = pairs.source // topology.hosts_per_leaf
    destination = pairs.destination // topology.hosts_per_leaf
    roles = np.full(len(pairs), Role.SUPER_SPINE, object)
    roles[source // topology.leaves == destination // topology.leaves] = Role.SPINE
    roles[source == destination] = Role.LEAF
    return roles


@dataclass(frozen=True)
class PathCheck:
    """Prediction against measurement.

    Attributes:
        matched: (queue pairs,) bool; False also for those not checked.
        checked: (queue pairs,) bool, those that sent something; with faults, of which something
            arrived while the routes were settled.
        after_repair: of those, how many also with dead links that all switches had left.
    """

    matched: NDArray[np.bool_]
    checked: NDArray[np.bool_]
    after_repair: int = 0


def check_prediction(record: Record) -> PathCheck | None:
    """Compare the paths that queue pairs took with those predicted; None when there are none."""
    if record.settled:
        return check_settled(record)
    return None if record.predicted is None else check_undisturbed(record)


def check_settled(record: Record) -> PathCheck:
    """Compare the path stamps of data with those predicted, while routes were settled.

    Only packets that were sent and arrived in such a time count. A stamp names the highest switch
    of a path: all of the path but for parallel links.
    """
    checked, strayed, after_repair = np.zeros((3, len(record.pairs)), bool)
    arrivals, data = record.arrivals, record.data
    data &= arrivals.send_ns > 0  # too short a payload has no room for the time
    for settled in record.settled:
        within = data & (arrivals.send_ns >= settled.begin_ns)
        within &= arrivals.arrival_ns < settled.end_ns
        pair = arrivals.queue_pair[within]
        checked[pair] = True
        after_repair[pair] |= settled.repaired
        strayed[pair[arrivals.path_stamp[within] != settled.stamps[pair]]] = True
    return PathCheck(checked & ~strayed, checked, int(after_repair.sum()))


def check_undisturbed(record: Record) -> PathCheck:
    """Compare the ports that counted each queue pair with those predicted.

    A queue pair whose packets were all dropped on the way is compared as far as it got.
    """
    assert record.predicted is not None
    seen = record.flow_ports["offered_packets"] > 0
    dropped_all = record.flow_ports["offered_packets"] == record.flow_ports["dropped_packets"]
    expected = np.zeros_like(seen)
    rows = np.arange(len(record.pairs))
    alive = np.ones(len(rows), bool)
    for hop in range(record.predicted.shape[1]):
        port = record.predicted[:, hop]
        there = alive & (port >= 0)
        expected[rows[there], port[there]] = True
        ended = there.copy()
        ended[there] = (seen & dropped_all)[rows[there], port[there]]
        alive &= ~ended
    checked = record.senders.sent > 0
    return PathCheck((seen == expected).all(axis=1) & checked, checked)
