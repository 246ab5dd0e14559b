"""What there is to do in a run: the two kinds of workload, each with its plans and its record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.completion import complete, noticed_figures
from fabric_emu.measure.goodput import goodput
from fabric_emu.measure.ideal import Framing, IdealFabric
from fabric_emu.measure.record import Arrivals, Record, Senders, Settled
from fabric_emu.measure.training_cost import training_cost
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.queue_pair import QPN_BASE, QueuePairs
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.workload import OpenLoop
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.message_plan import MessagePlanner, packet_space
from fabric_emu.nic.messenger import MessagePlan, MessageReport
from fabric_emu.nic.plan import Planner
from fabric_emu.nic.worker import LAG_BIN_S, Plan, Report
from fabric_emu.predict.placement import Placement


@dataclass(frozen=True)
class Ran:
    """What a run leaves behind once its fabric is gone.

    Attributes:
        plans, reports: of the workers, in the same order.
        ports, flow_ports, queue_s, no_route, service, predicted, settled, altered: see ``Record``.
    """

    plans: Sequence[Any]
    reports: Sequence[Report]
    ports: NDArray[np.void]
    flow_ports: NDArray[np.void]
    queue_s: float
    no_route: int
    service: NDArray[np.float64]
    predicted: NDArray[np.int32] | None
    settled: tuple[Settled, ...]
    altered: int


class Job(ABC):
    """A workload under a scheme.

    Attributes:
        scheme: the scheme as it runs.
        pairs: every queue pair whose packets the switches count.
        duration: how long the hosts send, at most.
        grace: how much longer to wait for them.
        steady: whether the load is the same all the time.
    """

    pairs: QueuePairs
    duration: float
    grace: float
    steady: bool

    def __init__(self, scenario: Scenario, scheme: Scheme, seed: int) -> None:
        self._scenario, self.scheme, self._seed = scenario, scheme, seed

    @property
    @abstractmethod
    def queue_pairs(self) -> int:
        """How many queue pairs the switches count."""

    @property
    @abstractmethod
    def data_pairs(self) -> int:
        """How many of them carry data: the first ones."""

    @abstractmethod
    def plans(self, fabric: Fabric, placement: Placement | None) -> Sequence[Any]:
        """Return the workers' plans."""

    @abstractmethod
    def record(self, ran: Ran) -> Record:
        """Return the record of the run."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return what the summary holds beyond the record's figures; after ``record``."""

    def messages(self) -> dict[str, NDArray[Any]]:
        """Return when every message began and how long it took; after ``record``."""
        return {}


def job_of(scenario: Scenario, scheme: Scheme, seed: int, base_delay_s: float = 0.0) -> Job:
    """Return a scenario's workload under a scheme as a job.

    Args:
        scenario, scheme, seed: what to run.
        base_delay_s: of every message, beside serialisation; see ``IdealFabric``.
    """
    if isinstance(scenario.workload, Messages):
        return MessageJob(scenario, scheme, seed, base_delay_s)
    return OpenLoopJob(scenario, scheme, seed)


