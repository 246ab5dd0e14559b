"""Selective transports: packets in any order, each acknowledged, only lost ones sent again.

What MRC and Ultra Ethernet's RUD have in common; they differ in entropy, congestion control and
headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.entropy import EntropyPolicy
from fabric_emu.nic.transport.base import Ints, Transport
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace

BITMAP_BITS = 64
_LOOK = 512


class _State(IntEnum):
    """What a sender knows of a packet."""

    UNSENT = 0
    FLYING = 1
    ACKNOWLEDGED = 2
    LOST = 3


class CongestionControl(Protocol):
    """Says how much a queue pair may have in flight; rows may repeat everywhere."""

    def allowance(self, in_flight: Ints, backlog: Ints, now_s: float) -> Ints:
        """Return (queue pairs,) packets that may be sent now.

        Args:
            in_flight, backlog: (queue pairs,) packets sent and not answered; still to send.
            now_s: the time.
        """

    def on_sent(self, rows: Ints, backlog: Ints) -> Ints:
        """Note packets sent; return (n,) what each tells its receiver.

        Args:
            rows: (n,) queue pairs.
            backlog: (queue pairs,) packets still to send after these.
        """

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints,
        rtt_s: NDArray[np.float64],
        marked: NDArray[np.bool_],
        in_flight: Ints,
    ) -> None:
        """Note acknowledged packets; an unknown round trip is NaN."""

    def on_loss(self, rows: Ints, now_s: float, bytes_: Ints, in_flight: Ints) -> None:
        """Note packets lost."""

    def on_credit(self, rows: Ints, credit: Ints, now_s: float) -> None:
        """Note credit granted, in all since the start."""


@dataclass(frozen=True)
class SelectiveSettings:
    """Parameters of a selective transport.

    Attributes:
        timeout_s: a packet unacknowledged for so long is lost; doubled with each timeout in a
            row without progress.
        overtaken_s: so is one sent so long before a packet that has been acknowledged: longer
            than paths differ.
        retries: timeouts in a row after which the queue pair fails.
        ack_every: packets per acknowledgement; the last of a message is always acknowledged.
        reach_packets: how far ahead of the first missing packet a sender may go.
    """

    timeout_s: float
    overtaken_s: float
    retries: int = 10
    ack_every: int = 1
    reach_packets: int = 1024


class Selective(Transport):
    """Sprayed, selectively acknowledged queue pairs.

    Args:
        entropy: chooses the source port of each packet.
        congestion: limits what is in flight.
    """

    def __init__(
        self,
        graph: MessageGraph,
        space: PacketSpace,
        local: NDArray[np.bool_],
        settings: SelectiveSettings,
        entropy: EntropyPolicy,
        congestion: CongestionControl,
    ) -> None:
        super().__init__(graph, space, local)
        n = space.queue_pairs
        self._settings = settings
        self._entropy, self._congestion = entropy, congestion
        # Sender.
        self._state = np.zeros(space.packets, np.uint8)
        self._sent_s = np.zeros(space.packets)
        self._used = np.zeros(space.packets, np.int64)
        self._again = np.zeros(space.packets, bool)
        self._cumulative = np.zeros(n, np.int64)
        self._in_flight = np.zeros(n, np.int64)
        self._flight = np.empty(0, np.int64)
        self._lost = np.empty(0, np.int64)
        self._retries = np.zeros(n, np.int64)
        self._newest_s = np.full(n, -np.inf)
        # Receiver.
        self._first_missing = np.zeros(n, np.int64)
        self._highest_seen = np.zeros(n, np.int64)
        self._since_ack = np.zeros(n, np.int64)
        self.reach_max = 0
        self.rtt_min_s = np.inf

    def acknowledged(self) -> Ints:
        """Return (queue pairs,) packets acknowledged without a gap."""
        return self._cumulative

    # Sender.

    def _data(self, now_s: float, room: Ints) -> Packets:
        # Each once: a packet sent again may have been lost again since.
        self._lost = np.unique(self._lost[self._state[self._lost] == _State.LOST])
        start = np.searchsorted(self._lost, self.space.first)
        lost = np.diff(start)
        reach = self._cumulative + self._settings.reach_packets
        new = np.minimum(self.ledger.limit, reach) - self.next
        backlog = lost + np.maximum(new, 0)
        count = np.minimum(backlog, self._congestion.allowance(self._in_flight, backlog, now_s))
        count[~self.sends | self.failed] = 0
        pair, rank = self._arbitrate(count, room)
        if not len(pair):
            return Packets.none()
        again = rank < lost[pair]
        psn = self.next[pair] + rank - lost[pair]
        flat = self.space.flat(pair, psn)
        flat[again] = self._lost[start[pair[again]] + rank[again]]
        psn = flat - self.space.first[pair]
        self.next += np.bincount(pair[~again], minlength=len(self.next))
        value = self._entropy.choose(pair, now_s)
        self._state[flat] = _State.FLYING
        self._sent_s[flat] = now_s
        self._used[flat] = value
        self._flight = np.concatenate([self._flight, flat])
        self._again[flat[again]] = True
        sent = np.bincount(pair, minlength=len(self._in_flight))
        self._in_flight += sent
        told = self._congestion.on_sent(pair, backlog - sent)
        self.counters["retransmitted"] += int(again.sum())
        self.counters["retransmitted_bytes"] += int(self.space.size_bytes[flat[again]].sum())
        return Packets.of(
            Kind.DATA,
            pair,
            psn=psn,
            entropy=self._entropy.port(pair, value),
            value=told,
            retransmission=again,
        )

    def _on_sack(self, packets: Packets, now_s: float) -> None:
        self.counters["sack"] += len(packets)
        space = self.space
        pair = packets.queue_pair
        answered = space.flat(pair, packets.echo_psn)
        fresh = self._state[answered] != _State.ACKNOWLEDGED
        first = np.zeros(len(pair), bool)
        first[np.unique(answered, return_index=True)[1]] = True
        fresh &= first
        self._settle(np.concatenate([answered, self._covered(packets)]))
        rows = pair[fresh]
        if not len(rows):
            return
        flat = answered[fresh]
        marked = packets.echo_marked[fresh]
        # Of a packet sent twice nobody knows which copy is answered (Karn).
        first_sent = ~self._again[flat]
        np.maximum.at(self._newest_s, rows[first_sent], self._sent_s[flat[first_sent]])
        rtt = np.where(first_sent, now_s - self._sent_s[flat], np.nan)
        self.rtt_min_s = min(self.rtt_min_s, float(np.nanmin(rtt, initial=np.inf)))
        self._retries[rows] = 0
        size = space.size_bytes[flat]
        self._congestion.on_ack(rows, now_s, size, rtt, marked, self._in_flight)
        self._entropy.on_ack(rows, self._used[flat], marked)

    def _covered(self, packets: Packets) -> Ints:
        """Return the flat numbers of all packets that SACKs say have arrived."""
        space, pair = self.space, packets.queue_pair
        bits = np.unpackbits(
            packets.bitmap.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
        )
        row, bit = np.nonzero(bits)
        beyond = space.flat(pair[row], packets.psn[row] + bit)
        before = self._cumulative.copy()
        np.maximum.at(self._cumulative, pair, packets.psn)
        moved = np.nonzero(self._cumulative > before)[0]
        count = self._cumulative[moved] - before[moved]
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        below = np.repeat(space.flat(moved, before[moved]), count) + within
        return np.concatenate([beyond, below])

    def _settle(self, flat: Ints) -> None:
        """Mark packets as acknowledged."""
        flat = np.unique(flat)
        flying = flat[self._state[flat] == _State.FLYING]
        self._land(flying)
        self._state[flat] = _State.ACKNOWLEDGED

    def _land(self, flat: Ints) -> None:
        """Take packets, each named once, out of flight."""
        pair = self.space.part_queue_pair[self.space.part_of[flat]]
        self._in_flight -= np.bincount(pair, minlength=len(self._in_flight))

    def _lose(self, flat: Ints, now_s: float) -> None:
        """Mark those of the packets that were in flight as lost."""
        flat = np.unique(flat)
        flat = flat[self._state[flat] == _State.FLYING]
        self._land(flat)
        self.noticed_s.append(now_s - self._sent_s[flat])
        self._state[flat] = _State.LOST
        self._lost = np.concatenate([self._lost, flat])
        pair = self.space.part_queue_pair[self.space.part_of[flat]]
        self._congestion.on_loss(pair, now_s, self.space.size_bytes[flat], self._in_flight)

    def _on_trim_nack(self, packets: Packets, now_s: float) -> None:
        self.counters["trim_nack"] += len(packets)
        flat = self.space.flat(packets.queue_pair, packets.echo_psn)
        flying = self._state[flat] == _State.FLYING
        self._entropy.on_trim(
            packets.queue_pair[flying], self._used[flat[flying]], packets.last_hop[flying]
        )
        self._lose(flat, now_s)

    def _on_time(self, now_s: float) -> None:
        self._probes(now_s)
        self._flight = self._flight[self._state[self._flight] == _State.FLYING]
        flat = self._flight
        pair = self.space.part_queue_pair[self.space.part_of[flat]]
        patience = self._settings.timeout_s * 2.0 ** np.minimum(self._retries[pair], 6)
        late = now_s - self._sent_s[flat] > patience
        overtaken = self._sent_s[flat] < self._newest_s[pair] - self._settings.overtaken_s
        lost = late | overtaken
        if not lost.any():
            return
        self.counters["overtaken"] += int((overtaken & ~late).sum())
        self._entropy.on_loss(pair[lost], self._used[flat[lost]], now_s)
        self._lose(flat[lost], now_s)
        if late.any():
            self.counters["timeouts"] += int(late.sum())
            hit = np.unique(pair[late])
            self._retries[hit] += 1
            self.failed[hit] |= self._retries[hit] > self._settings.retries

    def _on_credit(self, packets: Packets, now_s: float) -> None:
        self.counters["credits"] += len(packets)
        self._congestion.on_credit(packets.queue_pair, packets.value, now_s)

    def _probes(self, now_s: float) -> None:
        """Ask whether entropy values out of use lead anywhere again."""
        pair, value = self._entropy.probes(now_s, self.sends & ~self.failed & self._busy())
        if len(pair):
            self.counters["probe"] += len(pair)
            port = self._entropy.port(pair, value)
            self._answer(Packets.of(Kind.PROBE, pair, entropy=port, echo=port))

    def _busy(self) -> NDArray[np.bool_]:
        """Return (queue pairs,) which have anything to send or to wait for."""
        busy: NDArray[np.bool_] = self._cumulative < self.ledger.limit
        return busy

    def _on_probe_answer(self, packets: Packets, now_s: float) -> None:
        self.counters["probe_ack"] += len(packets)
        pair = packets.queue_pair
        self._entropy.on_probe_answer(pair, self._entropy.index_of(pair, packets.echo))

    # Receiver.

    def _on_probe(self, packets: Packets, now_s: float) -> None:
        self._answer(self._reply(Kind.PROBE_ACK, packets))

    def _on_data(self, packets: Packets, now_s: float) -> None:
        self._note_arrivals(packets, now_s)
        if packets.trimmed.any():
            cut = packets.take(packets.trimmed)
            self.counters["trimmed_received"] += len(cut)
            self._answer(self._reply(Kind.TRIM_NACK, cut, last_hop=cut.last_hop))
            packets = packets.take(~packets.trimmed)
        if not len(packets):
            return
        self.counters["marked_received"] += int(packets.marked.sum())
        pair = packets.queue_pair
        flat = self.space.flat(pair, packets.psn)
        new = self.ledger.arrive(flat, now_s)
        np.maximum.at(self._highest_seen, pair, packets.psn)
        self._advance(np.unique(pair))
        reach = self._highest_seen[pair] - self._first_missing[pair]
        self.reach_max = max(self.reach_max, int(reach.max()))
        answered = packets.take(self._to_acknowledge(packets, flat, new))
        if len(answered):
            self._answer(
                self._reply(
                    Kind.SACK,
                    answered,
                    psn=self._first_missing[answered.queue_pair],
                    bitmap=self._bitmap(answered.queue_pair),
                )
            )

    def _note_arrivals(self, packets: Packets, now_s: float) -> None:
        """Take note of data packets, trimmed ones too, before they are handled."""

    def _to_acknowledge(
        self, packets: Packets, flat: Ints, new: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return (n,) which packets to answer; of duplicates the answer was lost."""
        every = self._settings.ack_every
        if every == 1:
            return np.ones(len(packets), bool)
        pair = packets.queue_pair
        order = np.argsort(pair, kind="stable")
        ordered = pair[order]
        place = np.arange(len(pair)) - np.searchsorted(ordered, ordered)
        number = np.empty(len(pair), np.int64)
        number[order] = self._since_ack[ordered] + place + 1
        np.add.at(self._since_ack, pair, 1)
        ends = packets.psn + 1 == self.space.part_end[self.space.part_of[flat]]
        due: NDArray[np.bool_] = (number % every == 0) | ends | packets.marked | ~new
        return due

    def _reply(self, kind: Kind, packets: Packets, **columns: object) -> Packets:
        return Packets.of(
            kind,
            packets.queue_pair,
            entropy=packets.entropy,
            echo=packets.entropy,
            echo_psn=packets.psn,
            echo_marked=packets.marked,
            **columns,
        )

    def _ahead(self, pair: Ints, width: int) -> NDArray[np.bool_]:
        """Return (n, width) which packets from the first missing one on have arrived."""
        psn = self._first_missing[pair][:, None] + np.arange(width)
        inside = psn < self.space.count(pair)[:, None]
        flat = self.space.first[pair][:, None] + np.where(inside, psn, 0)
        there: NDArray[np.bool_] = self.ledger.received[flat] & inside
        return there

    def _advance(self, pairs: Ints) -> None:
        """Move each queue pair's first missing packet on."""
        while len(pairs):
            there = self._ahead(pairs, _LOOK)
            run = np.where(there.all(axis=1), _LOOK, there.argmin(axis=1))
            self._first_missing[pairs] += run
            pairs = pairs[run == _LOOK]

    def _bitmap(self, pair: Ints) -> NDArray[np.uint64]:
        bits = np.packbits(self._ahead(pair, BITMAP_BITS), axis=1, bitorder="little")
        return np.ascontiguousarray(bits).view("<u8")[:, 0].astype(np.uint64)
