"""Reliable connection: in order or not at all, go-back-N, one NAK per gap; DCQCN on request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.congestion.dcqcn import CnpGate, Dcqcn
from fabric_emu.nic.congestion.pacer import Pacer
from fabric_emu.nic.transport import rc_loops as loops
from fabric_emu.nic.transport.base import Ints, Transport
from fabric_emu.nic.transport.packets import DTYPE, Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace


@dataclass(frozen=True)
class RcSettings:
    """Parameters of a reliable connection.

    Attributes:
        window_packets: unacknowledged packets of a queue pair, at most.
        timeout_s: without progress, until all unacknowledged packets are sent again.
        retries: timeouts in a row after which the queue pair fails.
        ack_every: packets per acknowledgement; the last of a message is always acknowledged.
    """

    window_packets: int
    timeout_s: float
    retries: int = 7
    ack_every: int = 1


class Rc(Transport):
    """RoCEv2 reliable connections.

    A responder that misses a packet answers with one NAK that names it and drops whatever else
    comes until it arrives; the requester then sends everything again from there.

    Args:
        source_port: (queue pairs,) of data.
        dcqcn: rate control of the requesters; None sends as the window allows.
        cnp_gate: limits how often the responders notify congestion; None with ``dcqcn`` None.

    Source: InfiniBand Architecture Specification, volume 1, chapter 9; Linux
    drivers/infiniband/sw/rxe/rxe_resp.c.
    Fidelity: no priority flow control: see the scheme's ``lossless``.
    """

    def __init__(
        self,
        graph: MessageGraph,
        space: PacketSpace,
        local: NDArray[np.bool_],
        source_port: NDArray[np.uint16],
        settings: RcSettings,
        dcqcn: Dcqcn | None = None,
        cnp_gate: CnpGate | None = None,
    ) -> None:
        super().__init__(graph, space, local)
        n = space.queue_pairs
        self._settings = settings
        self._source_port = source_port
        self._dcqcn, self._cnp_gate = dcqcn, cnp_gate
        self._pacer = Pacer(n, burst_bytes=4 * space.payload) if dcqcn else None
        # Requester.
        self.unacknowledged = np.zeros(n, np.int64)
        self._highest = np.zeros(n, np.int64)
        self._progress_s = np.zeros(n)
        self._retries = np.zeros(n, np.int64)
        self._sent_s = np.zeros(space.packets)
        self._unlimited = np.full(n, 1 << 62)
        # Responder.
        self.expected = np.zeros(n, np.int64)
        self._gap = np.zeros(n, bool)

    def acknowledged(self) -> Ints:
        """Return (queue pairs,) packets acknowledged."""
        return self.unacknowledged

    # Requester.

    def _data(self, now_s: float, room: Ints) -> Packets:
        allowance = self._unlimited
        if self._pacer and self._dcqcn:
            self._dcqcn.advance(now_s)
            self._pacer.refill(self._dcqcn.rate_bps, now_s)
            allowance = self._pacer.allowance_packets(self.space.payload)
        self._turn += 1
        most = int(room.sum())
        pair, rows = np.empty(most, np.int64), np.zeros(most, DTYPE)
        n = loops.take(
            now_s,
            self.ledger.limit,
            allowance,
            self._settings.window_packets,
            room,
            self._by_host,
            self.space.source,
            self._turn,
            self.failed,
            self.space.first,
            self._source_port,
            self.next,
            self._highest,
            self.unacknowledged,
            self._progress_s,
            self._sent_s,
            pair,
            rows,
        )
        if not n:
            return Packets.none()
        pair, packets = pair[:n], Packets(rows[:n])
        size = self.space.size_bytes[self.space.flat(pair, packets.psn)]
        if self._pacer and self._dcqcn:
            self._pacer.spend(pair, size)
            self._dcqcn.on_sent(pair, size)
        again = packets.retransmission
        self.counters["retransmitted"] += int(np.count_nonzero(again))
        self.counters["retransmitted_bytes"] += int(size[again].sum())
        return packets

    def _on_ack(self, packets: Packets, now_s: float) -> None:
        loops.acknowledged(
            packets.rows,
            now_s,
            self.next,
            self._highest,
            self.unacknowledged,
            self._progress_s,
            self._retries,
        )

    def _on_nak(self, packets: Packets, now_s: float) -> None:
        self.counters["nak"] += len(packets)
        self._on_ack(packets, now_s)
        waited_s = np.empty(len(packets))
        n = loops.go_back(
            packets.rows,
            now_s,
            self.space.first,
            self.next,
            self._highest,
            self.unacknowledged,
            self._progress_s,
            self._sent_s,
            waited_s,
        )
        self.noticed_s.append(waited_s[:n])

    def _on_cnp(self, packets: Packets, now_s: float) -> None:
        self.counters["cnp"] += len(packets)
        if self._dcqcn:
            self._dcqcn.on_cnp(packets.queue_pair, now_s)

    def _on_time(self, now_s: float) -> None:
        late = loops.overdue(
            now_s - self._settings.timeout_s,
            self._by_host,
            self.failed,
            self.next,
            self.unacknowledged,
            self._progress_s,
        )
        if not len(late):
            return
        self.counters["timeouts"] += len(late)
        sent_s = self._sent_s[self.space.flat(late, self.unacknowledged[late])]
        self.noticed_s.append(now_s - sent_s)
        self._retries[late] += 1
        self.failed[late] |= self._retries[late] > self._settings.retries
        self.next[late] = self.unacknowledged[late]
        self._progress_s[late] = now_s

    # Responder.

    def _on_data(self, packets: Packets, now_s: float) -> None:
        if self._cnp_gate:
            self._notify(packets, now_s)
        answers = np.zeros(len(packets), DTYPE)
        n, naks, dropped, trimmed = loops.respond(
            packets.rows,
            now_s,
            self._settings.ack_every,
            self.space.first,
            self.space.part_end,
            *self.ledger.arrivals,
            self._source_port,
            self.expected,
            self._gap,
            answers,
        )
        self.counters["nak_sent"] += naks
        self.counters["out_of_order_dropped"] += dropped
        self.counters["trimmed_received"] += trimmed
        if n:
            self._answer(Packets(answers[:n]))

    def _notify(self, packets: Packets, now_s: float) -> None:
        assert self._cnp_gate
        pair = packets.queue_pair[packets.marked & ~packets.trimmed]
        if not len(pair):
            return
        self.counters["marked_received"] += len(pair)
        pair = pair[self._cnp_gate.pass_(pair, now_s)]
        if len(pair):
            self.counters["cnp_sent"] += len(pair)
            self._answer(Packets.of(Kind.CNP, pair, entropy=self._source_port[pair]))
