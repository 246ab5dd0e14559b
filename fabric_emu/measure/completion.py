"""When messages and collectives were complete, against the ideal, and the bandwidth that makes.

A message runs from the moment it may start (what it waits for has arrived, its delay has passed)
until its last byte is in place at the receiver; a collective from its first message's start to its
last one's arrival. What has not arrived takes for ever: it pushes percentiles up, and those that
it reaches are given as None.

``algbw`` and ``busbw`` are those of nccl-tests, in bit/s: S over the mean time of the iterations,
and that times a factor that makes it comparable with the rate of a host's link.
Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; src/gather.cu, src/sendrecv.cu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.ideal import IdealFabric
from fabric_emu.model.messages import Floats, Ints, MessageGraph, Occurrences


def bus_factor(name: str, ranks: int) -> float:
    """Return the bus bandwidth over the algorithm bandwidth of a collective; 1 for unknown ones."""
    share = (ranks - 1) / ranks
    factors = {
        "ring-all-reduce": 2 * share,
        "ring-all-gather": share,
        "ring-reduce-scatter": share,
        "all-to-all": share,
        "incast": share,  # a gather
        "broadcast": 1.0,
        "permutation": 1.0,  # send and receive
    }
    return factors.get(name, 1.0)


@dataclass(frozen=True, eq=False)
class Completion:
    """Completion times of one run; NaN where something has not arrived.

    Attributes:
        graph: what was sent.
        occurrences: each collective of each iteration, m of them.
        start_s: (n,) when each message might start, on the run's clock.
        message_s, message_ideal_s: (n,) NaN for local rows.
        begin_s, collective_s, collective_ideal_s: (m,) start on the run's clock, time it took,
            lower bound.
        iteration_end_s: (iterations,) when everything of each iteration had arrived, on the run's
            clock.
    """

    graph: MessageGraph
    occurrences: Occurrences
    start_s: Floats
    message_s: Floats
    message_ideal_s: Floats
    begin_s: Floats
    collective_s: Floats
    collective_ideal_s: Floats
    iteration_end_s: Floats

    @property
    def unfinished(self) -> int:
        """Messages that have not arrived."""
        return int(np.isnan(self.message_s[~self.graph.local]).sum())

    def iteration_s(self) -> Floats:
        """Return (iterations,) from the end of the iteration before to each one's end."""
        return np.diff(self.iteration_end_s, prepend=0.0)

    def algbw_bps(self) -> float:
        """Return the algorithm bandwidth over all occurrences; 0 when one has not finished."""
        return self._bandwidth(np.ones(len(self.graph.collectives)))

    def busbw_bps(self) -> float:
        """Return the bus bandwidth over all occurrences; 0 when one has not finished."""
        kinds = self.graph.collectives
        return self._bandwidth(np.array([bus_factor(kind.name, kind.ranks) for kind in kinds]))

    def _bandwidth(self, factors: Floats) -> float:
        total = float(self.collective_s.sum())
        if not total > 0:  # NaN too
            return 0.0
        sizes = np.array([kind.size_bytes for kind in self.graph.collectives]) * factors
        return float(sizes[self.occurrences.collective].sum()) * 8 / total

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return when every message and every collective began and how long it took.

        Keys, a row per message that met the network: ``message`` (row in the graph), ``source``
        and ``destination`` (host numbers from 0), ``size_bytes``, ``step``, ``iteration``,
        ``occurrence`` (-1: of no collective), ``start_s``, ``taken_s``, ``ideal_s``. A row per
        collective of each iteration: ``collective_name``, ``collective_iteration``,
        ``collective_begin_s``, ``collective_taken_s``, ``collective_ideal_s``.
        """
        graph, found = self.graph, self.occurrences
        wire = np.flatnonzero(~graph.local)
        names = np.array([kind.name for kind in graph.collectives], np.str_)
        return {
            "message": wire,
            "source": graph.source[wire],
            "destination": graph.destination[wire],
            "size_bytes": graph.size_bytes[wire],
            "step": graph.step[wire],
            "iteration": graph.iteration[wire],
            "occurrence": found.of_row[wire],
            "start_s": self.start_s[wire],
            "taken_s": self.message_s[wire],
            "ideal_s": self.message_ideal_s[wire],
            "collective_name": names[found.collective],
            "collective_iteration": found.iteration,
            "collective_begin_s": self.begin_s,
            "collective_taken_s": self.collective_s,
            "collective_ideal_s": self.collective_ideal_s,
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures, nested and ready for JSON; SI units, None for what never ends.

        Keys: ``completion`` (of collectives: ``p50``, ``p99``, ``max``, ``ideal``, ``over_ideal``,
        ``over_ideal_p50``, ``over_ideal_p99``, ``count``, ``unfinished``), ``messages`` (the same
        of messages), ``algbw``, ``busbw``, ``iteration`` (``p50``, ``p99``, ``max``). ``ideal`` is
        the mean, ``over_ideal`` the largest ratio of a time to its own ideal.
        """
        wire = ~self.graph.local
        return {
            "completion": _figures(self.collective_s, self.collective_ideal_s),
            "messages": _figures(self.message_s[wire], self.message_ideal_s[wire]),
            "algbw": self.algbw_bps(),
            "busbw": self.busbw_bps(),
            "iteration": _percentiles(self.iteration_s()),
        }


