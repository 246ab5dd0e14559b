"""The record of one run, as plain arrays: everything the measures read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.topology import Topology


@dataclass(frozen=True)
class Arrivals:
    """Every RoCEv2 packet that reached a host's receive ring, in order of arrival per host.

    Attributes:
        queue_pair: (n,) int64 row of the queue pair; -1 for one of no flow of the run.
        psn: (n,) int64, 24 bits.
        source_port: (n,) uint16.
        path_stamp: (n,) uint8.
        frame_bytes: (n,) int64.
        send_ns, arrival_ns: (n,) int64, CLOCK_REALTIME; a trimmed packet has no ``send_ns``.
        trimmed: (n,) bool, only the headers arrived: a switch has cut the packet.
        probe: (n,) bool, it asked whether a path works and carried no data.
    """

    queue_pair: NDArray[np.int64]
    psn: NDArray[np.int64]
    source_port: NDArray[np.uint16]
    path_stamp: NDArray[np.uint8]
    frame_bytes: NDArray[np.int64]
    send_ns: NDArray[np.int64]
    arrival_ns: NDArray[np.int64]
    trimmed: NDArray[np.bool_]
    probe: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n,) bool, of a queue pair of the run."""
        known: NDArray[np.bool_] = self.queue_pair >= 0
        return known

    @property
    def whole(self) -> NDArray[np.bool_]:
        """(n,) bool, of a queue pair of the run and not trimmed: delivered data."""
        return self.known & ~self.trimmed


@dataclass(frozen=True)
class Senders:
    """What the NIC workers did.

    Attributes:
        scheduled: packets the workload asked for.
        sent: (queue pairs,) int64, handed to the kernel.
        unsent: of those, still in a transmit ring at the end.
        ring_dropped: frames lost in full receive rings.
        lag_s: p50, p99 and max of how late packets were handed over.
        busy: largest share of its time that a worker spent working.
    """

    scheduled: int
    sent: NDArray[np.int64]
    unsent: int
    ring_dropped: int
    lag_s: tuple[float, float, float]
    busy: float


@dataclass(frozen=True)
class Settled:
    """A time in which every switch had the routes of the model.

    Attributes:
        begin_ns, end_ns: CLOCK_REALTIME; links change at the end.
        stamps: (queue pairs,) uint8, what packets sent and arrived in between must carry.
        repaired: whether links were dead and all switches had left them.
    """

    begin_ns: int
    end_ns: int
    stamps: NDArray[np.uint8]
    repaired: bool = False


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
        topology, pairs: what ran.
        data_pairs: the first so many queue pairs carry data, the others answers.
        closed_loop: whether transports reacted to what they saw; else packets went by schedule.
        needed: data packets asked for; in a closed loop those that arrived, each once.
        frame_bytes: of a full data frame.
        window_s: how long the hosts sent.
        payload_bytes: of every packet.
        queue_s: time the shortest switch queue takes to empty when full.
        ports: (ports,) structured counters at the end; see ``switch.ports``.
        flow_ports: (queue pairs, ports) structured counters at the end.
        no_route: packets that switches dropped because they had no route left.
        service: (ports,) share of its rate at which each port sent while all hosts were sending.
        predicted: (queue pairs, hops) ports of the predicted path, -1 at the end; None when the
            scheme is not hashed or predictions are not offered.
        senders, arrivals: what the NICs saw.
        one_path: whether every queue pair keeps to one path.
        settled: of a run with faults whose paths are predicted: the times between changes.
        altered: interfaces that were no longer set as built when the run ended.
    """

    topology: Topology
    pairs: QueuePairs
    data_pairs: int
    closed_loop: bool
    needed: int
    frame_bytes: int
    window_s: float
    payload_bytes: int
    queue_s: float
    ports: NDArray[np.void]
    flow_ports: NDArray[np.void]
    no_route: int
    service: NDArray[np.float64]
    predicted: NDArray[np.int32] | None
    senders: Senders
    arrivals: Arrivals
    one_path: bool = True
    settled: tuple[Settled, ...] = ()
    altered: int = 0

    @property
    def data(self) -> NDArray[np.bool_]:
        """(n,) bool, arrivals of data that came whole."""
        of_data = self.arrivals.queue_pair < self.data_pairs
        return self.arrivals.whole & of_data & ~self.arrivals.probe

    def efficiency(self) -> float:
        """Return the packets delivered over those offered; in a closed loop needed over sent."""
        if self.closed_loop:
            return self.needed / max(int(self.senders.sent[: self.data_pairs].sum()), 1)
        return int(np.count_nonzero(self.arrivals.whole)) / max(self.needed, 1)
