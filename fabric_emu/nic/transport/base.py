"""What every transport has: messages to release, a NIC's arbitration, control packets to answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

import numpy as np

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.transport.ledger import Ledger
from fabric_emu.nic.transport.packets import Kind, Packets, Rows
from fabric_emu.nic.transport.space import PacketSpace


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

    def __init__(self, graph: MessageGraph, space: PacketSpace, local: Bools) -> None:
        self.space = space
        self.ledger = Ledger(graph, space, local)
        self.sends = local[space.source]
        self.next = np.zeros(space.queue_pairs, np.int64)
        self.failed = np.zeros(space.queue_pairs, bool)
        self.counters: Counter[str] = Counter()
        self.noticed_s: list[Floats] = []
        self._answers: list[Packets] = []
        self._turn = 0
        sending = np.flatnonzero(self.sends)
        self._by_host = sending[np.argsort(space.source[sending], kind="stable")]
        self._handlers = (  # by ``Kind``
            self._on_data,
            self._on_ack,
            self._on_nak,
            self._on_sack,
            self._on_trim_nack,
            self._on_cnp,
            self._on_credit,
            self._on_probe,
            self._on_probe_answer,
        )
        self._ends = np.zeros(len(Kind), np.int64)

    def receive(self, packets: Packets, now_s: float) -> None:
        """Take in packets that arrived at this worker's hosts, in order of arrival per host."""
        if not len(packets):
            return
        rows, begin = np.empty_like(packets.rows), 0
        _sort(packets.rows, rows, self._ends)
        for handle, end in zip(self._handlers, self._ends.tolist(), strict=True):
            if end > begin:
                handle(Packets(rows[begin:end]), now_s)
                begin = end

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


@compiled
def _sort(rows: Rows, by_kind: Rows, ends: Ints) -> None:
    """Sort packets by kind, those of a kind in their order, and say where each kind ends."""
    ends[:] = 0
    for i in range(len(rows)):
        ends[rows[i].kind] += 1
    ends[:] = np.cumsum(ends)
    for i in range(len(rows) - 1, -1, -1):
        kind = rows[i].kind
        ends[kind] -= 1
        by_kind[ends[kind]] = rows[i]
    # Each kind's end has become its beginning: the end of the one before.
    ends[:-1] = ends[1:]
    ends[-1] = len(rows)


@compiled
def share(count: Ints, room: Ints, by_host: Ints, source: Ints, turn: int, pair: Ints) -> int:
    """Share the NICs' room among their queue pairs, one packet each in turn.

    Args:
        count: (queue pairs,) packets each could send.
        room: (hosts,) packets each NIC takes.
        by_host: (sending queue pairs,) host by host, each one's ascending.
        source: (queue pairs,) sending hosts.
        turn: moves on which queue pair is the first in line.
        pair: filled with the queue pair of each packet, in order of sending.

    Returns:
        How many were filled.
    """
    n = begin = 0
    first = len(count) - turn % len(count)
    line = np.empty(len(by_host), np.int64)
    while begin < len(by_host):
        host = source[by_host[begin]]
        end = begin
        while end < len(by_host) and source[by_host[end]] == host:
            end += 1
        waiting = 0
        for late in (False, True):
            for place in range(begin, end):
                each = by_host[place]
                if (each < first) == late and count[each] > 0:
                    line[waiting] = each
                    waiting += 1
        free, lap = room[host], 0
        while waiting and free > 0:
            left = 0
            for place in range(waiting):
                if free == 0:
                    break
                each = line[place]
                pair[n] = each
                n += 1
                free -= 1
                if count[each] > lap + 1:
                    line[left] = each
                    left += 1
            waiting, lap = left, lap + 1
        begin = end
    return n
