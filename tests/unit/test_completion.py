"""Completion against the ideal, and bandwidth by nccl-tests' formulas."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabric_emu.measure.completion import Completion, bus_factor, complete
from fabric_emu.measure.ideal import Framing, IdealFabric
from fabric_emu.model.collectives import (
    all_to_all,
    broadcast,
    incast,
    permutation,
    ring_all_reduce,
)
from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.topology import Topology
from fabric_emu.model.training import training_loop

FABRIC = IdealFabric(
    Topology(leaves=2, spines=2, hosts_per_leaf=2, link_rate="8mbit"),
    Framing(payload_bytes=1000, header_bytes=100),
)


def timed(graph: MessageGraph, finish: list[float]) -> Completion:
    return complete(graph, np.zeros(len(graph)), np.array(finish), FABRIC)


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("ring-all-reduce", 8, 1.75),
        ("ring-all-reduce", 2, 1.0),
        ("ring-all-gather", 8, 0.875),
        ("ring-reduce-scatter", 4, 0.75),
        ("all-to-all", 4, 0.75),
        ("incast", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("permutation", 16, 1.0),
    ],
)
def test_bus_factors(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


def test_bandwidths_by_hand():
    # 1 MB reduced by 4 ranks in 0.5 s: 2 MB/s; times 2 x 3 / 4 that is 3 MB/s.
    ring = ring_all_reduce(range(4), 10**6)
    found = timed(ring, [0.5] * len(ring))
    assert found.algbw_bps() == pytest.approx(16e6)
    assert found.busbw_bps() == pytest.approx(24e6)
    # Each of 3 senders brings 1 MB in 1 s: the receiver's link carries 3 MB/s.
    assert timed(incast(range(4), 10**6), [1.0] * 3).busbw_bps() == pytest.approx(24e6)
    # An all-to-all of 4 MB: each rank keeps 1 MB and sends 3.
    found = timed(all_to_all(range(4), 4 * 10**6), [1.0] * 12)
    assert found.algbw_bps() == pytest.approx(32e6)
    assert found.busbw_bps() == pytest.approx(24e6)


def test_bandwidth_of_iterations_is_that_of_their_mean_time():
    loop = training_loop(permutation([0, 1], 10**6), 2)
    finish = np.where(loop.iteration == 0, 1.0, 4.0)
    start = np.where(loop.iteration == 0, 0.0, 1.0)
    found = complete(loop, start, finish, FABRIC)
    assert found.collective_s.tolist() == [1.0, 3.0]
    assert found.algbw_bps() == pytest.approx(8e6 / 2)  # as nccl-tests: S over the mean of 2 s
    assert found.iteration_s().tolist() == [1.0, 3.0]


def test_summary():
    found = timed(permutation(range(4), 1000, 2), [0.0044, 0.0044, 0.0088, 0.0132])
    summary = found.summary()
    assert summary["completion"] == pytest.approx(
        {
            "p50": 0.0132, "p99": 0.0132, "max": 0.0132, "ideal": 0.0044, "over_ideal": 3.0,
            "over_ideal_p50": 3.0, "over_ideal_p99": 3.0, "count": 1, "unfinished": 0,
        }
    )  # fmt: skip
    # p99 of 4 values lies at place 0.99 x 3 = 2.97 of 0 to 3.
    p99 = 0.0088 + 0.97 * 0.0044
    assert summary["messages"] == pytest.approx(
        {
            "p50": 0.0066, "p99": p99, "max": 0.0132, "ideal": 0.0044, "over_ideal": 3.0,
            "over_ideal_p50": 1.5, "over_ideal_p99": p99 / 0.0044, "count": 4, "unfinished": 0,
        }
    )  # fmt: skip
    assert summary["algbw"] == pytest.approx(8000 / 0.0132)


def test_columns_leave_local_rows_out():
    loop = training_loop(permutation([0, 1], 10**6), 2, compute_s=0.5)
    assert loop.local.any()
    finish = np.where(loop.iteration == 0, 1.0, 4.0)
    columns = complete(loop, np.zeros(len(loop)), finish, FABRIC).columns()
    assert columns["message"].tolist() == np.flatnonzero(~loop.local).tolist()
    assert columns["taken_s"].tolist() == [1.0, 1.0, 4.0, 4.0]
    assert columns["occurrence"].tolist() == [0, 0, 1, 1]
    assert columns["collective_name"].tolist() == ["permutation"] * 2
    assert (columns["collective_begin_s"] + columns["collective_taken_s"]).tolist() == [1.0, 4.0]


def test_what_has_not_arrived_takes_for_ever():
    graph = permutation(range(4), 1000, 2)
    found = timed(graph, [0.1, 0.1, 0.1, np.nan])
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert found.unfinished == 1
    assert summary["messages"]["p50"] == pytest.approx(0.1)
    assert summary["messages"]["p99"] is summary["messages"]["max"] is None
    assert summary["messages"]["over_ideal"] is None
    assert summary["messages"]["unfinished"] == summary["completion"]["unfinished"] == 1
    assert summary["completion"]["max"] is summary["completion"]["over_ideal"] is None
    assert summary["busbw"] == summary["algbw"] == 0
    assert summary["iteration"]["max"] is None


def test_what_has_never_started():
    graph = broadcast([0, 1, 2], 1000)
    never = np.full(len(graph), np.nan)
    found = complete(graph, never, never, FABRIC)
    assert np.isnan(found.begin_s).all()
    assert np.isnan(found.collective_s).all()
    # The first was sent and lost, the second has therefore never started.
    found = complete(graph, np.array([0.0, np.nan]), never, FABRIC)
    assert found.begin_s.tolist() == [0.0]
    assert found.unfinished == 2


def test_no_messages():
    empty = permutation([0, 1], 1, 1)
    nothing = empty.source[:0]
    graph = MessageGraph(
        nothing, nothing, nothing, np.zeros(1, np.int64), nothing,
        nothing.astype(float), nothing, nothing, nothing, (),
    )  # fmt: skip
    found = timed(graph, [])
    assert json.dumps(found.summary(), allow_nan=False)
    assert found.summary()["completion"]["max"] is None
    assert found.busbw_bps() == 0


def test_arriving_before_the_start_is_refused():
    graph = permutation([0, 1], 1000)
    for start in (np.array([0.2, 0.0]), np.array([np.nan, 0.0])):
        with pytest.raises(ValueError, match="finish_s"):
            complete(graph, start, np.array([0.1, 0.1]), FABRIC)
