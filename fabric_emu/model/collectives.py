"""Collective operations as graphs of messages.

Each function takes the hosts that are ranks 0 to N - 1, in that order, and returns what they send.
A chunk is cut into messages of ``message_bytes`` and one with the rest; without it a chunk is one
message. Chunks of one array differ by a byte at most; empty ones are not sent. Every piece goes
its way by itself: it is passed on when it has arrived, whatever the pieces beside it do, as NCCL
does with the slices of a chunk.

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", JPDC 69, 2009 (rings); R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19, 2005 (all-to-all in rotation).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import Collective, Ints, MessageGraph, offsets_of, ranges

Ranks = Sequence[int] | NDArray[np.int64]


def ring_all_reduce(
    ranks: Ranks, size_bytes: int, message_bytes: int | None = None
) -> MessageGraph:
    """Return a ring all-reduce: 2 (N - 1) steps, reduce-scatter and then all-gather.

    Chunk c starts at rank c + 1, is complete at rank c after N - 1 steps, and goes round again.

    Raises:
        ValueError: fewer than 2 ranks, a host twice, or a size that is not over 0.
    """
    return _ring("ring-all-reduce", ranks, size_bytes, message_bytes, first=1, rounds=2)


def ring_reduce_scatter(
    ranks: Ranks, size_bytes: int, message_bytes: int | None = None
) -> MessageGraph:
    """Return a ring reduce-scatter: N - 1 steps, after which rank c has the sum of chunk c.

    Args:
        size_bytes: what each rank starts with, N times what it ends with.

    Raises:
        ValueError: as ``ring_all_reduce``.
    """
    return _ring("ring-reduce-scatter", ranks, size_bytes, message_bytes, first=1, rounds=1)


def ring_all_gather(
    ranks: Ranks, size_bytes: int, message_bytes: int | None = None
) -> MessageGraph:
    """Return a ring all-gather: N - 1 steps, in which chunk c of rank c reaches all others.

    Args:
        size_bytes: what each rank ends with, N times what it starts with.

    Raises:
        ValueError: as ``ring_all_reduce``.
    """
    return _ring("ring-all-gather", ranks, size_bytes, message_bytes, first=0, rounds=1)


def broadcast(ranks: Ranks, size_bytes: int, message_bytes: int | None = None) -> MessageGraph:
    """Return a broadcast from rank 0 down the chain of ranks, pipelined message by message.

    The chain is what NCCL's ring does; cut into enough messages it takes little longer than the
    root needs to send everything once, however many ranks there are.

    Raises:
        ValueError: as ``ring_all_reduce``.
    """
    hosts = _hosts(ranks, size_bytes)
    _, pieces = _pieces(np.array([size_bytes]), message_bytes)
    about = Collective("broadcast", len(hosts), size_bytes)
    return _relayed(about, hosts, np.zeros_like(pieces), pieces, len(hosts) - 1)


def all_to_all(
    ranks: Ranks, size_bytes: int, message_bytes: int | None = None, in_flight: int | None = None
) -> MessageGraph:
    """Return an all-to-all in rotation: in step s rank r sends its part for rank r + s + 1.

    Args:
        size_bytes: what each rank has for all ranks together, the part it keeps included.
        in_flight: step s waits for what step s - ``in_flight`` brings; None: no step waits.

    Raises:
        ValueError: as ``ring_all_reduce``, or ``in_flight`` under 1.
    """
    hosts = _hosts(ranks, size_bytes)
    n = len(hosts)
    if in_flight is not None and in_flight < 1:
        raise ValueError(f"in_flight {in_flight}: 1 or more expected")
    parts = _chunks(size_bytes, n)
    step, rank = (column.ravel() for column in np.indices((n - 1, n)))
    peer = (rank + step + 1) % n
    of, pieces = _pieces(parts[peer], message_bytes)
    counts = np.bincount(of, minlength=len(peer))
    waited = np.zeros(len(peer), np.int64)
    first = np.zeros(len(peer), np.int64)
    if in_flight is not None:
        # The pair that brought this rank its part, that many steps ago.
        earlier = step - in_flight
        pair = earlier * n + (rank - earlier - 1) % n
        waiting = earlier >= 0
        waited[waiting] = counts[pair[waiting]]
        first[waiting] = offsets_of(counts)[pair[waiting]]
    return MessageGraph(
        source=hosts[rank[of]],
        destination=hosts[peer[of]],
        size_bytes=pieces,
        after_offsets=offsets_of(waited[of]),
        after=ranges(first[of], waited[of]),
        delay_s=np.zeros(len(of)),
        step=step[of],
        iteration=np.zeros(len(of), np.int64),
        collective=np.zeros(len(of), np.int64),
        collectives=(Collective("all-to-all", n, size_bytes),),
    )


def permutation(
    ranks: Ranks, size_bytes: int, shift: int = 1, message_bytes: int | None = None
) -> MessageGraph:
    """Return what every rank r sends to rank r + ``shift``; nothing waits.

    Args:
        size_bytes: what each rank sends.

    Raises:
        ValueError: as ``ring_all_reduce``, or a shift from every rank to itself.
    """
    hosts = _hosts(ranks, size_bytes)
    if shift % len(hosts) == 0:
        raise ValueError(f"shift {shift}: not a multiple of {len(hosts)} ranks expected")
    about = Collective("permutation", len(hosts), size_bytes)
    return _at_once(about, hosts, np.roll(hosts, -shift), size_bytes, message_bytes)


def incast(ranks: Ranks, size_bytes: int, message_bytes: int | None = None) -> MessageGraph:
    """Return what all other ranks send to rank 0 at once; counted like a gather.

    Args:
        size_bytes: what each of them sends.

    Raises:
        ValueError: as ``ring_all_reduce``.
    """
    hosts = _hosts(ranks, size_bytes)
    about = Collective("incast", len(hosts), size_bytes * len(hosts))
    to = np.repeat(hosts[:1], len(hosts) - 1)
    return _at_once(about, hosts[1:], to, size_bytes, message_bytes)


def _hosts(ranks: Ranks, size_bytes: int) -> Ints:
    hosts = np.array(ranks, np.int64)
    if len(hosts) < 2:
        raise ValueError(f"{len(hosts)} ranks: 2 or more expected")
    if len(np.unique(hosts)) < len(hosts):
        raise ValueError("ranks: different hosts expected")
    if size_bytes < 1:
        raise ValueError(f"size_bytes {size_bytes}: over 0 expected")
    return hosts


def _chunks(size_bytes: int, count: int) -> Ints:
    """Return the sizes of parts that differ by a byte at most, the larger ones first."""
    each, rest = divmod(size_bytes, count)
    return each + (np.arange(count) < rest)


def _pieces(sizes: Ints, message_bytes: int | None) -> tuple[Ints, Ints]:
    """Return of which chunk each message is, and its size; none for empty chunks."""
    limit = max(int(sizes.max()), 1) if message_bytes is None else message_bytes
    if limit < 1:
        raise ValueError(f"message_bytes {message_bytes}: over 0 expected")
    counts = -(-sizes // limit)
    of = np.repeat(np.arange(len(sizes)), counts)
    place = ranges(np.zeros_like(counts), counts)
    return of, np.minimum(limit, sizes[of] - place * limit)


def _ring(
    name: str, ranks: Ranks, size_bytes: int, message_bytes: int | None, first: int, rounds: int
) -> MessageGraph:
    hosts = _hosts(ranks, size_bytes)
    n = len(hosts)
    chunk, pieces = _pieces(_chunks(size_bytes, n), message_bytes)
    start = (chunk + first) % n
    return _relayed(Collective(name, n, size_bytes), hosts, start, pieces, rounds * (n - 1))


def _relayed(about: Collective, hosts: Ints, start: Ints, sizes: Ints, hops: int) -> MessageGraph:
    """Return pieces handed on from rank to rank, each ``hops`` times from its ``start``."""
    count = len(sizes)
    step = np.repeat(np.arange(hops), count)
    rank = np.tile(start, hops) + step
    waits = np.minimum(step, 1)
    return MessageGraph(
        source=hosts[rank % len(hosts)],
        destination=hosts[(rank + 1) % len(hosts)],
        size_bytes=np.tile(sizes, hops),
        after_offsets=offsets_of(waits),
        after=np.arange(count * (hops - 1)),  # each row the one of the step before
        delay_s=np.zeros(count * hops),
        step=step,
        iteration=np.zeros_like(step),
        collective=np.zeros_like(step),
        collectives=(about,),
    )


def _at_once(
    about: Collective, source: Ints, destination: Ints, each: int, message_bytes: int | None
) -> MessageGraph:
    of, pieces = _pieces(np.full(len(source), each), message_bytes)
    zeros = np.zeros_like(of)
    return MessageGraph(
        source=source[of],
        destination=destination[of],
        size_bytes=pieces,
        after_offsets=np.zeros(len(of) + 1, np.int64),
        after=np.zeros(0, np.int64),
        delay_s=np.zeros(len(of)),
        step=zeros,
        iteration=zeros,
        collective=zeros,
        collectives=(about,),
    )