def complete(
    graph: MessageGraph, start_s: Floats, finish_s: Floats, ideal: IdealFabric
) -> Completion:
    """Return the completion times of a run.

    Args:
        graph: what was to be sent.
        start_s: (n,) when each message might start; NaN if never.
        finish_s: (n,) when its last byte was in place at the receiver; NaN if never.
        ideal: what times are compared with.

    Raises:
        ValueError: a message has arrived before it started, or without having started.
    """
    arrived = ~np.isnan(finish_s)
    if not (finish_s[arrived] >= start_s[arrived]).all():
        raise ValueError("finish_s: times at or after start_s expected")
    found = graph.occurrences()
    inside = found.of_row >= 0
    of = found.of_row[inside]
    begin = np.full(len(found), np.inf)
    np.minimum.at(begin, of, _never(start_s)[inside])
    begin[np.isinf(begin)] = np.nan
    end = _last(_never(finish_s)[inside], of, len(found))
    iterations = int(graph.iteration.max()) + 1 if len(graph) else 0
    iteration_end = _last(_never(finish_s), graph.iteration, iterations)
    wire = ~graph.local
    return Completion(
        graph=graph,
        occurrences=found,
        start_s=start_s,
        message_s=np.where(wire, finish_s - start_s, np.nan),
        message_ideal_s=np.where(wire, ideal.message_s(graph), np.nan),
        begin_s=begin,
        collective_s=end - begin,
        collective_ideal_s=ideal.collective_s(graph, found),
        iteration_end_s=iteration_end,
    )


def _never(times: Floats) -> Floats:
    """Return times with infinity for NaN."""
    return np.where(np.isnan(times), np.inf, times)


def _last(times: Floats, of: Ints, groups: int) -> Floats:
    """Return (groups,) the latest time of each; NaN where one is infinite, or without any."""
    found = np.full(groups, -np.inf)
    np.maximum.at(found, of, times)
    return np.where(np.isfinite(found), found, np.nan)


def noticed_figures(noticed_s: Floats) -> dict[str, Any]:
    """Return how soon senders knew of losses: ``p50``, ``p99``, ``max`` and ``count``.

    Counted from the moment a packet was handed to its NIC until its sender took it for lost: told
    by a NAK, a trimmed packet's NACK or acknowledgements of later packets, or not told at all
    (timeout). That is the time since the drop, and what the packet took from the NIC to there.
    Packets that were late, not lost, count where the sender was mistaken. None without losses.

    Args:
        noticed_s: (n,) of each loss.
    """
    return {**_percentiles(noticed_s), "count": len(noticed_s)}


def _figures(taken: Floats, ideal: Floats) -> dict[str, Any]:
    ratios = _percentiles(taken / ideal)
    return {
        **_percentiles(taken),
        "ideal": float(ideal.mean()) if len(ideal) else None,
        "over_ideal": ratios["max"],
        "over_ideal_p50": ratios["p50"],
        "over_ideal_p99": ratios["p99"],
        "count": len(taken),
        "unfinished": int(np.isnan(taken).sum()),
    }


def _percentiles(taken: Floats) -> dict[str, float | None]:
    """Return median, 99th percentile and maximum, linear between neighbours; NaN is for ever."""
    column = np.sort(_never(taken))
    found: dict[str, float | None] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        place = share * (len(column) - 1)
        near = column[[int(place), math.ceil(place)]] if len(column) else np.array([np.inf])
        finite = bool(np.isfinite(near).all())
        found[name] = float(near[0] + (place % 1) * (near[-1] - near[0])) if finite else None
    return found
