"""Collectives: every byte goes where the algorithm says, and what arrives is the right data.

Messages are delivered in random orders that the graphs allow. Data are symbolic: a piece of an
array at a rank is a count of whose contributions it holds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.model.collectives import (
    all_to_all,
    broadcast,
    incast,
    permutation,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from fabric_emu.model.messages import MessageGraph

RANKS = st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True)
SIZES = st.integers(1, 500)
LIMITS = st.one_of(st.none(), st.integers(25, 600))
SEEDS = st.integers(0, 1000)


def chunks(size: int, n: int) -> list[int]:
    return [size // n + (place < size % n) for place in range(n)]


def sent_bytes(graph: MessageGraph, host: int) -> int:
    return int(graph.size_bytes[graph.source == host].sum())


def received_bytes(graph: MessageGraph, host: int) -> int:
    return int(graph.size_bytes[graph.destination == host].sum())


def deliver(
    graph: MessageGraph,
    seed: int,
    started: Callable[[int], None] = lambda _: None,
    arrived: Callable[[int], None] = lambda _: None,
) -> None:
    """Start messages as soon as they may, and let those under way arrive in a random order."""
    draw = random.Random(seed)
    offsets, dependents = graph.dependents()
    waiting = graph.waits()
    under_way = np.flatnonzero(waiting == 0).tolist()
    for row in under_way:
        started(row)
    for _ in range(len(graph)):
        row = under_way.pop(draw.randrange(len(under_way)))  # fails when all wait for each other
        arrived(row)
        for dependent in dependents[offsets[row] : offsets[row + 1]].tolist():
            waiting[dependent] -= 1
            if not waiting[dependent]:
                started(dependent)
                under_way.append(dependent)
    assert not under_way


def chains(graph: MessageGraph) -> list[int]:
    """Return of which piece each message is: the first message that carries it."""
    first: list[int] = []
    for row in range(len(graph)):
        before = graph.after[graph.after_offsets[row] : graph.after_offsets[row + 1]]
        assert len(before) <= 1
        first.append(first[before[0]] if len(before) else row)
    return first


def run_symbolically(
    graph: MessageGraph, holds: dict[tuple[int, int], Counter[int]], adding_steps: int, seed: int
) -> dict[tuple[int, int], Counter[int]]:
    """Return what hosts hold of each piece in the end.

    Args:
        holds: by host and piece, whose contributions; what is missing is nothing.
        adding_steps: in steps before this one the receiver adds what arrives, then it replaces.
    """
    piece = chains(graph)
    payload: dict[int, Counter[int]] = {}

    def started(row: int) -> None:
        payload[row] = Counter(holds.get((int(graph.source[row]), piece[row]), Counter()))

    def arrived(row: int) -> None:
        place = (int(graph.destination[row]), piece[row])
        own = holds.get(place, Counter()) if graph.step[row] < adding_steps else Counter()
        holds[place] = payload[row] + own

    deliver(graph, seed, started, arrived)
    return holds


@given(RANKS, SIZES, LIMITS, SEEDS)
def test_all_reduce_reduces_everything_everywhere(ranks, size, limit, seed):
    graph = ring_all_reduce(ranks, size, limit)
    pieces = set(chains(graph))
    holds = {(host, piece): Counter([host]) for host in ranks for piece in pieces}
    holds = run_symbolically(graph, holds, len(ranks) - 1, seed)
    # Everybody's contribution exactly once, in every piece at every rank.
    assert holds == {(host, piece): Counter(ranks) for host in ranks for piece in pieces}
    assert graph.size_bytes[list(pieces)].sum() == size
    assert graph.step.max() == 2 * (len(ranks) - 1) - 1


@given(RANKS, SIZES, LIMITS)
def test_all_reduce_conserves_bytes(ranks, size, limit):
    graph = ring_all_reduce(ranks, size, limit)
    n, chunk = len(ranks), chunks(size, len(ranks))
    for r, host in enumerate(ranks):
        # Reducing, rank r sends all chunks but r, which is then its own, and receives all but the
        # one it begins with, r - 1; gathering, it sends all but r + 1 and receives all but r.
        assert sent_bytes(graph, host) == 2 * size - chunk[r] - chunk[(r + 1) % n]
        assert received_bytes(graph, host) == 2 * size - chunk[r - 1] - chunk[r]
        for step in range(2 * (n - 1)):
            # One chunk a step, the same that came in the step before.
            out = graph.size_bytes[(graph.source == host) & (graph.step == step)].sum()
            came = graph.size_bytes[(graph.destination == host) & (graph.step == step - 1)].sum()
            assert out == chunk[(r - 1 - step) % n]
            assert step == 0 or out == came


@given(RANKS, SIZES, LIMITS, SEEDS)
def test_reduce_scatter_leaves_each_rank_its_sum(ranks, size, limit, seed):
    graph = ring_reduce_scatter(ranks, size, limit)
    piece = chains(graph)
    holds = {(host, p): Counter([host]) for host in ranks for p in set(piece)}
    holds = run_symbolically(graph, holds, len(ranks) - 1, seed)
    share: Counter[int] = Counter()
    for (host, p), found in holds.items():
        if found == Counter(ranks):  # everybody's contribution exactly once
            share[host] += int(graph.size_bytes[p])
    assert [share[host] for host in ranks] == chunks(size, len(ranks))
    for r, host in enumerate(ranks):
        assert sent_bytes(graph, host) == size - chunks(size, len(ranks))[r]


@given(RANKS, SIZES, LIMITS, SEEDS)
def test_all_gather_brings_every_chunk_everywhere(ranks, size, limit, seed):
    graph = ring_all_gather(ranks, size, limit)
    piece = chains(graph)
    owner = {p: int(graph.source[p]) for p in set(piece)}
    own: Counter[int] = Counter()
    for p, host in owner.items():
        own[host] += int(graph.size_bytes[p])
    assert [own[host] for host in ranks] == chunks(size, len(ranks))
    holds = {(host, p): Counter([host]) for p, host in owner.items()}
    holds = run_symbolically(graph, holds, 0, seed)
    assert holds == {(host, p): Counter([of]) for host in ranks for p, of in owner.items()}
    for r, host in enumerate(ranks):
        assert received_bytes(graph, host) == size - chunks(size, len(ranks))[r]


@given(RANKS, SIZES, LIMITS, SEEDS)
def test_broadcast_goes_down_the_chain(ranks, size, limit, seed):
    graph = broadcast(ranks, size, limit)
    pieces = set(chains(graph))
    holds = {(ranks[0], piece): Counter([ranks[0]]) for piece in pieces}
    holds = run_symbolically(graph, holds, 0, seed)
    assert holds == {(host, piece): Counter([ranks[0]]) for host in ranks for piece in pieces}
    for host in ranks:
        assert sent_bytes(graph, host) == (0 if host == ranks[-1] else size)
        assert received_bytes(graph, host) == (0 if host == ranks[0] else size)


@given(RANKS, SIZES, LIMITS, st.one_of(st.none(), st.integers(1, 8)), SEEDS)
def test_all_to_all_brings_each_part_to_its_rank(ranks, size, limit, in_flight, seed):
    graph = all_to_all(ranks, size, limit, in_flight)
    n, part = len(ranks), chunks(size, len(ranks))
    rank_of = {host: r for r, host in enumerate(ranks)}
    between: Counter[tuple[int, int]] = Counter()
    for row in range(len(graph)):
        ends = (int(graph.source[row]), int(graph.destination[row]))
        between[ends] += int(graph.size_bytes[row])
        assert (rank_of[ends[1]] - rank_of[ends[0]]) % n == graph.step[row] + 1
    assert between == Counter(
        {(a, b): part[rank_of[b]] for a in ranks for b in ranks if a != b and part[rank_of[b]]}
    )
    here: Counter[tuple[int, int]] = Counter()  # bytes arrived, by host and step

    def started(row: int) -> None:
        if in_flight is not None and graph.step[row] >= in_flight:
            host = int(graph.source[row])
            assert here[host, int(graph.step[row]) - in_flight] == part[rank_of[host]]

    def arrived(row: int) -> None:
        here[int(graph.destination[row]), int(graph.step[row])] += int(graph.size_bytes[row])

    deliver(graph, seed, started, arrived)
    assert in_flight is not None or not graph.waits().any()


@given(RANKS, SIZES, LIMITS, st.integers(-20, 20))
def test_permutation(ranks, size, limit, shift):
    if shift % len(ranks) == 0:
        with pytest.raises(ValueError, match="shift"):
            permutation(ranks, size, shift, limit)
        return
    graph = permutation(ranks, size, shift, limit)
    to = {ranks[r]: ranks[(r + shift) % len(ranks)] for r in range(len(ranks))}
    assert all(to[a] == b for a, b in zip(graph.source, graph.destination, strict=True))
    assert all(sent_bytes(graph, host) == received_bytes(graph, host) == size for host in ranks)
    assert not len(graph.after)


@given(RANKS, SIZES, LIMITS)
def test_incast(ranks, size, limit):
    graph = incast(ranks, size, limit)
    assert (graph.destination == ranks[0]).all()
    assert all(sent_bytes(graph, host) == size for host in ranks[1:])
    assert graph.collectives[0].size_bytes == size * len(ranks)


@given(SIZES, st.integers(1, 600))
def test_messages_are_full_but_for_the_last(size, limit):
    sizes = permutation([0, 1], size, 1, limit).size_bytes[: -(-size // limit)]
    assert (sizes[:-1] == limit).all()
    assert 0 < sizes[-1] <= limit


def test_three_ranks_by_hand():
    graph = ring_all_reduce([5, 6, 7], 8)  # chunks of 3, 3 and 2 bytes
    rows = zip(graph.step, graph.source, graph.destination, graph.size_bytes, strict=True)
    assert [tuple(int(x) for x in row) for row in rows] == [
        (0, 6, 7, 3), (0, 7, 5, 3), (0, 5, 6, 2),
        (1, 7, 5, 3), (1, 5, 6, 3), (1, 6, 7, 2),
        (2, 5, 6, 3), (2, 6, 7, 3), (2, 7, 5, 2),
        (3, 6, 7, 3), (3, 7, 5, 3), (3, 5, 6, 2),
    ]  # fmt: skip
    assert graph.after.tolist() == list(range(9))
    assert graph.waits().tolist() == [0] * 3 + [1] * 9


def test_arrays_smaller_than_the_ranks_send_no_empty_chunks():
    graph = ring_all_reduce(range(8), 3)
    assert len(graph) == 3 * 14
    assert (graph.size_bytes == 1).all()


def test_hundreds_of_megabytes():
    graph = ring_all_reduce(range(64), 512 << 20, 1 << 20)
    assert len(graph) == 126 * 64 * 8
    assert graph.size_bytes.sum() == 126 * (512 << 20)


@pytest.mark.parametrize(
    ("ranks", "size", "limit", "what"),
    [
        ([1], 10, None, "ranks"),
        ([1, 2, 1], 10, None, "different hosts"),
        ([1, 2], 0, None, "size_bytes"),
        ([1, 2], 10, 0, "message_bytes"),
    ],
)
@pytest.mark.parametrize("collective", [ring_all_reduce, all_to_all, broadcast, incast])
def test_impossible_collectives_are_refused(collective, ranks, size, limit, what):
    with pytest.raises(ValueError, match=what):
        collective(ranks, size, limit)
    with pytest.raises(ValueError, match="in_flight"):
        all_to_all([1, 2], 10, None, 0)
