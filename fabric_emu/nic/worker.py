"""A NIC worker: one process per core that owns the rings of many hosts.

``traffic.Traffic`` has it forked by the nursery, tells it its plan over a socket, and when to
start and stop. All hosts of a worker are served batch by batch.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from fabric_emu.errors import FabricError, RunFailed
from fabric_emu.net import namespaces
from fabric_emu.nic.order import OrderCounter, OrderPlan
from fabric_emu.nic.ring import Received, TransmitRing
from fabric_emu.nic.rings import ReceiveRings
from fabric_emu.nic.schedule import Schedule
from fabric_emu.processes import NIC_PRIORITY
from fabric_emu.wire.decode import decode
from fabric_emu.wire.template import FrameTemplates
from fabric_emu.wire.udp import UdpColumns

LAG_BIN_S = 1e-4
LEAST_REST_S = 1e-4
_LAG_BINS = 20_000
_LOOP_BINS = 2_000


@dataclass(frozen=True)
class Port:
    """A host's NIC port that a worker opens rings on."""

    namespace: str
    interface: str


@dataclass(frozen=True)
class Stream:
    """What a worker sends in one address family.

    Attributes:
        schedule: of all flows; ``schedule.host`` indexes ``ports``.
        templates: one row per queue pair.
        ports: NIC ports that send.
        transmit_slots: of each port's ring.
        batch: most packets a port is given at once.
        queue_pairs: (rows of templates,) the run's number of each queue pair.
    """

    schedule: Schedule
    templates: FrameTemplates
    ports: tuple[Port, ...]
    transmit_slots: int
    batch: int
    queue_pairs: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """Everything a worker is to do.

    Attributes:
        cpu: processor it is pinned to; None leaves it free.
        streams: what it sends, by address family.
        receivers: NIC ports it listens on.
        receive_slots: of each listening ring.
        tick_s: rest between two rounds; 0 spins.
        order: to count late packets by while they come; None does not.
        receive_program: see ``ReceiveRing``; the worker inherits the descriptor.
    """

    cpu: int | None
    streams: tuple[Stream, ...]
    receivers: tuple[Port, ...]
    receive_slots: int
    tick_s: float
    order: OrderPlan | None = None
    receive_program: int | None = None

    def open(self, stack: contextlib.ExitStack) -> Worker:
        """Return the worker, its rings open."""
        return Worker(self, stack)


@dataclass
class Report:
    """What a worker did and saw.

    Attributes:
        sent: per stream, (flows,) packets handed to the kernel.
        unsent: packets still in the rings when the worker stopped.
        columns: decoded headers of everything received.
        lengths: (n,) frame lengths.
        arrival_ns: (n,) int64, CLOCK_REALTIME.
        receiver: (n,) index into the plan's receivers.
        ring_dropped: frames lost in full receive rings.
        lag: histogram of how late packets were handed over, bins of ``LAG_BIN_S``.
        loops: histogram of the length of a round, bins of ``LAG_BIN_S``.
        last_send_s: when the last packet was handed over, after the start.
        busy_s, wall_s: time spent in rounds, and between start and stop.
    """

    sent: list[NDArray[np.int64]] = field(default_factory=list)
    unsent: int = 0
    columns: UdpColumns | None = None
    lengths: NDArray[np.uint32] | None = None
    arrival_ns: NDArray[np.int64] | None = None
    receiver: NDArray[np.int32] | None = None
    ring_dropped: int = 0
    lag: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_LAG_BINS, np.int64))
    loops: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_LOOP_BINS, np.int64))
    last_send_s: float = 0.0
    busy_s: float = 0.0
    wall_s: float = 0.0


