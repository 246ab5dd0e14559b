"""The worker for messages: rings on one side, a transport on the other, round after round."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Ints, compiled
from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT
from fabric_emu.nic.formats import FrameFormat
from fabric_emu.nic.order import OrderCounter, OrderPlan
from fabric_emu.nic.rehearsal import rehearse_frames, rehearse_transport
from fabric_emu.nic.ring import Received
from fabric_emu.nic.rings import ReceiveRings, TransmitRings
from fabric_emu.nic.transport.packets import Kind, Packets, Rows
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.worker import (
    LAG_BIN_S,
    LEAST_REST_S,
    Port,
    Report,
    places_of,
)

_DATA, _PROBE = int(Kind.DATA), int(Kind.PROBE)
_LAG_BIN_NS = int(LAG_BIN_S * 1e9)

_REST_SHARE = 1 / 8
"""A real-time process that never rests starves its parent and the kernel's threads. One that has
run for 95 % of a second, interrupts and all, is stopped for the other 50 ms (sched_rt_runtime_us).
"""


@dataclass(frozen=True)
class MessagePlan:
    """Everything a worker of a message workload is to do.

    Attributes:
        cpu: processor it is pinned to; None leaves it free.
        ports: (hosts of this worker x planes) the NIC ports of each.
        hosts: (hosts of this worker,) their 0-based numbers in the fabric.
        total_hosts: hosts of the fabric.
        graph, space: all messages of the run, and their packets.
        frames: encodes and decodes.
        transport: makes this worker's transport.
        queue_frames: data frames that may wait in a NIC's queue.
        transmit_slots, receive_slots: of each ring.
        tick_s: rest between two rounds.
        trimmed_dscp, last_hop_dscp: what switches set on frames they trim.
        order: to count late packets by while they come; None does not.
        receive_program: see ``ReceiveRing``; the worker inherits the descriptor.
    """

    cpu: int | None
    ports: tuple[Port, ...]
    hosts: NDArray[np.int64]
    total_hosts: int
    graph: MessageGraph
    space: PacketSpace
    frames: FrameFormat
    transport: TransportRecipe
    queue_frames: int
    transmit_slots: int
    receive_slots: int
    tick_s: float
    trimmed_dscp: int
    last_hop_dscp: int
    order: OrderPlan | None = None
    receive_program: int | None = None

    def open(self, stack: contextlib.ExitStack) -> Messenger:
        """Return the worker, its rings open."""
        return Messenger(self, stack)


@dataclass
class MessageReport(Report):
    """What a worker of a message workload did and saw.

    Attributes:
        sent_frames: (2 x queue pairs,) frames handed to the kernel: data, then answers.
        started_s, finished_s: (messages,) see ``Ledger``.
        arrived_s: (packets,) likewise.
        counters: the transport's.
        failed: (queue pairs,) bool.
        noticed_s: (losses,) see ``Transport``.
        turnaround: histogram of the time from a frame's arrival to the round that handled it.
    """

    sent_frames: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    started_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    finished_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    arrived_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    counters: dict[str, int] = field(default_factory=dict)
    failed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    noticed_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))


class Messenger:
    """Opens the rings of a plan and runs its transport over them."""

    def __init__(self, plan: MessagePlan, stack: contextlib.ExitStack) -> None:
        self._plan = plan
        frames = plan.frames
        payload = bytes(frames.payload)
        self._transmit = TransmitRings(
            places_of(plan.ports),
            frames.length,
            frames.header_length,
            payload,
            plan.transmit_slots,
            stack,
        )
        self._receive = ReceiveRings(
            places_of(plan.ports), plan.receive_slots, stack, plan.receive_program
        )
        local = np.zeros(plan.total_hosts, bool)
        local[plan.hosts] = True
        self._planes = len(plan.ports) // len(plan.hosts)
        self._place = np.full(plan.total_hosts, -1, np.int64)
        self._place[plan.hosts] = np.arange(len(plan.hosts))
        self._transport = plan.transport.make(plan.graph, plan.space, local)
        self.report = MessageReport()
        self._sent = np.zeros(2 * plan.space.queue_pairs, np.int64)
        self._received: list[Received] = []
        self._order = OrderCounter(plan.order, frames.columns) if plan.order else None
        rehearse_transport(plan.transport, plan.space.payload)
        sending = np.flatnonzero(local[plan.space.source])
        if len(sending):
            rehearse_frames(frames, int(sending[0]))
        self._receive.take()
        self._send(Packets.none(), self._transmit.queued())

    def serve(self, start_ns: int, connection: Connection) -> None:
        """Run from ``start_ns`` (CLOCK_MONOTONIC) until told to stop."""
        report, tick = self.report, self._plan.tick_s
        told, rounds = False, 0
        while True:
            now = (time.monotonic_ns() - start_ns) * 1e-9
            if now >= 0:
                self._round(start_ns)
                if self._order:
                    self._order.advance(now)
            rounds += 1
            if rounds % 16 == 0:
                if not told and now > 0 and self._transport.finished():
                    told = True
                    connection.send("sent")
                if connection.poll():
                    break
            took = (time.monotonic_ns() - start_ns) * 1e-9 - now
            if now >= 0:
                report.busy_s += took
                report.loops[min(int(took / LAG_BIN_S), len(report.loops) - 1)] += 1
            if tick:
                time.sleep(max(tick - took, took * _REST_SHARE, LEAST_REST_S))
        report.wall_s = (time.monotonic_ns() - start_ns) * 1e-9

    def _round(self, start_ns: int) -> None:
        plan, transport = self._plan, self._transport
        arrived = self._receive.take()
        # Not before: what is taken must not have arrived before it was sent.
        now = (time.monotonic_ns() - start_ns) * 1e-9
        if arrived is not None:
            whole = arrived[1]
            self._received.append(whole)
            if self._order:
                self._order.take(whole)
            packets = plan.frames.reader.read(
                whole.headers, whole.lengths, plan.trimmed_dscp, plan.last_hop_dscp
            )
            transport.receive(packets, now)
            _note_lateness(whole.arrival_ns, time.time_ns(), self.report.lag)
        queued = self._transmit.queued()
        room = np.zeros(plan.total_hosts, np.int64)
        _note_room(queued, plan.queue_frames, self._planes, plan.hosts, room)
        out = transport.transmit(now, room)
        if not len(out):
            return
        self._send(out, queued)
        self.report.last_send_s = now

    def _send(self, out: Packets, queued: Ints) -> None:
        """Hand packets to the NICs' ports, whose queues hold so many frames."""
        rows, place = np.empty_like(out.rows), np.empty(len(out), np.int64)
        n = _by_port(
            out.rows,
            self._plan.space.source,
            self._plan.space.destination,
            self._place,
            self._planes,
            self._transmit.slots - queued,
            self._sent,
            rows,
            place,
        )
        built = self._plan.frames.writer.write(Packets(rows[:n]), time.time_ns())
        self._transmit.put(place[:n], built.rows, built.lengths, built.tails)

    def finish(self) -> MessageReport:
        """Return the report."""
        report, ledger = self.report, self._transport.ledger
        if self._order:
            self._order.count()
        report.sent_frames = self._sent
        report.unsent = self._transmit.pending()
        report.ring_dropped = self._receive.dropped()
        report.started_s, report.finished_s = ledger.started_s, ledger.finished_s
        report.arrived_s = ledger.arrived_s
        report.counters = dict(self._transport.counters)
        report.counters["duplicates"] = ledger.duplicates
        report.failed = self._transport.failed
        report.noticed_s = np.concatenate([np.empty(0), *self._transport.noticed_s])
        if self._received:
            whole = _joined(self._received)
            report.columns = self._plan.frames.columns(whole.headers, whole.lengths)
            report.lengths, report.arrival_ns = whole.lengths, whole.arrival_ns
        return report


