"""The fidelity verdict: whether a run's numbers can be trusted on this machine, and why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.paths import Conservation, PathCheck
from fabric_emu.measure.record import Record
from fabric_emu.measure.reordering import count_inversions
from fabric_emu.model.queue_pair import plane_of
from fabric_emu.model.scale import base_rtt_s as base_rtt_s
from fabric_emu.model.topology import PATH_STAMPS

SERVICE_TOLERANCE = 0.02
BUSY_LIMIT = 0.9

TURNAROUND_PACKETS = 4
"""A NIC's answer may take the time of so many full packets."""

QUEUE_SHARE = 0.25
"""A late sender makes up for it with a burst; a burst of this share of a queue does no harm."""

_SATURATED = 1.02

PAUSE_LIMIT_S = 0.05
"""What the kernel itself may take from a real-time process at a time, by default.

Source: Documentation/scheduler/sched-rt-group.rst, sched_rt_period_us less sched_rt_runtime_us.
"""


@dataclass(frozen=True)
class Check:
    """One check of the verdict.

    Attributes:
        name: what was checked.
        measured, limit: figures; ``measured`` within ``limit`` is ``ok``.
        ok: whether the check holds.
        reason: what a failure means, in a sentence.
    """

    name: str
    measured: float
    limit: float
    ok: bool
    reason: str


