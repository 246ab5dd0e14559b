"""What faults cost until a fabric had got over them: packets, and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.record import Record
from fabric_emu.switch.ports import DropReason, link_down_packets

BY_FAULTS = (DropReason.BLACKHOLE, DropReason.FAULT_LOSS, DropReason.NO_CARRIER)


class LossWatch:
    """Counts packets lost by faults while hosts send, and remembers when it last lost one.

    Args:
        ports: (ports,) the live port table.
        no_route: returns how many packets switches have dropped for want of a route.

    Attributes:
        last_s: when they were last seen to grow, seconds after the start; None before.
    """

    def __init__(self, ports: NDArray[np.void], no_route: Callable[[], int]) -> None:
        self._ports, self._no_route = ports, no_route
        self._unrouted = no_route()
        self._lost = 0
        self.last_s: float | None = None

    @property
    def no_route(self) -> int:
        """Packets dropped for want of a route since this watch began."""
        return self._no_route() - self._unrouted

    def look(self, elapsed_s: float) -> None:
        """Count; ``last_s`` is as exact as this is called often."""
        lost = lost_by_faults(self._ports, self.no_route)
        if lost > self._lost:
            self._lost, self.last_s = lost, elapsed_s


def lost_by_faults(ports: NDArray[np.void], no_route: int) -> int:
    """Return how many packets links that were down, dark or lossy took, or missing routes."""
    at_once = int(ports["dropped_packets"][:, BY_FAULTS].sum())
    return at_once + int(link_down_packets(ports).sum()) + no_route


def summarise_recovery(
    record: Record, last_loss_s: float | None, first_fault_s: float, start_ns: int, unfinished: int
) -> dict[str, Any]:
    """Return the figures of recovery from faults.

    ``lost``: packets that links which were down, dark or lossy took, or switches without a route.
    ``last_loss``: seconds from the first fault to the last of them, None without any.
    ``flows_hit``: queue pairs with data that lost packets, for whatever reason.
    ``all_running``: the longest time from the first fault on in which one of these got no packet;
    all run again after that. 0 when none was hit; None when messages never arrived. In an open
    loop a flow dead to the end counts until there.

    Args:
        record: the run.
        last_loss_s: when a fault last took a packet, seconds after the start; None: never.
        first_fault_s: when the first fault began, seconds after the start.
        start_ns: the start, on the clock of arrivals.
        unfinished: messages that never arrived.
    """
    hit = flows_hit(record)
    end_s = None if record.closed_loop else record.window_s
    silence = longest_silence_s(record, hit, first_fault_s, end_s, start_ns)
    return {
        "lost": lost_by_faults(record.ports, record.no_route),
        "last_loss": None if last_loss_s is None else max(last_loss_s - first_fault_s, 0.0),
        "flows_hit": len(hit),
        "all_running": None if unfinished else silence,
    }


def flows_hit(record: Record) -> NDArray[np.intp]:
    """Return the queue pairs with data of which packets did not arrive whole or trimmed."""
    pairs = record.arrivals.queue_pair[record.arrivals.known]
    arrived = np.bincount(pairs, minlength=len(record.senders.sent))
    return np.flatnonzero((record.senders.sent > arrived)[: record.data_pairs])


def longest_silence_s(
    record: Record,
    pairs: NDArray[np.intp],
    from_s: float,
    to_s: float | None,
    start_ns: int,
) -> float:
    """Return the longest time between two arrivals of one of some queue pairs; 0 without any.

    Args:
        record: the run.
        pairs: which queue pairs.
        from_s, to_s: bounds that count as arrivals of each; ``to_s`` None: the last one is the end.
        start_ns: what the bounds count from, on the clock of arrivals.
    """
    if not len(pairs):
        return 0.0
    arrivals = record.arrivals
    of = record.data & np.isin(arrivals.queue_pair, pairs)
    pair = np.concatenate([arrivals.queue_pair[of], pairs])
    at_s = np.concatenate([(arrivals.arrival_ns[of] - start_ns) * 1e-9, np.full(len(pairs), -1.0)])
    if to_s is not None:
        pair, at_s = np.concatenate([pair, pairs]), np.append(at_s, np.full(len(pairs), to_s))
        at_s = np.minimum(at_s, to_s)
    at_s = np.maximum(at_s, from_s)
    order = np.lexsort((at_s, pair))
    pair, gaps = pair[order], np.diff(at_s[order])
    return float(gaps[pair[1:] == pair[:-1]].max(initial=0.0))
