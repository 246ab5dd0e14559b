"""Open-loop schedules: counts, queue pairs, sequence numbers and entropy of the k-th packet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.schedule import Schedule


def schedule(queue_pairs=1, burst=4, entropy="qp", flows=2, values=None, total=1000):
    rows = np.arange(flows * queue_pairs).reshape(flows, queue_pairs)
    ports = values if values is not None else (rows + 0xC000).astype(np.uint16)
    return Schedule(
        host=np.zeros(flows, np.int64),
        packets_per_s=np.full(flows, 100.0),
        phase_s=np.linspace(0.0, 0.005, flows),
        total=np.full(flows, total),
        queue_pair=rows,
        source_port=ports,
        entropy=entropy,
        burst=burst,
        seed=1,
    )


def test_the_first_packet_is_due_at_its_phase():
    plan = schedule()
    assert plan.due(-1.0).tolist() == [0, 0]
    assert plan.due(0.0).tolist() == [1, 0]
    assert plan.due(0.005).tolist() == [1, 1]
    assert plan.due(0.0101).tolist() == [2, 1]


def test_nothing_is_due_beyond_the_total():
    assert schedule(total=7).due(3600.0).tolist() == [7, 7]


@given(st.floats(0, 9))
def test_what_is_due_is_what_the_times_say(elapsed):
    plan = schedule(total=800)
    k = np.arange(800)
    for flow in (0, 1):
        late = plan.due_at(np.full(800, flow), k) <= elapsed + 1e-9
        early = plan.due_at(np.full(800, flow), k) <= elapsed - 1e-9
        assert early.sum() <= plan.due(elapsed)[flow] <= late.sum()


def test_messages_go_round_robin_over_queue_pairs():
    plan = schedule(queue_pairs=2, burst=3)
    k = np.arange(12)
    which, row, psn = plan.queue_pair_of(np.ones(12, np.int64), k)
    assert which.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert row.tolist() == [2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3]
    assert psn.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]


def test_packets_go_round_robin_with_a_burst_of_one():
    plan = schedule(queue_pairs=3, burst=1)
    which, _, psn = plan.queue_pair_of(np.zeros(7, np.int64), np.arange(7))
    assert which.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert psn.tolist() == [0, 0, 0, 1, 1, 1, 2]


@given(sent=st.integers(0, 500), queue_pairs=st.integers(1, 7), burst=st.integers(1, 9))
def test_counts_by_queue_pair_add_up(sent, queue_pairs, burst):
    plan = schedule(queue_pairs=queue_pairs, burst=burst)
    counts = plan.sent_by_queue_pair(np.array([sent, 0]))
    k = np.arange(sent)
    which, _, psn = plan.queue_pair_of(np.zeros(sent, np.int64), k)
    assert counts[0].tolist() == np.bincount(which, minlength=queue_pairs).tolist()
    assert counts[1].sum() == 0
    for pair in range(queue_pairs):
        # Each queue pair numbers its packets without a gap, in the order they are sent.
        assert psn[which == pair].tolist() == list(range(counts[0, pair]))


def test_even_entropy_rotates_over_its_values():
    values = np.array([[1, 2, 3], [4, 5, 6]], np.uint16)
    plan = schedule(entropy="even", values=values)
    k = np.arange(5)
    ports = plan.ports(np.ones(5, np.int64), k, np.zeros(5, np.int64), np.random.default_rng(1))
    assert ports.tolist() == [4, 5, 6, 4, 5]


def test_random_entropy_covers_the_port_range():
    plan = schedule(entropy="random")
    k = np.arange(20_000)
    ports = plan.ports(np.zeros_like(k), k, k, np.random.default_rng(1))
    assert ports.min() >= 0xC000
    # 20,000 draws of 16,384 values leave a share exp(-1.22) = 0.295 unused.
    assert len(np.unique(ports)) / 16384 == pytest.approx(0.705, abs=0.02)


def test_a_queue_pair_keeps_its_port():
    plan = schedule(queue_pairs=2, burst=1)
    k = np.arange(4)
    which, _, _ = plan.queue_pair_of(np.zeros(4, np.int64), k)
    ports = plan.ports(np.zeros(4, np.int64), k, which, np.random.default_rng(1))
    assert ports.tolist() == [0xC000, 0xC001, 0xC000, 0xC001]
