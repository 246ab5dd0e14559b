"""Selective transports: packets in any order, each acknowledged, only lost ones sent again.

What MRC and Ultra Ethernet's RUD have in common; they differ in entropy, congestion control and
headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.entropy.policy import EntropyPolicy
from fabric_emu.nic.transport import selective_sender as sender
from fabric_emu.nic.transport.base import Ints, Transport
from fabric_emu.nic.transport.packets import DTYPE, Kind, Packets
from fabric_emu.nic.transport.selective_receiver import acknowledge
from fabric_emu.nic.transport.selective_sender import SENT, Sent, State
from fabric_emu.nic.transport.space import PacketSpace


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
        timeout_s: a packet unacknowledged for so long is lost; doubled, for what is sent from
            then on, with each timeout in a row without progress.
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
        self._sent = np.zeros(space.packets, SENT)
        self._cumulative = np.zeros(n, np.int64)
        self._in_flight = np.zeros(n, np.int64)
        self._lost = np.zeros(n, np.int64)
        self._retries = np.zeros(n, np.int64)
        self._newest_s = np.full(n, -np.inf)
        self._timed_out_s = np.full(n, -np.inf)
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
        n, most = self.space.queue_pairs, int(room.sum())
        backlog = np.empty(n, np.int64)
        reach = self._settings.reach_packets
        sender.backlog(self.ledger.limit, self.next, self._cumulative, self._lost, reach, backlog)
        allowance = self._congestion.allowance(self._in_flight, backlog, now_s)
        self._turn += 1
        pair, rows = np.empty(most, np.int64), np.zeros(most, DTYPE)
        n, again, again_bytes = sender.take(
            now_s,
            backlog,
            allowance,
            room,
            self._by_host,
            self.space.source,
            self._turn,
            self.failed,
            *self._of_packets(),
            pair,
            rows,
        )
        if not n:
            return Packets.none()
        pair, rows = pair[:n], rows[:n]
        value = self._entropy.choose(pair, now_s)
        told = self._congestion.on_sent(pair, backlog)
        port = self._entropy.port(pair, value)
        sender.dress(rows, value, port, told, self.space.first, self._sent)
        self.counters["retransmitted"] += again
        self.counters["retransmitted_bytes"] += again_bytes
        return Packets(rows)

    def _of_packets(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Sent]:
        """Return the arrays that the sender's loops go through."""
        space = self.space
        return (
            space.first,
            space.size_bytes,
            self.next,
            self._cumulative,
            self._in_flight,
            self._lost,
            self._sent,
        )

    def _on_sack(self, packets: Packets, now_s: float) -> None:
        n = len(packets)
        self.counters["sack"] += n
        pair, used, size = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        rtt_s, marked = np.empty(n), np.empty(n, np.bool_)
        n = sender.settle(
            packets.rows,
            now_s,
            *self._of_packets(),
            self._newest_s,
            self._retries,
            pair,
            used,
            size,
            rtt_s,
            marked,
        )
        if not n:
            return
        pair, marked, rtt_s = pair[:n], marked[:n], rtt_s[:n]
        self.rtt_min_s = min(self.rtt_min_s, float(np.fmin.reduce(rtt_s, initial=np.inf)))
        self._congestion.on_ack(pair, now_s, size[:n], rtt_s, marked, self._in_flight)
        self._entropy.on_ack(pair, used[:n], marked)

    def _lose(self, flat: Ints, pair: Ints, now_s: float) -> None:
        """Take packets that were in flight for lost."""
        flying = sender.give_up(flat, pair, self._in_flight, self._lost, self._sent)
        flat, pair = flat[flying], pair[flying]
        self.noticed_s.append(now_s - self._sent["sent_s"][flat])
        self._congestion.on_loss(pair, now_s, self.space.size_bytes[flat], self._in_flight)

    def _used_by(self, flat: Ints) -> Ints:
        """Return the entropy of packets, as indexes."""
        return self._sent["used"][flat].astype(np.int64)

    def _on_trim_nack(self, packets: Packets, now_s: float) -> None:
        self.counters["trim_nack"] += len(packets)
        pair = np.ascontiguousarray(packets.queue_pair)
        flat = self.space.flat(pair, packets.echo_psn)
        flying = self._sent["state"][flat] == State.FLYING
        self._entropy.on_trim(pair[flying], self._used_by(flat[flying]), packets.last_hop[flying])
        self._lose(flat, pair, now_s)

    def _on_time(self, now_s: float) -> None:
        self._probes(now_s)
        flat, pair, late = sender.expired(
            now_s,
            self._settings.timeout_s,
            self._settings.overtaken_s,
            self._settings.retries,
            self._by_host,
            self.space.first,
            self.next,
            self._cumulative,
            self._in_flight,
            self._sent,
            self._newest_s,
            self._timed_out_s,
            self._retries,
            self.failed,
        )
        if not len(flat):
            return
        self._entropy.on_loss(pair, self._used_by(flat), now_s)
        self._lose(flat, pair, now_s)
        self.counters["timeouts"] += int(late.sum())
        self.counters["overtaken"] += int((~late).sum())

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
        answers = np.zeros(len(packets), DTYPE)
        n, reach, marks, trimmed = acknowledge(
            packets.rows,
            now_s,
            self._settings.ack_every,
            self.space.first,
            self.space.part_end,
            *self.ledger.arrivals,
            self._first_missing,
            self._highest_seen,
            self._since_ack,
            answers,
        )
        self.counters["marked_received"] += marks
        self.reach_max = max(self.reach_max, reach)
        if n:
            self._answer(Packets(answers[:n]))
        if trimmed:
            self.counters["trimmed_received"] += trimmed
            cut = packets.take(packets.trimmed)
            self._answer(self._reply(Kind.TRIM_NACK, cut, last_hop=cut.last_hop))

    def _note_arrivals(self, packets: Packets, now_s: float) -> None:
        """Take note of data packets, trimmed ones too, before they are handled."""

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