@dataclass(frozen=True)
class Fidelity:
    """The verdict of one run.

    Attributes:
        checks: all of them, failed or not.
    """

    checks: tuple[Check, ...]

    @property
    def trustworthy(self) -> bool:
        """True when every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def reasons(self) -> list[str]:
        """Why the run is doubtful; empty when it is not."""
        return [check.reason for check in self.checks if not check.ok]


def judge_fidelity(
    record: Record,
    packets: Conservation,
    paths_agree: bool,
    prediction: PathCheck | None,
    offered: NDArray[np.float64],
) -> Fidelity:
    """Return the verdict on a run.

    Args:
        record: the run.
        packets: where its packets went.
        paths_agree: whether switches and receivers agree on the paths.
        prediction: prediction against measurement; None when none was offered.
        offered: (ports,) offered loads.
    """
    return Fidelity(
        tuple(
            _checks(record, packets, paths_agree, prediction, offered),
        )
    )


def _checks(
    record: Record,
    packets: Conservation,
    paths_agree: bool,
    prediction: PathCheck | None,
    offered: NDArray[np.float64],
) -> Iterable[Check]:
    missing = abs(packets.unaccounted)
    yield Check(
        "conservation",
        missing,
        0,
        missing == 0,
        f"{missing} packets are neither delivered, dropped by a named reason, trimmed nor queued",
    )
    outside = record.senders.ring_dropped
    yield Check(
        "drops outside the fabric",
        outside,
        0,
        outside == 0,
        f"{outside} packets were lost in full receive rings, not in the fabric",
    )
    yield _turnaround(record) if record.closed_loop else _sender_lag(record)
    yield _longest_pause(record)
    yield Check(
        "links altered",
        record.altered,
        0,
        record.altered == 0,
        f"{record.altered} interfaces have GRO off or packet steering (RPS) on, against how they "
        "were built: two processors may serve one path and change its order",
    )
    short = packets.scheduled - packets.sent
    yield Check(
        "offered load sent",
        packets.sent / max(packets.scheduled, 1),
        1 - 1e-3,
        short <= 1e-3 * packets.scheduled or _over_line_rate(record),
        f"{short} of {packets.scheduled} packets were never sent: the senders fell behind",
    )
    if not record.closed_loop:
        yield _busy(record)
    yield _service(record, offered)
    yield _order(record)
    yield Check(
        "paths agree",
        float(paths_agree),
        1,
        paths_agree,
        "switches and receivers counted different packets on the paths",
    )
    if prediction is not None:
        checked = int(prediction.checked.sum())
        matched = int(prediction.matched.sum())
        yield Check(
            "predicted paths",
            matched,
            checked,
            matched == checked,
            f"{checked - matched} of {checked} queue pairs did not take the predicted path",
        )


def _sender_lag(record: Record) -> Check:
    late = record.senders.lag_s[1]
    rtt = base_rtt_s(record.topology, record.frame_bytes)
    allowed = max(rtt, QUEUE_SHARE * record.queue_s)
    return Check(
        "sender lag p99",
        late,
        allowed,
        late <= allowed,
        f"senders were {late * 1e3:.2f} ms late (p99), over {allowed * 1e3:.2f} ms: packets "
        "bunched up as the workload did not ask; this machine is too busy or the rate too high",
    )


def _busy(record: Record) -> Check:
    """A worker of transports starts its next round at once: what it cannot carry makes it late."""
    busy = record.senders.busy
    return Check(
        "worker busy share",
        busy,
        BUSY_LIMIT,
        busy <= BUSY_LIMIT,
        f"a NIC worker was busy {busy:.0%} of its time: this machine cannot carry the rate",
    )


def _turnaround(record: Record) -> Check:
    late = record.senders.lag_s[1]
    allowed = TURNAROUND_PACKETS * record.frame_bytes * 8 / record.topology.host_rate_bps
    return Check(
        "NIC turnaround p99",
        late,
        allowed,
        late <= allowed,
        f"NICs took {late * 1e3:.2f} ms (p99) to handle a packet, over {allowed * 1e3:.2f} ms, "
        f"the time of {TURNAROUND_PACKETS} packets: this machine is too busy or the rate too high",
    )


def _longest_pause(record: Record) -> Check:
    """One pause changes no percentile of a long run, but what it heaps up may fill every queue."""
    longest = record.senders.lag_s[2]
    return Check(
        "longest pause",
        longest,
        PAUSE_LIMIT_S,
        longest <= PAUSE_LIMIT_S,
        f"a NIC worker stood still for {longest * 1e3:.0f} ms: all its hosts were silent, and then "
        "sent in a burst",
    )


def _over_line_rate(record: Record) -> bool:
    """Tell whether the workload asks more of a host link than it carries; then some never go."""
    host_load = record.senders.scheduled * record.payload_bytes * 8 / record.window_s
    hosts = len(np.unique(record.pairs.source)) * record.topology.planes
    return host_load > hosts * record.topology.host_rate_bps


def _service(record: Record, offered: NDArray[np.float64]) -> Check:
    """Saturated ports must serve at their rate."""
    saturated = (offered > _SATURATED) & ~np.isnan(record.service)
    service = record.service[saturated]
    worst = float(np.abs(service - 1).max()) if len(service) else 0.0
    return Check(
        "service of saturated ports",
        worst,
        SERVICE_TOLERANCE,
        worst <= SERVICE_TOLERANCE,
        f"a saturated port served {worst:.1%} off its configured rate",
    )


def _order(record: Record) -> Check:
    """Packets of one queue pair and path must arrive in the order they were sent."""
    arrivals = record.arrivals
    data = record.data  # what is left of a trimmed packet overtakes others by right
    if record.closed_loop:
        data &= arrivals.send_ns > 0  # too short a payload has no room for the time
    group = arrivals.queue_pair[data] * (PATH_STAMPS + 1) + arrivals.path_stamp[data]
    planes = record.topology.planes
    if record.closed_loop and planes > 1:
        # Planes have the same stamps; a packet's entropy names its plane.
        group = group * planes + plane_of(arrivals.source_port[data], planes)
    sequence = arrivals.psn[data]
    if record.closed_loop:
        # A packet may be sent again: by the time of sending, those of one batch by their number.
        order = np.lexsort((sequence, arrivals.send_ns[data]))
        sequence = np.empty(len(order), np.int64)
        sequence[order] = np.arange(len(order))
    # With parallel links a stamp stands for several paths, unless every queue pair keeps to one.
    comparable = record.one_path or record.topology.links_per_pair == 1
    inversions = count_inversions(group, sequence) if comparable else 0
    return Check(
        "order on one path",
        inversions,
        0,
        inversions == 0,
        f"{inversions} packets overtook others on the same path: the emulator reordered them",
    )