class Sender:
    """Sends one stream by its schedule."""

    def __init__(self, stream: Stream, rings: list[TransmitRing], report: Report) -> None:
        self._stream = stream
        self._schedule = stream.schedule
        self._rings = rings
        self._report = report
        self.sent = np.zeros(len(self._schedule.host), np.int64)
        self._flows = np.arange(len(self.sent))
        self._draw = np.random.default_rng(self._schedule.seed)
        self._hosts = len(stream.ports)
        flows_per_host = np.bincount(self._schedule.host, minlength=self._hosts)
        self._first = np.concatenate(([0], np.cumsum(flows_per_host)[:-1]))
        self._most = np.maximum(stream.batch // flows_per_host, 1)[self._schedule.host]

    def finished(self) -> bool:
        """Tell whether every packet has been handed over."""
        return bool((self.sent >= self._schedule.total).all())

    def send(self, elapsed_s: float) -> None:
        """Hand over what is due, as far as the rings have room."""
        schedule = self._schedule
        count = np.minimum(schedule.due(elapsed_s) - self.sent, self._most)
        by_host = np.add.reduceat(count, self._first)
        wanted = by_host.tolist()
        for host, ring in enumerate(self._rings):
            if wanted[host] and not ring.room(wanted[host]):
                count[schedule.host == host] = 0
                wanted[host] = 0
        n = sum(wanted)
        if not n:
            return
        flow = np.repeat(self._flows, count)
        start = np.cumsum(count) - count
        k = np.arange(n) + np.repeat(self.sent - start, count)
        due_at = schedule.due_at(flow, k)
        order = np.lexsort((due_at, schedule.host[flow]))
        flow, k = flow[order], k[order]
        which, row, psn = schedule.queue_pair_of(flow, k)
        port = schedule.ports(flow, k, which, self._draw)
        headers, icrc = self._stream.templates.build(row, port, psn, time.time_ns())
        tail = icrc.view(np.uint8).reshape(-1, 4)
        at = 0
        for host, share in enumerate(wanted):
            if share:
                ring = self._rings[host]
                ring.put(headers[at : at + share], tail[at : at + share])
                ring.kick()
                at += share
        self.sent += count
        lag = np.clip((elapsed_s - due_at) / LAG_BIN_S, 0, _LAG_BINS - 1).astype(np.int64)
        least = int(lag.min())
        found = np.bincount(lag - least)  # of few bins: a batch was due within a short time
        self._report.lag[least : least + len(found)] += found
        self._report.last_send_s = elapsed_s


class Worker:
    """Opens the rings of a plan and serves them."""

    def __init__(self, plan: Plan, stack: contextlib.ExitStack) -> None:
        self._plan = plan
        self.report = Report()
        self._received: list[tuple[NDArray[np.int64], Received]] = []
        self._order = OrderCounter(plan.order, lambda rows, _: decode(rows)) if plan.order else None
        self._rings: list[TransmitRing] = []
        self._senders = []
        for stream in plan.streams:
            templates = stream.templates
            rings = []
            for inside, interface in places_of(stream.ports):
                with inside:
                    ring = TransmitRing(
                        interface,
                        templates.length,
                        templates.header_length,
                        bytes(templates.payload),
                        stream.transmit_slots,
                    )
                stack.callback(ring.close)
                rings.append(ring)
            self._rings += rings
            self._senders.append(Sender(stream, rings, self.report))
        self._receivers = ReceiveRings(
            places_of(plan.receivers), plan.receive_slots, stack, plan.receive_program
        )

    def serve(self, start_ns: int, connection: Connection) -> None:
        """Send and receive from ``start_ns`` (CLOCK_MONOTONIC) until told to stop."""
        report, tick = self.report, self._plan.tick_s
        told = False
        rounds = 0
        while True:
            elapsed = (time.monotonic_ns() - start_ns) * 1e-9
            if elapsed >= 0:
                for sender in self._senders:
                    sender.send(elapsed)
            self._receive()
            if self._order:
                self._order.advance(elapsed)
            rounds += 1
            if rounds % 16 == 0:
                if not told and all(sender.finished() for sender in self._senders):
                    told = True
                    connection.send("sent")
                if connection.poll():
                    break
            took = (time.monotonic_ns() - start_ns) * 1e-9 - elapsed
            report.busy_s += took if elapsed >= 0 else 0.0
            report.loops[min(int(took / LAG_BIN_S), _LOOP_BINS - 1)] += 1
            if tick:
                # A real-time process that never rests starves its parent and the kernel's threads.
                time.sleep(max(tick - took, LEAST_REST_S))
        self._receive()
        report.wall_s = (time.monotonic_ns() - start_ns) * 1e-9

    def _receive(self) -> None:
        while (taken := self._receivers.take()) is not None:
            self._received.append(taken)
            if self._order:
                self._order.take(taken[1])

    def finish(self) -> Report:
        """Decode what was received and return the report."""
        report = self.report
        if self._order:
            self._order.count()
        report.sent = [sender.sent for sender in self._senders]
        report.unsent = sum(ring.pending() for ring in self._rings)
        report.ring_dropped = self._receivers.dropped()
        if self._received:
            parts = [part for _, part in self._received]
            report.columns = decode(np.concatenate([part.headers for part in parts]))
            report.lengths = np.concatenate([part.lengths for part in parts])
            report.arrival_ns = np.concatenate([part.arrival_ns for part in parts])
            report.receiver = np.concatenate([ring for ring, _ in self._received]).astype(np.int32)
        return report


def places_of(
    ports: Iterable[Port],
) -> list[tuple[contextlib.AbstractContextManager[None], str]]:
    """Return for each port a context inside its namespace, and its interface's name."""
    return [(_inside(port), port.interface) for port in ports]


@contextlib.contextmanager
def _inside(port: Port) -> Iterator[None]:
    fd = os.open(namespaces.NETNS_DIR / port.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with namespaces.inside(fd):
            yield
    finally:
        os.close(fd)


def main(connection: Connection) -> None:
    """Serve one plan, told over the connection to the parent."""
    plan = connection.recv()
    with contextlib.ExitStack() as stack:
        try:
            if plan.cpu is not None:
                os.sched_setaffinity(0, {plan.cpu})
            # Other processes of the machine must not hold up a NIC; the kernel keeps a share of
            # each processor for them even so.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(NIC_PRIORITY))
            worker = plan.open(stack)
        except (FabricError, OSError) as error:
            connection.send(error)
            return
        gc.freeze()
        gc.disable()
        connection.send("ready")
        try:
            worker.serve(connection.recv(), connection)
            connection.recv()
            connection.send(worker.finish())
            connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the parent has given up
        except (OSError, MemoryError) as error:
            # An interface that was taken away or set down, or no memory for what has arrived.
            connection.send(RunFailed(f"a NIC worker failed: {error or 'out of memory'}"))
