"""The ledger of a worker's messages: what may start, what has arrived, when."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.transport.space import PacketSpace

_MESSAGE = np.dtype(
    [
        ("waiting", np.int64),  # messages it waits for
        ("missing", np.int64),  # packets that have not arrived
        ("delay_s", np.float64),
        ("ready_s", np.float64),  # when the last it waited for arrived
        ("release_at", np.float64),
        ("started_s", np.float64),
        ("finished_s", np.float64),
        ("mine", np.bool_),
        ("local", np.bool_),
        ("padding", np.uint8, (6,)),
    ]
)
Messages = Annotated[NDArray[np.void], _MESSAGE]


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
        arrivals: what ``arrive`` needs.
    """

    def __init__(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> None:
        n = len(graph.source)
        self._messages = np.zeros(n, _MESSAGE)
        self._messages["waiting"] = graph.waits()
        self._messages["missing"] = np.bincount(space.part_message[space.part_of], minlength=n)
        self._messages["delay_s"] = graph.delay_s
        self._messages["mine"] = local[graph.source]
        self._messages["local"] = graph.local
        roots = local[graph.source] & (graph.waits() == 0)
        self._messages["release_at"] = np.where(roots, graph.delay_s, np.inf)
        self.started_s = self._messages["started_s"]
        self.finished_s = self._messages["finished_s"]
        self.started_s[:] = self.finished_s[:] = np.nan
        self._next_release_s = np.array([self._messages["release_at"].min(initial=np.inf)])
        offsets, dependents = graph.dependents()
        self._dependents = np.array(offsets, np.int64), np.array(dependents, np.int64)

        parts_of, part_offsets = _grouped(space.part_message, n)
        parts_per_pair = np.bincount(space.part_queue_pair, minlength=space.queue_pairs)
        next_part = np.r_[0, np.cumsum(parts_per_pair)][:-1]
        self.limit = np.zeros(space.queue_pairs, np.int64)
        self._release = (
            self._messages,
            *self._dependents,
            parts_of,
            part_offsets,
            np.zeros(len(space.part_message), np.bool_),
            space.part_queue_pair,
            space.part_end,
            next_part,
            next_part + parts_per_pair,
            self.limit,
        )
        self.received = np.zeros(space.packets, bool)
        self.arrived_s = np.full(space.packets, np.nan)
        self._duplicates = np.zeros(1, np.int64)
        self.arrivals = (
            space.part_of,
            space.part_message,
            self.received,
            self.arrived_s,
            self._duplicates,
            self._next_release_s,
            self._messages,
            *self._dependents,
        )

    @property
    def duplicates(self) -> int:
        """Packets that arrived again."""
        return int(self._duplicates[0])

    def next_release_s(self) -> float:
        """Return when the next message may start; infinity when all that can have."""
        return float(self._next_release_s[0])

    def release(self, now_s: float) -> None:
        """Let messages start whose time has come."""
        if now_s >= self._next_release_s[0]:
            self._next_release_s[0] = _release(now_s, *self._release)


@compiled
def _finish(
    message: int, at_s: float, messages: Messages, dependent_offsets: Ints, dependents: Ints
) -> float:
    """Note that a message has arrived; return when the first that waited for it may start."""
    messages[message].finished_s = at_s
    soonest = np.inf
    for place in range(dependent_offsets[message], dependent_offsets[message + 1]):
        dependent = messages[dependents[place]]
        dependent.waiting -= 1
        dependent.ready_s = max(dependent.ready_s, at_s)
        if dependent.waiting == 0 and dependent.mine:
            dependent.release_at = dependent.ready_s + dependent.delay_s
            soonest = min(soonest, dependent.release_at)
    return soonest


@compiled
def arrive(
    packet: int,
    now_s: float,
    part_of: NDArray[np.int32],
    part_message: Ints,
    received: Bools,
    arrived_s: Floats,
    duplicates: Ints,
    next_release_s: Floats,
    messages: Messages,
    dependent_offsets: Ints,
    dependents: Ints,
) -> bool:
    """Note a packet of this worker's hosts, by its flat number; return whether it is new.

    The other parameters are ``Ledger.arrivals``.
    """
    if received[packet]:
        duplicates[0] += 1
        return False
    received[packet] = True
    arrived_s[packet] = now_s
    message = part_message[part_of[packet]]
    messages[message].missing -= 1
    if messages[message].missing == 0:
        soonest = _finish(message, now_s, messages, dependent_offsets, dependents)
        next_release_s[0] = min(next_release_s[0], soonest)
    return True


@compiled
def _release(
    now_s: float,
    messages: Messages,
    dependent_offsets: Ints,
    dependents: Ints,
    parts_of: Ints,
    part_offsets: Ints,
    part_open: Bools,
    part_queue_pair: Ints,
    part_end: Ints,
    next_part: Ints,
    end_part: Ints,
    limit: Ints,
) -> float:
    """Start what is due; return when the next message may start."""
    soonest = now_s
    while soonest <= now_s:
        soonest = np.inf
        for number in range(len(messages)):
            message = messages[number]
            if message.release_at > now_s:
                soonest = min(soonest, message.release_at)
                continue
            at_s = message.release_at
            message.started_s = at_s
            message.release_at = np.inf
            if message.local:
                next_s = _finish(number, at_s, messages, dependent_offsets, dependents)
                soonest = min(soonest, next_s)
                continue
            for place in range(part_offsets[number], part_offsets[number + 1]):
                part_open[parts_of[place]] = True
                # In order: a part waits for those before it on its queue pair.
                pair = part_queue_pair[parts_of[place]]
                part = next_part[pair]
                while part < end_part[pair] and part_open[part]:
                    limit[pair] = part_end[part]
                    part += 1
                next_part[pair] = part
    return soonest


def _grouped(key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Return row numbers by key, and where each key's begin."""
    order = np.argsort(key, kind="stable")
    return order, np.r_[0, np.cumsum(np.bincount(key, minlength=groups))]
