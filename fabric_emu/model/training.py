"""Training loops: computation and a collective, in turns."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import NO_COLLECTIVE, Ints, MessageGraph, offsets_of, ranges

RELEASE_BYTES = 64
"""Payload of the message that lets a host which receives nothing begin its next iteration."""


def training_loop(graph: MessageGraph, iterations: int, compute_s: float = 0.0) -> MessageGraph:
    """Return a graph repeated: each host computes, then takes part, and so on.

    A host computes again when everything sent to it in the iteration before has arrived, by a
    local row of its own; all it sends in an iteration waits for that row. A host that receives
    nothing (the senders of an incast, the root of a broadcast) waits for a release, a message of
    ``RELEASE_BYTES`` from the host it sent to last, once that one has received everything.

    Args:
        graph: one iteration.
        iterations: how often.
        compute_s: how long each host computes before each one.

    Raises:
        ValueError: no iteration, or a time that is not finite and 0 or more.
    """
    if iterations < 1:
        raise ValueError(f"iterations {iterations}: 1 or more expected")
    if not (math.isfinite(compute_s) and compute_s >= 0):
        raise ValueError(f"compute_s {compute_s}: 0 or more expected")
    hosts, place = np.unique([graph.source, graph.destination], return_inverse=True)
    source, destination = place.reshape(2, -1)
    computing, n = len(hosts), len(graph)

    # Who sends but never receives needs a release from the last host it sends to.
    sent = ~graph.local
    last_to = np.full(computing, -1)
    last_to[source[sent]] = destination[sent]
    receives = np.bincount(destination[sent], minlength=computing) > 0
    released = np.flatnonzero((last_to >= 0) & ~receives)
    releasing = last_to[released]

    # Rows of one iteration: computation, the graph, releases.
    per_iteration = computing + n + len(released)
    origin = np.concatenate([np.arange(computing), source, releasing])
    target = np.concatenate([np.arange(computing), destination, released])
    arrivals = offsets_of(np.bincount(target, minlength=computing))
    arriving = np.argsort(target, kind="stable")
    # A release waits for all arrivals but the first, which is the computation. None of them is a
    # release: who releases receives, and so is not released.
    inside_counts = np.concatenate([graph.waits() + 1, np.diff(arrivals)[releasing] - 1])
    inside = np.empty(inside_counts.sum(), np.int64)
    starts = offsets_of(inside_counts)
    inside[starts[:n]] = source
    inside[ranges(starts[:n] + 1, graph.waits())] = graph.after + computing
    inside[starts[n] :] = arriving[ranges(arrivals[releasing] + 1, inside_counts[n:])]

    def tiled(column: NDArray[np.int64], by: int = 0) -> Ints:
        return (column + by * np.arange(iterations)[:, None]).ravel()

    waits = tiled(np.concatenate([np.diff(arrivals), inside_counts]))
    waits[:computing] = 0
    body = np.concatenate([arriving - per_iteration, inside])
    after = tiled(body, per_iteration)[len(arriving) :]
    none = np.full(len(released), -1)
    delay = np.concatenate([np.full(computing, compute_s), graph.delay_s, np.zeros(len(released))])
    step = np.concatenate([np.full(computing, -1), graph.step, none])
    label = np.concatenate([np.full(computing, NO_COLLECTIVE), graph.collective, none])
    size = np.concatenate(
        [np.zeros(computing, np.int64), graph.size_bytes, np.full(len(released), RELEASE_BYTES)]
    )
    # Nobody waits for the last iteration's releases.
    rows = iterations * per_iteration - len(released)
    offsets = offsets_of(waits)[: rows + 1]
    return MessageGraph(
        source=hosts[tiled(origin)[:rows]],
        destination=hosts[tiled(target)[:rows]],
        size_bytes=tiled(size)[:rows],
        after_offsets=offsets,
        after=after[: offsets[-1]],
        delay_s=np.tile(delay, iterations)[:rows],
        step=tiled(step)[:rows],
        iteration=np.repeat(np.arange(iterations), per_iteration)[:rows],
        collective=tiled(label)[:rows],
        collectives=graph.collectives,
    )
