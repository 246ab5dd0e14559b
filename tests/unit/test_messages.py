"""Message graphs: what contradicts itself is refused; order, dependents, training loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.model.collectives import (
    all_to_all,
    broadcast,
    incast,
    permutation,
    ring_all_reduce,
)
from fabric_emu.model.messages import NO_COLLECTIVE, Collective, MessageGraph, generations, ranges
from fabric_emu.model.training import RELEASE_BYTES, training_loop


def columns(ends: list[tuple[int, int]], waits: list[list[int]], **changes: Any) -> dict[str, Any]:
    """Return the columns of messages of 100 bytes between these hosts."""
    n = len(ends)
    found: dict[str, Any] = {
        "source": np.array([source for source, _ in ends], np.int64),
        "destination": np.array([destination for _, destination in ends], np.int64),
        "size_bytes": np.array([100 * (a != b) for a, b in ends], np.int64),
        "after_offsets": np.cumsum([0, *map(len, waits)]),
        "after": np.array([row for rows in waits for row in rows], np.int64),
        "delay_s": np.zeros(n),
        "step": np.zeros(n, np.int64),
        "iteration": np.zeros(n, np.int64),
        "collective": np.full(n, NO_COLLECTIVE),
        "collectives": (),
    }
    return found | changes


def waits_for(graph: MessageGraph, row: int) -> list[int]:
    return graph.after[graph.after_offsets[row] : graph.after_offsets[row + 1]].tolist()


RELAY = [(0, 1), (1, 2), (2, 2), (2, 0)]
RELAY_AFTER = [[], [0], [1], [1, 2]]


def test_dependents_are_the_inverse_of_after():
    graph = MessageGraph(**columns(RELAY, RELAY_AFTER))
    offsets, rows = graph.dependents()
    assert [rows[a:b].tolist() for a, b in itertools.pairwise(offsets)] == [
        [1], [2, 3], [3], [],
    ]  # fmt: skip
    assert graph.waits().tolist() == [0, 1, 1, 2]
    assert graph.local.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"size_bytes": np.array([0, 1, 0, 1])}, "size_bytes: over 0"),
        ({"size_bytes": np.array([1, 1, 1, 1])}, "0 from a host to itself"),
        ({"source": np.array([-1, 1, 2, 2])}, "hosts"),
        ({"delay_s": np.array([0, np.nan, 0, 0])}, "delay_s"),
        ({"delay_s": np.array([0, -1.0, 0, 0])}, "delay_s"),
        ({"step": np.zeros(3, np.int64)}, "4 rows"),
        ({"collective": np.array([0, 0, 0, 0])}, "collective"),
        ({"after_offsets": np.array([0, 0, 1, 2])}, "after_offsets"),
        ({"after_offsets": np.array([0, 2, 1, 2, 4])}, "never falling"),
        ({"after": np.array([0, 1, 1, 9])}, "after: rows 0 to 3"),
    ],
)
def test_contradictions_are_refused(changes, what):
    with pytest.raises(ValueError, match=what):
        MessageGraph(**columns(RELAY, RELAY_AFTER, **changes))


def test_what_arrives_elsewhere_cannot_be_waited_for():
    with pytest.raises(ValueError, match="message 1 waits at host 2 for message 0, which goes"):
        MessageGraph(**columns([(0, 1), (2, 0)], [[], [0]]))


def test_cycles_are_refused():
    cycle = columns([(0, 1), (1, 0), (0, 1)], [[1], [0], []])
    with pytest.raises(ValueError, match="waits for a later one"):
        MessageGraph(**cycle)
    with pytest.raises(ValueError, match="message 0 waits, in the end, for itself"):
        MessageGraph.ordered(**cycle)
    itself = columns([(0, 0)], [[0]])
    with pytest.raises(ValueError, match="waits for a later one"):
        MessageGraph(**itself)


def test_rows_in_any_order_can_be_sorted():
    given_rows = columns(
        [(2, 0), (1, 2), (0, 1)], [[1], [2], []], delay_s=np.array([3.0, 2.0, 1.0])
    )
    with pytest.raises(ValueError, match="later"):
        MessageGraph(**given_rows)
    graph, order = MessageGraph.ordered(**given_rows)
    assert order.tolist() == [2, 1, 0]
    assert graph.source.tolist() == [0, 1, 2]
    assert graph.delay_s.tolist() == [1, 2, 3]
    assert [waits_for(graph, row) for row in range(3)] == [[], [0], [1]]


@given(st.integers(2, 7), st.integers(1, 300), st.randoms(use_true_random=False))
def test_sorting_undoes_shuffling(n, size, random):
    graph = ring_all_reduce(range(n), size, 20)
    shuffled = list(range(len(graph)))
    random.shuffle(shuffled)
    place = np.argsort(shuffled)
    names = ("source", "destination", "size_bytes", "delay_s", "step", "iteration", "collective")
    counts = graph.waits()[shuffled]
    again, order = MessageGraph.ordered(
        **{name: getattr(graph, name)[shuffled] for name in names},
        after_offsets=np.concatenate([[0], np.cumsum(counts)]),
        after=place[graph.after[ranges(graph.after_offsets[shuffled], counts)]],
        collectives=graph.collectives,
    )
    # Generations of a ring are its steps.
    assert (again.step == np.sort(graph.step)).all()
    back = np.array(shuffled)[order]  # which original row each row is
    assert sorted(back.tolist()) == list(range(len(graph)))
    for row in range(len(again)):
        assert back[waits_for(again, row)].tolist() == waits_for(graph, back[row])


def test_generations_are_those_of_the_longest_chain():
    graph = MessageGraph(**columns(RELAY, RELAY_AFTER))
    found = generations(graph.after_offsets, graph.after)
    assert [rows.tolist() for rows in found] == [[0], [1], [2], [3]]
    assert generations(np.zeros(1, np.int64), np.zeros(0, np.int64)) == []


def test_ranges():
    starts, counts = np.array([5, 0, 9]), np.array([2, 0, 3])
    assert ranges(starts, counts).tolist() == [5, 6, 9, 10, 11]
    assert not len(ranges(starts[:0], counts[:0]))


def test_occurrences_are_labelled():
    two = (Collective("ring-all-reduce", 2, 10), Collective("all-to-all", 2, 10))
    graph = MessageGraph(
        **columns(
            [(0, 1)] * 5,
            [[]] * 5,
            iteration=np.array([0, 0, 0, 1, 1]),
            collective=np.array([0, 1, -1, 1, 1]),
            collectives=two,
        )
    )
    found = graph.occurrences()
    assert found.of_row.tolist() == [0, 1, -1, 2, 2]
    assert found.iteration.tolist() == [0, 0, 1]
    assert found.collective.tolist() == [0, 1, 1]


GRAPHS = [
    ring_all_reduce(range(4), 1000, 100),
    all_to_all([3, 1, 2], 1000, 150, in_flight=1),
    permutation(range(6), 500, 2, 100),
    broadcast([4, 5, 9], 300, 100),
    incast([7, 1, 2, 3], 200),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.collectives[0].name)
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_host_computes_when_its_last_iteration_is_over(graph, iterations):
    loop = training_loop(graph, iterations, 0.25)
    computing: dict[tuple[int, int], int] = {}  # (iteration, host): its local row
    for row in np.flatnonzero(loop.local).tolist():
        computing[int(loop.iteration[row]), int(loop.source[row])] = row
    hosts = {*graph.source.tolist(), *graph.destination.tolist()}
    assert set(computing) == {(k, host) for k in range(iterations) for host in hosts}
    for (iteration, host), row in computing.items():
        before = (loop.iteration == iteration - 1) & (loop.destination == host)
        assert sorted(waits_for(loop, row)) == np.flatnonzero(before).tolist()
        assert loop.delay_s[row] == 0.25
        # Nobody goes on without a sign that its own iteration is over.
        assert iteration == 0 or (before & ~loop.local).any()
    # All a host sends in an iteration, releases apart, waits for its computation.
    for row in np.flatnonzero(loop.collective == 0).tolist():
        assert computing[int(loop.iteration[row]), int(loop.source[row])] in waits_for(loop, row)
    # The graph itself is in each iteration, as it was.
    for iteration in range(iterations):
        rows = np.flatnonzero((loop.iteration == iteration) & (loop.collective == 0))
        assert (loop.source[rows] == graph.source).all()
        assert (loop.destination[rows] == graph.destination).all()
        assert (loop.size_bytes[rows] == graph.size_bytes).all()
        for place, row in enumerate(rows.tolist()):
            inside = [int(k) for k in waits_for(loop, row) if not loop.local[k]]
            assert inside == rows[waits_for(graph, place)].tolist()


def test_senders_of_an_incast_are_released_by_the_receiver():
    loop = training_loop(incast([7, 1, 2], 200), 2)
    rows = np.flatnonzero(loop.size_bytes == RELEASE_BYTES)
    assert [(loop.source[k], loop.destination[k]) for k in rows] == [(7, 1), (7, 2)]
    assert (loop.iteration[rows] == 0).all()  # nobody waits for those of the last
    arrivals = np.flatnonzero((loop.destination == 7) & ~loop.local & (loop.iteration == 0))
    for row in rows.tolist():
        assert waits_for(loop, row) == arrivals.tolist()


def test_the_root_of_a_broadcast_is_released_by_its_neighbour():
    loop = training_loop(broadcast([4, 5, 9], 300, 100), 2)
    rows = np.flatnonzero(loop.size_bytes == RELEASE_BYTES)
    assert [(loop.source[k], loop.destination[k]) for k in rows] == [(5, 4)]


@pytest.mark.parametrize(("iterations", "compute_s"), [(0, 1.0), (1, -1.0), (1, float("inf"))])
def test_impossible_loops_are_refused(iterations, compute_s):
    with pytest.raises(ValueError, match="expected"):
        training_loop(GRAPHS[0], iterations, compute_s)