class OpenLoopJob(Job):
    """Flows at constant rates."""

    grace, steady = 2.0, True

    def __init__(self, scenario: Scenario, scheme: Scheme, seed: int) -> None:
        super().__init__(scenario, scheme, seed)
        self._workload = cast(OpenLoop, scenario.workload)
        self._flows = self._workload.expand(scenario.topology, seed)
        self.pairs = QueuePairs.of(self._flows, scheme.nic, seed)
        self.duration = self._workload.duration
        self._entropy = ""

    @property
    def queue_pairs(self) -> int:
        """How many queue pairs the switches count."""
        return len(self.pairs)

    @property
    def data_pairs(self) -> int:
        """How many of them carry data: all."""
        return len(self.pairs)

    def plans(self, fabric: Fabric, placement: Placement | None) -> Sequence[Any]:
        """Return the workers' plans."""
        planner = Planner(fabric, self._workload, self._flows, self.pairs, placement)
        self._entropy = planner.entropy
        return planner.plans()

    def record(self, ran: Ran) -> Record:
        """Return the record of the run."""
        plans = cast("Sequence[Plan]", ran.plans)
        pairs = len(self.pairs)
        sent = np.zeros(pairs, np.int64)
        scheduled = 0
        for plan, report in zip(plans, ran.reports, strict=True):
            for stream, count in zip(plan.streams, report.sent, strict=True):
                by_pair = stream.schedule.sent_by_queue_pair(count)
                sent[stream.queue_pairs[stream.schedule.queue_pair]] += by_pair
                scheduled += int(stream.schedule.total.sum())
        lengths = [stream.templates.length for plan in plans for stream in plan.streams]
        return Record(
            self._scenario.topology,
            self.pairs,
            data_pairs=self.data_pairs,
            closed_loop=False,
            needed=scheduled,
            frame_bytes=max(lengths),
            window_s=self.duration,
            payload_bytes=self._workload.payload,
            queue_s=ran.queue_s,
            ports=ran.ports,
            flow_ports=ran.flow_ports,
            no_route=ran.no_route,
            service=ran.service,
            predicted=ran.predicted,
            senders=_senders(ran.reports, sent, scheduled),
            arrivals=_arrivals(ran.reports, pairs, self.scheme),
            one_path=self.scheme.hashed,
            settled=ran.settled,
            altered=ran.altered,
        )

    def figures(self) -> dict[str, Any]:
        """Return how source ports were chosen."""
        return {"entropy": self._entropy}


