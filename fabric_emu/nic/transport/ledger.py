"""The ledger of a worker's messages: what may start, what has arrived, when."""

from __future__ import annotations

import numpy as np
import numpy.ma  # np.unique would load it when first called: 30 ms in a run's first round
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph, ranges
from fabric_emu.nic.transport.space import PacketSpace

Ints = NDArray[np.int64]


class Ledger:
    """Releases messages whose dependencies have arrived, and notes arrivals.

    All a message waits for arrives at the host that sends it, so one worker knows all it needs.

    Args:
        graph: every message of the run.
        space: their packets.
        local: (hosts,) whether each host is this worker's.

    Attributes:
        limit: (queue pairs,) packets up to here may be sent.
        started_s, finished_s: (messages,) when each was released (at its source) and arrived
            whole (at its destination), after the run's start; NaN before, and elsewhere.
        received: (packets,) bool, arrived at this worker's hosts.
        arrived_s: (packets,) when each was taken in there, after the run's start; NaN elsewhere.
        duplicates: packets that arrived again.
    """

    def __init__(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> None:
        self._graph, self._space = graph, space
        n = len(graph.source)
        self._mine = local[graph.source]
        self._local = graph.local
        self._waiting = graph.waits().copy()
        self._dependent_offsets, self._dependents = graph.dependents()
        self._release_at = np.full(n, np.inf)
        roots = self._mine & (self._waiting == 0)
        self._release_at[roots] = graph.delay_s[roots]
        self._missing = np.bincount(space.part_message[space.part_of], minlength=n)
        self._part_open = np.zeros(len(space.part_message), bool)
        self._parts_of, self._part_offsets = _grouped(space.part_message, n)
        parts_per_pair = np.bincount(space.part_queue_pair, minlength=space.queue_pairs)
        self._next_part = np.r_[0, np.cumsum(parts_per_pair)][:-1]
        self._end_part = self._next_part + parts_per_pair
        self.limit = np.zeros(space.queue_pairs, np.int64)
        self.started_s = np.full(n, np.nan)
        self.finished_s = np.full(n, np.nan)
        self.received = np.zeros(space.packets, bool)
        self.arrived_s = np.full(space.packets, np.nan)
        self.duplicates = 0

    def next_release_s(self) -> float:
        """Return when the next message may start; infinity when all that can have."""
        return float(self._release_at.min(initial=np.inf))

    def release(self, now_s: float) -> None:
        """Let messages start whose time has come."""
        while len(due := np.nonzero(self._release_at <= now_s)[0]):
            self.started_s[due] = self._release_at[due]
            self._release_at[due] = np.inf
            self._open(due[~self._local[due]])
            local = due[self._local[due]]
            for at in np.unique(self.started_s[local]):
                self._finish(local[self.started_s[local] == at], float(at))

    def _open(self, messages: Ints) -> None:
        """Let the packets of messages be sent."""
        parts = _spans(self._parts_of, self._part_offsets, messages)
        self._part_open[parts] = True
        space = self._space
        for pair in np.unique(space.part_queue_pair[parts]):
            # In order: a part waits for those before it on its queue pair.
            part, end = int(self._next_part[pair]), int(self._end_part[pair])
            while part < end and self._part_open[part]:
                part += 1
            self._next_part[pair] = part
            if part:
                before = part - 1
                if space.part_queue_pair[before] == pair:
                    self.limit[pair] = space.part_end[before]

    def arrive(self, flat: Ints, now_s: float) -> NDArray[np.bool_]:
        """Note packets of this worker's hosts; return (n,) which are new."""
        unique, first = np.unique(flat, return_index=True)
        fresh = ~self.received[unique]
        new = np.zeros(len(flat), bool)
        new[first[fresh]] = True
        self.duplicates += len(flat) - int(fresh.sum())
        unique = unique[fresh]
        self.received[unique] = True
        self.arrived_s[unique] = now_s
        message = self._space.part_message[self._space.part_of[unique]]
        np.subtract.at(self._missing, message, 1)
        touched = np.unique(message)
        done = touched[self._missing[touched] == 0]
        if len(done):
            self._finish(done, now_s)
        return new

    def _finish(self, done: Ints, now_s: float) -> None:
        self.finished_s[done] = now_s
        dependents = _spans(self._dependents, self._dependent_offsets, done)
        np.subtract.at(self._waiting, dependents, 1)
        ready = np.unique(dependents)
        ready = ready[(self._waiting[ready] == 0) & self._mine[ready]]
        self._release_at[ready] = now_s + self._graph.delay_s[ready]


def _grouped(key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Return row numbers by key, and where each key's begin."""
    order = np.argsort(key, kind="stable")
    return order, np.r_[0, np.cumsum(np.bincount(key, minlength=groups))]


def _spans(values: Ints, offsets: Ints, keys: Ints) -> Ints:
    """Return the values of several keys, one after the other."""
    return values[ranges(offsets[keys], offsets[keys + 1] - offsets[keys])]