@compiled
def _note_lateness(arrival_ns: Ints, now_ns: int, lag: Ints) -> None:
    """Count how late frames are handled, in bins of ``LAG_BIN_S``."""
    for each in arrival_ns:
        lag[min(max(now_ns - each, 0) // _LAG_BIN_NS, len(lag) - 1)] += 1


@compiled
def _note_room(queued: Ints, queue_frames: int, planes: int, hosts: Ints, room: Ints) -> None:
    """Add up (hosts,) how many data frames the NIC's ports may be given."""
    for port in range(len(queued)):
        room[hosts[port // planes]] += max(queue_frames - queued[port], 0)


@compiled
def _by_port(
    out: Rows,
    source: Ints,
    destination: Ints,
    place_of: Ints,
    planes: int,
    free: Ints,
    sent: Ints,
    rows: Rows,
    port: Ints,
) -> int:
    """Sort packets by the NIC port they leave by, each port's in their order, and count them.

    Answers to a flood may outrun a port's queue; what does not fit is not sent.

    Args:
        place_of: (hosts,) place of each among the worker's.
        free: (ports,) frames that fit.
        sent: (2 x queue pairs,) frames sent: data, then answers.
        rows, port: filled.

    Returns:
        How many were filled.
    """
    pairs = len(source)
    leaves_by = np.empty(len(out), np.int64)
    count = np.zeros(len(free) + 1, np.int64)
    for i in range(len(out)):
        row = out[i]
        pair = row.queue_pair
        forth = row.kind == _DATA or row.kind == _PROBE
        host = source[pair] if forth else destination[pair]
        each = place_of[host] * planes
        if planes > 1:
            each += (row.entropy - FIRST_SOURCE_PORT) % planes
        if count[each + 1] == free[each]:
            leaves_by[i] = -1
            continue
        leaves_by[i] = each
        count[each + 1] += 1
        sent[pair if forth else pairs + pair] += 1
    begin = np.cumsum(count)
    for i in range(len(out)):
        each = leaves_by[i]
        if each >= 0:
            rows[begin[each]] = out[i]
            port[begin[each]] = each
            begin[each] += 1
    return int(begin[-1])


def _joined(parts: list[Received]) -> Received:
    return Received(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
