"""Reliable connection: in order or not at all, go-back-N, one NAK per gap; DCQCN on request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.congestion import CnpGate, Dcqcn, Pacer
from fabric_emu.nic.transport.base import Ints, Transport
from fabric_emu.nic.transport.packets import Kind, Packets
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
    Fidelity: packets of a batch are handled together; a NAK's place among the ACKs of one batch
    is kept per queue pair. No priority flow control: see the scheme's ``lossless``.
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
        # Responder.
        self.expected = np.zeros(n, np.int64)
        self._gap = np.zeros(n, bool)

    def acknowledged(self) -> Ints:
        """Return (queue pairs,) packets acknowledged."""
        return self.unacknowledged

    # Requester.

    def _data(self, now_s: float, room: Ints) -> Packets:
        window = self.unacknowledged + self._settings.window_packets
        count = np.minimum(self.ledger.limit, window) - self.next
        count[~self.sends | self.failed] = 0
        if self._pacer and self._dcqcn:
            self._dcqcn.advance(now_s)
            self._pacer.refill(self._dcqcn.rate_bps, now_s)
            count = np.minimum(count, self._pacer.allowance_packets(self.space.payload))
        pair, rank = self._arbitrate(count, room)
        psn = self.next[pair] + rank
        again = psn < self._highest[pair]
        sent = np.bincount(pair, minlength=self.space.queue_pairs)
        active = sent > 0
        idle = active & (self.next == self.unacknowledged)
        self._progress_s[idle] = now_s
        self.next += sent
        np.maximum(self._highest, self.next, out=self._highest)
        flat = self.space.flat(pair, psn)
        self._sent_s[flat] = now_s
        size = self.space.size_bytes[flat]
        if self._pacer and self._dcqcn and len(pair):
            self._pacer.spend(pair, size)
            self._dcqcn.on_sent(pair, size)
        self.counters["retransmitted"] += int(again.sum())
        self.counters["retransmitted_bytes"] += int(size[again].sum())
        return Packets.of(
            Kind.DATA, pair, psn=psn, entropy=self._source_port[pair], retransmission=again
        )

    def _on_ack(self, packets: Packets, now_s: float) -> None:
        pair = packets.queue_pair
        before = self.unacknowledged[pair]
        np.maximum.at(self.unacknowledged, pair, packets.psn + 1)
        moved = pair[self.unacknowledged[pair] > before]
        self._progress_s[moved] = now_s
        self._retries[moved] = 0
        np.maximum(self.next, self.unacknowledged, out=self.next)

    def _on_nak(self, packets: Packets, now_s: float) -> None:
        self.counters["nak"] += len(packets)
        self._on_ack(Packets.of(Kind.ACK, packets.queue_pair, psn=packets.psn - 1), now_s)
        # Go back; a NAK older than what is acknowledged since says nothing any more.
        pair = packets.queue_pair
        fresh = packets.psn >= self.unacknowledged[pair]
        self._note_loss(pair[fresh], packets.psn[fresh], now_s)
        np.minimum.at(self.next, pair[fresh], packets.psn[fresh])
        self._progress_s[pair[fresh]] = now_s

    def _on_cnp(self, packets: Packets, now_s: float) -> None:
        self.counters["cnp"] += len(packets)
        if self._dcqcn:
            self._dcqcn.on_cnp(packets.queue_pair, now_s)

    def _on_time(self, now_s: float) -> None:
        waiting = self.sends & ~self.failed & (self.unacknowledged < self.next)
        late = waiting & (now_s - self._progress_s > self._settings.timeout_s)
        if not late.any():
            return
        self.counters["timeouts"] += int(late.sum())
        self._note_loss(np.flatnonzero(late), self.unacknowledged[late], now_s)
        self._retries[late] += 1
        self.failed |= late & (self._retries > self._settings.retries)
        self.next[late] = self.unacknowledged[late]
        self._progress_s[late] = now_s

    def _note_loss(self, pair: Ints, psn: Ints, now_s: float) -> None:
        self.noticed_s.append(now_s - self._sent_s[self.space.flat(pair, psn)])

    # Responder.

    def _on_data(self, packets: Packets, now_s: float) -> None:
        whole = ~packets.trimmed
        self.counters["trimmed_received"] += int((~whole).sum())
        packets = packets.take(whole)
        order = np.argsort(packets.queue_pair, kind="stable")
        packets = packets.take(order)
        if self._cnp_gate and packets.marked.any():
            self._notify(packets, now_s)
        accepted = self._in_order(packets)
        self.counters["out_of_order_dropped"] += len(packets) - int(accepted.sum())
        if accepted.any():
            taken = packets.take(accepted)
            flat = self.space.flat(taken.queue_pair, taken.psn)
            self.ledger.arrive(flat, now_s)
            self._acknowledge(taken, flat)

    def _in_order(self, packets: Packets) -> NDArray[np.bool_]:
        """Return (n,) which packets the responder takes; asks again for what is missing.

        Rounds: each takes the run of expected packets that every queue pair's arrivals begin
        with, and skips from a gap to where it closes; a batch seldom needs more than two.
        """
        pair, psn = packets.queue_pair, packets.psn
        n = len(pair)
        accepted = np.zeros(n, bool)
        pairs, start = np.unique(pair, return_index=True)
        end = np.r_[start[1:], n]
        at = start.copy()
        group = np.repeat(np.arange(len(pairs)), end - start)
        row = np.arange(n)
        while True:
            due = psn == self.expected[pair] + row - at[group]
            stop = np.where(due | (row < at[group]), end[group], row)
            first_bad = np.minimum.reduceat(stop, start) if n else at
            run = (row >= at[group]) & (row < first_bad[group])
            accepted |= run
            self.expected[pairs] += first_bad - at
            self._gap[pairs[first_bad > at]] = False
            open_ = first_bad < end
            if not open_.any():
                return accepted
            missing = psn[np.minimum(first_bad, n - 1)] > self.expected[pairs]
            self._ask_again(pairs[open_ & missing])
            self._repeat_ack(pairs[open_ & ~missing])
            # On to where what is expected comes, if it does.
            again = (psn == self.expected[pair]) & (row > first_bad[group])
            at = np.minimum.reduceat(np.where(again, row, end[group]), start)

    def _ask_again(self, pairs: Ints) -> None:
        pairs = pairs[~self._gap[pairs]]
        if len(pairs):
            self._gap[pairs] = True
            self.counters["nak_sent"] += len(pairs)
            self._answer(self._control(Kind.NAK, pairs, self.expected[pairs]))

    def _repeat_ack(self, pairs: Ints) -> None:
        """Answer duplicates: their ACK was lost."""
        pairs = pairs[self.expected[pairs] > 0]
        if len(pairs):
            self._answer(self._control(Kind.ACK, pairs, self.expected[pairs] - 1))

    def _acknowledge(self, taken: Packets, flat: Ints) -> None:
        every = self._settings.ack_every
        if every > 1:
            space = self.space
            ends = taken.psn + 1 == space.part_end[space.part_of[flat]]
            taken = taken.take(((taken.psn + 1) % every == 0) | ends)
        if len(taken):
            self._answer(self._control(Kind.ACK, taken.queue_pair, taken.psn))

    def _notify(self, packets: Packets, now_s: float) -> None:
        assert self._cnp_gate
        pair = packets.queue_pair[packets.marked]
        self.counters["marked_received"] += len(pair)
        pair = pair[self._cnp_gate.pass_(pair, now_s)]
        if len(pair):
            self.counters["cnp_sent"] += len(pair)
            self._answer(self._control(Kind.CNP, pair, np.zeros(len(pair), np.int64)))

    def _control(self, kind: Kind, pairs: Ints, psn: Ints) -> Packets:
        return Packets.of(kind, pairs, psn=psn, entropy=self._source_port[pairs])
