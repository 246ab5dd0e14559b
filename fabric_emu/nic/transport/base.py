"""What every transport has: messages to release, a NIC's arbitration, control packets to answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.transport.ledger import Ledger
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace

Ints = NDArray[np.int64]


class Transport(ABC):
    """The transports of all queue pairs that begin or end at a worker's hosts.

    Args:
        graph: every message of the run.
        space: their packets.
        local: (hosts,) whether each host is this worker's.

    Attributes:
        ledger: messages released and arrived.
        next: (queue pairs,) the next new packet of each.
        failed: (queue pairs,) bool, given up after too many retries.
        counters: events by name, since the start.
        noticed_s: per batch, (n,) how long after a packet was handed to the NIC its sender took it
            for lost, because it was told or ran out of patience; the packet that a NAK or a
            timeout names, not those sent again with it. The drop itself lies within that time by
            what the packet had come of its way.
    """

    def __init__(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> None:
        self.space = space
        self.ledger = Ledger(graph, space, local)
        self.sends = local[space.source]
        self.next = np.zeros(space.queue_pairs, np.int64)
        self.failed = np.zeros(space.queue_pairs, bool)
        self.counters: Counter[str] = Counter()
        self.noticed_s: list[NDArray[np.float64]] = []
        self._answers: list[Packets] = []
        self._turn = 0

    def receive(self, packets: Packets, now_s: float) -> None:
        """Take in packets that arrived at this worker's hosts, in order of arrival per host."""
        if not len(packets):
            return
        handlers = {
            Kind.DATA: self._on_data,
            Kind.ACK: self._on_ack,
            Kind.NAK: self._on_nak,
            Kind.SACK: self._on_sack,
            Kind.TRIM_NACK: self._on_trim_nack,
            Kind.CNP: self._on_cnp,
            Kind.CREDIT: self._on_credit,
            Kind.PROBE: self._on_probe,
            Kind.PROBE_ACK: self._on_probe_answer,
        }
        kinds = packets.kind
        present = np.flatnonzero(np.bincount(kinds))
        for kind in present:
            some = packets if len(present) == 1 else packets.take(kinds == kind)
            handlers[Kind(int(kind))](some, now_s)

    def transmit(self, now_s: float, room: Ints) -> Packets:
        """Return what to send now: answers first, then data as far as NICs have room.

        Args:
            now_s: the time, seconds after the start.
            room: (hosts,) data packets each NIC may be given.
        """
        self.ledger.release(now_s)
        self._on_time(now_s)
        data = self._data(now_s, room)
        answers, self._answers = self._answers, []
        return Packets.join([*answers, data])

    def finished(self) -> bool:
        """Tell whether this worker's hosts have nothing more to send."""
        done = self.acknowledged() >= self.space.count(np.arange(self.space.queue_pairs))
        return bool((done | self.failed | ~self.sends).all())

    @abstractmethod
    def acknowledged(self) -> Ints:
        """Return (queue pairs,) packets acknowledged without a gap."""

    @abstractmethod
    def _data(self, now_s: float, room: Ints) -> Packets:
        """Return data packets to send, at most ``room`` for each host."""

    @abstractmethod
    def _on_data(self, packets: Packets, now_s: float) -> None:
        """Take in data."""

    @abstractmethod
    def _on_time(self, now_s: float) -> None:
        """Let timers run out."""

    def _unexpected(self, packets: Packets, now_s: float) -> None:
        """Count what this transport does not speak."""
        self.counters["unexpected"] += len(packets)

    _on_ack = _on_nak = _on_sack = _on_trim_nack = _unexpected
    _on_cnp = _on_credit = _on_probe = _on_probe_answer = _unexpected

    def _answer(self, packets: Packets) -> None:
        self._answers.append(packets)

    def _arbitrate(self, count: Ints, room: Ints) -> tuple[Ints, Ints]:
        """Share the NICs' room among their queue pairs, one packet each in turn.

        Args:
            count: (queue pairs,) packets each could send.
            room: (hosts,) packets each NIC takes.

        Returns:
            (n,) queue pair of each packet in order of sending, and (n,) its rank among those of
            its queue pair, from 0.
        """
        pairs = np.nonzero(count > 0)[0]
        if not len(pairs):
            return pairs, pairs
        host = self.space.source[pairs]
        wanted = np.minimum(count[pairs], room[host])
        pair = np.repeat(pairs, wanted)
        start = np.cumsum(wanted) - wanted
        rank = np.arange(len(pair)) - np.repeat(start, wanted)
        # The first in line changes from call to call.
        self._turn += 1
        line = (pair + self._turn) % self.space.queue_pairs
        order = np.lexsort((line, rank, self.space.source[pair]))
        pair, rank = pair[order], rank[order]
        host = self.space.source[pair]
        place = np.arange(len(pair)) - np.searchsorted(host, host)
        keep = place < room[host]
        return pair[keep], rank[keep]