class MessageJob(Job):
    """Messages that wait for each other, over a transport."""

    grace, steady = 0.0, False

    def __init__(
        self, scenario: Scenario, scheme: Scheme, seed: int, base_delay_s: float = 0.0
    ) -> None:
        super().__init__(scenario, scheme.with_messages(), seed)
        self._base_delay_s = base_delay_s
        self._workload = cast(Messages, scenario.workload)
        self._graph = self._workload.graph(scenario.topology, seed)
        self.duration = self._workload.duration
        nic = scheme.nic
        self._space = packet_space(
            self._workload, self._graph, nic.queue_pairs, nic.round_robin == "split"
        )
        self._figures: dict[str, Any] = {}
        self._messages: dict[str, NDArray[Any]] = {}

    @property
    def queue_pairs(self) -> int:
        """How many queue pairs the switches count: data and answers apart."""
        return 2 * self._space.queue_pairs

    @property
    def data_pairs(self) -> int:
        """How many of them carry data."""
        return self._space.queue_pairs

    def plans(self, fabric: Fabric, placement: Placement | None) -> Sequence[Any]:
        """Return the workers' plans."""
        planner = MessagePlanner(fabric, self._workload, self._graph, self._space, placement)
        self.pairs = planner.pairs
        return planner.plans()

    def record(self, ran: Ran) -> Record:
        """Return the record of the run."""
        plans = cast("Sequence[MessagePlan]", ran.plans)
        reports = cast("Sequence[MessageReport]", ran.reports)
        space, topology = self._space, self._scenario.topology
        sent = np.sum([report.sent_frames for report in reports], axis=0)
        started = _first_of([report.started_s for report in reports])
        finished = _first_of([report.finished_s for report in reports])
        # Faults are undone before the queues drain: what comes then came for that.
        finished[finished > self.duration] = np.nan
        end = float(np.nanmax(finished, initial=0.0))
        mrc = plans[0].transport.kind == "mrc"
        framing = Framing.rocev2(space.payload, topology.families[0], reth_in_every_packet=mrc)
        ideal = IdealFabric(topology, framing, self._base_delay_s)
        completion = complete(self._graph, started, finished, ideal)
        counters: dict[str, int] = {}
        for report in reports:
            for name, count in report.counters.items():
                counters[name] = counters.get(name, 0) + count
        failed = np.any([report.failed for report in reports], axis=0)
        arrived = _first_of([report.arrived_s for report in reports])
        self._messages = completion.columns() | goodput(arrived, space.size_bytes)
        self._figures = {
            **completion.summary(),
            "retransmitted": counters.get("retransmitted", 0),
            "retransmitted_bytes": counters.get("retransmitted_bytes", 0),
            "nak": counters.get("nak", 0),
            "sack": counters.get("sack", 0),
            "cnp": counters.get("cnp", 0),
            "credits": counters.get("credits", 0),
            "timeouts": counters.get("timeouts", 0),
            "probes": counters.get("probe", 0),
            "loss_noticed": noticed_figures(np.concatenate([r.noticed_s for r in reports])),
            "base_rtt": plans[0].transport.base_rtt_s,
            "queue_pairs_failed": int(failed.sum()),
            "transport": {name: counters[name] for name in sorted(counters)},
        }
        workload, faults = self._workload, self._scenario.faults
        if faults and workload.timeout:
            self._figures["training"] = training_cost(
                completion.iteration_end_s,
                first_fault_s=min(fault.at for fault in faults),
                end_s=self.duration,
                timeout_s=workload.timeout,
                checkpoint_every=workload.checkpoint_every or workload.iterations,
                queue_pairs_failed=int(failed.sum()),
                gpus=workload.gpus,
            )
        window = end or self.duration
        return Record(
            topology,
            self.pairs,
            data_pairs=self.data_pairs,
            closed_loop=True,
            needed=int((~np.isnan(arrived)).sum()),
            frame_bytes=plans[0].frames.length,
            window_s=window,
            payload_bytes=space.payload,
            queue_s=ran.queue_s,
            ports=ran.ports,
            flow_ports=ran.flow_ports,
            no_route=ran.no_route,
            service=ran.service,
            predicted=ran.predicted,
            senders=_senders(ran.reports, sent, int(sent.sum())),
            arrivals=_arrivals(ran.reports, 2 * space.queue_pairs, self.scheme),
            one_path=self.scheme.hashed,
            settled=ran.settled,
            altered=ran.altered,
        )

    def figures(self) -> dict[str, Any]:
        """Return completion, bandwidth, and what the transports did."""
        return self._figures

    def messages(self) -> dict[str, NDArray[Any]]:
        """Return when every message and collective began and how long it took."""
        return self._messages


def _first_of(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return each row's number from whichever worker has one."""
    found = columns[0].copy()
    for column in columns[1:]:
        missing = np.isnan(found)
        found[missing] = column[missing]
    return found


def _senders(reports: Sequence[Report], sent: NDArray[np.int64], scheduled: int) -> Senders:
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


def _arrivals(reports: Sequence[Report], pairs: int, scheme: Scheme) -> Arrivals:
    columns = [report.columns for report in reports if report.columns is not None]

    def joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
        return np.concatenate([np.asarray(p).astype(dtype) for p in parts] or [np.empty(0, dtype)])

    pair = joined([c.destination for c in columns], np.int64) - QPN_BASE
    ours = joined([c.found for c in columns], bool) & (pair >= 0) & (pair < pairs)
    seen = [report for report in reports if report.columns is not None]
    trimming = scheme.switch.trimming
    trimmed = np.array(trimming.trimmed_dscps if trimming else (), np.uint8)
    return Arrivals(
        np.where(ours, pair, -1),
        joined([c.psn for c in columns], np.int64),
        joined([c.source_port for c in columns], np.uint16),
        joined([c.path_stamp for c in columns], np.uint8),
        joined([report.lengths for report in seen], np.int64),
        joined([c.send_ns for c in columns], np.int64),
        joined([report.arrival_ns for report in seen], np.int64),
        np.isin(joined([c.dscp for c in columns], np.uint8), trimmed),
        joined([c.probe for c in columns], bool),
    )
