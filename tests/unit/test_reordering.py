"""RFC 4737's worked examples, whole runs, and scalar references for everything fast."""

from __future__ import annotations

import dataclasses
from bisect import bisect, insort

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabric_emu.measure.reordering import (
    count_inversions,
    measure_reordering,
    reorder_buffer,
    summarise,
    unwrap_sequence,
)
from fabric_emu.measure.rfc4737 import (
    first_copies,
    free_runs,
    n_reordering,
    reordered_mask,
)

MS = 10**6
# A shared machine may stall any example.
unhurried = settings(deadline=None)


def column(values):
    return np.array(values, np.int64)


def measure(sequence, arrival_ms=None, payload=100, send_ms=None):
    arrival = column(arrival_ms if arrival_ms is not None else range(len(sequence))) * MS
    send = None if send_ms is None else column(send_ms) * MS
    return measure_reordering(column(sequence), arrival, payload, send)


def by_number(result, values):
    return dict(zip(result.sequence.tolist(), values.tolist(), strict=True))


# --- RFC 4737 section 7: packets of 100 bytes sent every 20 ms, delay 68 ms when undisturbed ---


def test_rfc4737_one_packet_four_late():
    sequence = [1, 2, 3, 5, 6, 7, 8, 4, 9, 10]
    send = [20 * (s - 1) for s in sequence]
    arrival = [t + 68 for t in send]
    arrival[7] = 210
    result = measure(sequence, arrival, send_ms=send)
    assert by_number(result, result.extent) == {4: 4}
    assert by_number(result, result.late_ns) == {4: (210 - 148) * MS}
    assert by_number(result, result.byte_offset) == {4: 400}
    assert by_number(result, result.n_reordering) == {4: 4}
    assert by_number(result, result.delay_ns) == {4: 150 * MS}
    assert result.ratio == 1 / 10
    assert result.degree.tolist() == [0.1, 0.1, 0.1, 0.1]


def test_rfc4737_two_packets_behind_one():
    sequence = [1, 2, 3, 4, 7, 5, 6, 8, 9, 10]
    arrival = [68, 88, 108, 128, 188, 189, 190, 208, 228, 248]
    result = measure(sequence, arrival)
    assert by_number(result, result.extent) == {5: 1, 6: 2}
    assert by_number(result, result.n_reordering) == {5: 1, 6: 0}
    assert by_number(result, result.late_ns) == {5: 1 * MS, 6: 2 * MS}
    assert by_number(result, result.byte_offset) == {5: 100, 6: 100}
    assert result.ratio == 2 / 10
    assert result.degree.tolist() == [0.1]
    assert result.delay_ns is None


def test_rfc4737_three_packets_behind_four():
    sequence = [1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11]
    arrival = [68, 88, 108, 188, 208, 228, 248, 250, 252, 256, 268]
    result = measure(sequence, arrival)
    assert by_number(result, result.extent) == {4: 4, 5: 5, 6: 6}
    assert by_number(result, result.late_ns) == {4: 62 * MS, 5: 64 * MS, 6: 68 * MS}
    assert by_number(result, result.byte_offset) == {4: 400, 5: 400, 6: 400}
    assert by_number(result, result.n_reordering) == {4: 4, 5: 0, 6: 0}


def test_rfc4737_gaps_and_runs():
    sequence = [1, 2, 3, 6, 7, 4, 5, 8, 9, 10, 12, 13, 11, 14, 15, 16]
    result = measure(sequence)
    assert by_number(result, result.extent) == {4: 2, 5: 3, 11: 2}
    assert result.discontinuities.tolist() == [3, 10]  # packets 6 and 12
    assert result.gap_packets.tolist() == [7]
    assert result.gap_ns.tolist() == [7 * MS]  # one arrival per ms
    assert result.free_runs.lengths.tolist() == [5, 0, 5]
    assert (result.free_runs.run, result.free_runs.accepted) == (3, 13)


def test_rfc4737_only_the_first_of_a_block_is_n_reordered():
    result = measure([1, 2, 3, 7, 8, 9, 4, 5, 6])
    assert by_number(result, result.n_reordering) == {4: 3, 5: 0, 6: 0}
    assert result.degree.tolist() == pytest.approx([1 / 9] * 3)


@pytest.mark.parametrize(
    ("lengths", "squares", "weighted_mean", "evenness"),
    [([11, 11, 11], 363, 11.0, 1.0), ([1, 1, 31], 963, 29.18, 2.65)],
)
def test_rfc4737_free_runs(lengths, squares, weighted_mean, evenness):
    reordered = np.concatenate([[False] * length + [True] for length in lengths])
    runs = free_runs(reordered)
    assert runs.lengths.tolist() == lengths
    assert (runs.packets, runs.runs, runs.accepted, runs.squares) == (36, 3, 33, squares)
    assert (runs.run, runs.mean) == (0, 11.0)
    assert runs.weighted_mean == pytest.approx(weighted_mean, abs=0.005)
    assert runs.evenness == pytest.approx(evenness, abs=0.005)


def test_nothing_and_order_give_zeros():
    for sequence in ([], [5], [1, 2, 9]):
        result = measure(sequence)
        assert (result.received, result.ratio, result.degree.size) == (len(sequence), 0.0, 0)
        assert result.sequence.size == result.gap_packets.size == 0
        assert result.free_runs.run == len(sequence)
        assert (result.free_runs.mean, result.free_runs.evenness) == (0.0, 0.0)


# --- the reorder buffer, rollover, groups ---


def test_reorder_buffer_by_hand():
    # After 3 and 4 (700 B) two wait for 2; 2 frees both; 7 waits for 6; 5 never comes.
    buffer = reorder_buffer(column([1, 3, 4, 2, 7, 6, 8]), column([100, 300, 400, 200, 50, 60, 70]))
    assert (buffer.packets_max, buffer.bytes_max) == (2, 700)


def test_reorder_buffer_is_shared_by_the_flows_of_a_nic():
    flow, sequence = column([7, 9, 7, 9]), column([2, 2, 1, 1])
    shared = reorder_buffer(sequence, 100, flow)
    assert (shared.packets_max, shared.bytes_max) == (2, 200)
    # One flow's own buffer never holds more than its one early packet.
    assert summarise(flow, sequence, column([0, 1, 2, 3]), 100).buffer_bytes_max == 100


def test_reorder_buffer_p99_counts_arrivals():
    # 100 arrivals, one of which leaves a packet waiting: the 99th percentile lies between the
    # 99th and 100th smallest (0 and 1), at rank 0.99 x 99 = 98.01, so at 0.01.
    sequence = list(range(100))
    sequence[50:52] = [51, 50]
    buffer = reorder_buffer(column(sequence), 1000)
    assert (buffer.packets_max, buffer.packets_p99) == (1, pytest.approx(0.01))
    assert (buffer.bytes_max, buffer.bytes_p99) == (1000, pytest.approx(10.0))


def test_psn_rollover():
    top = 2**24
    psn = np.array([top - 2, 0, top - 1, 1, 2], np.uint32)
    assert unwrap_sequence(psn).tolist() == [top - 2, top, top - 1, top + 1, top + 2]
    result = measure(unwrap_sequence(psn))
    assert by_number(result, result.extent) == {top - 1: 1}


def test_psn_before_the_first_rollover_is_negative():
    assert unwrap_sequence(column([0, 2**24 - 1, 1])).tolist() == [0, -1, 1]


def test_psn_steps_of_half_the_range_are_no_rollover():
    assert unwrap_sequence(column([0, 8, 0]), bits=4).tolist() == [0, 8, 0]
    assert unwrap_sequence(column([0, 9, 0]), bits=4).tolist() == [0, -7, 0]


def test_psn_of_mixed_flows():
    flow = column([4, 1, 4, 1, 4, 1])
    psn = column([14, 3, 0, 2, 15, 5])
    assert unwrap_sequence(psn, 4, flow).tolist() == [14, 3, 16, 2, 15, 5]


def test_inversions_are_counted_within_a_group():
    group, sequence = column([0, 1, 0, 1, 0, 1]), column([10, 5, 11, 4, 11, 6])
    assert count_inversions(group, sequence) == 1
    assert count_inversions(column([0] * 6), sequence) == 3
    assert count_inversions(column([]), column([])) == 0


def test_summary_by_hand():
    # Flow 1: 1 3 2 2, flow 2: 5 6 4; arrivals 1 ms apart.
    flow = column([1, 2, 1, 2, 1, 2, 1])
    sequence = column([1, 5, 3, 6, 2, 4, 2])
    summary = summarise(flow, sequence, np.arange(7) * MS, 100)
    assert dataclasses.asdict(summary) == {
        "received": 6,
        "duplicates": 1,
        "reordered": 2,
        "max_extent": 2,
        "p99_extent": pytest.approx(1.99),
        "max_n_reordering": 2,
        "mean_late_seconds": pytest.approx(0.003),  # 2 ms behind 3, 4 ms behind 5
        "max_late_seconds": pytest.approx(0.004),
        "buffer_packets_max": 2,
        "buffer_bytes_max": 200,
    }
    assert summary.ratio == 2 / 6


def test_summary_of_nothing_is_zero():
    empty = column([])
    summary = summarise(empty, empty, empty, empty)
    assert set(dataclasses.astuple(summary)) == {0}
    assert summary.ratio == 0.0


def test_summary_refuses_numbers_it_cannot_stack():
    with pytest.raises(ValueError, match="2\\*\\*62"):
        summarise(column([0, 0]), column([-(2**62), 2**62]), column([0, 1]), 1)


# --- scalar references, written from the definitions ---


def scalar_first_copies(sequence):
    return [i for i, s in enumerate(sequence) if s not in sequence[:i]]


def scalar_metrics(sequence, arrival, payload):
    """{number: (extent, late, byte offset, n)} of a sequence without duplicates."""
    found, next_expected = {}, None
    for i, s in enumerate(sequence):
        if next_expected is None or s >= next_expected:
            next_expected = s + 1
            continue
        larger = [j for j in range(i) if sequence[j] > s]
        n = 0
        while n < i and sequence[i - n - 1] > s:
            n += 1
        j = larger[0]
        found[s] = (i - j, arrival[i] - arrival[j], sum(payload[k] for k in larger), n)
    return found


def scalar_held(sequence, payload):
    """(packets, bytes) held after each arrival of a sequence without duplicates."""
    held = []
    for i in range(len(sequence)):
        missing = min(sequence[i + 1 :], default=max(sequence) + 1)
        waiting = [k for k in range(i + 1) if sequence[k] > missing]
        held.append((len(waiting), sum(payload[k] for k in waiting)))
    return held


@st.composite
def streams(draw):
    """Numbers with losses, copies and displacement, from none to no order left."""
    size, largest = draw(st.integers(0, 60)), draw(st.sampled_from([8, 20, 60, 1000]))
    sent = sorted(draw(st.lists(st.integers(0, largest), min_size=size, max_size=size)))
    delay = st.integers(0, draw(st.sampled_from([0, 2, 6, 40, 1000])))
    arrival = [number + draw(delay) for number in sent]
    return [sent[i] for i in np.argsort(np.array(arrival, np.int64), kind="stable")]


@unhurried
@given(streams(), st.integers(0, 2**32))
@example([3, 2, 1, 0], 0)
@example([1, 2, 3, 4, 5, 0], 0)
def test_metrics_match_the_definitions(sequence, seed):
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.integers(0, 1000, len(sequence)))
    payload = random.integers(1, 4096, len(sequence))
    kept = scalar_first_copies(sequence)
    numbers = [sequence[i] for i in kept]
    expected = scalar_metrics(numbers, arrival[kept].tolist(), payload[kept].tolist())

    result = measure_reordering(column(sequence), arrival, payload)
    assert result.kept.tolist() == kept
    assert result.received + result.duplicates == len(sequence)
    assert result.sequence.tolist() == list(expected)
    figures = np.stack(
        [result.extent, result.late_ns, result.byte_offset, result.n_reordering], axis=1
    )
    assert [tuple(row) for row in figures.tolist()] == list(expected.values())
    degree = [
        sum(n >= least for *_, n in expected.values()) / len(numbers)
        for least in range(1, max((n for *_, n in expected.values()), default=0) + 1)
    ]
    assert result.degree.tolist() == degree
    runs = "".join("x" if s in expected else "." for s in numbers).split("x")
    assert [*result.free_runs.lengths.tolist(), result.free_runs.run] == [len(r) for r in runs]


@unhurried
@given(streams())
def test_n_reordering_of_every_packet_matches_the_definition(sequence):
    numbers = [sequence[i] for i in scalar_first_copies(sequence)]
    expected = []
    for i, s in enumerate(numbers):
        n = 0
        while n < i and numbers[i - n - 1] > s:
            n += 1
        expected.append(n)
    assert n_reordering(column(numbers), np.arange(len(numbers))).tolist() == expected


@unhurried
@given(streams(), st.integers(0, 2**32))
def test_reorder_buffer_matches_the_definition(sequence, seed):
    payload = np.random.default_rng(seed).integers(1, 4096, len(sequence))
    kept = scalar_first_copies(sequence)
    held = scalar_held([sequence[i] for i in kept], payload[kept].tolist()) or [(0, 0)]
    buffer = reorder_buffer(column(sequence), payload)
    assert (buffer.packets_max, buffer.bytes_max) == tuple(np.max(held, axis=0))
    p99 = np.percentile(held, 99, axis=0)
    assert [buffer.packets_p99, buffer.bytes_p99] == pytest.approx(p99.tolist())


@unhurried
@given(st.lists(streams(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_summary_of_mixed_flows_matches_flow_by_flow(flows, seed):
    random = np.random.default_rng(seed)
    flow = random.permutation(np.repeat([31, -4, 900, 7][: len(flows)], [len(f) for f in flows]))
    remaining = dict(zip([31, -4, 900, 7], map(iter, flows), strict=False))
    sequence = column([next(remaining[f]) for f in flow])
    arrival = np.cumsum(random.integers(0, 1000, flow.size))
    payload = random.integers(1, 4096, flow.size)

    own = [flow == f for f in np.unique(flow)]
    single = [measure_reordering(sequence[m], arrival[m], payload[m]) for m in own]
    buffers = [reorder_buffer(sequence[m], payload[m]) for m in own]
    extent = np.concatenate([np.zeros(0), *(r.extent for r in single)])
    late = np.concatenate([np.zeros(0), *(r.late_ns for r in single)])

    summary = summarise(flow, sequence, arrival, payload)
    assert summary.received == sum(r.received for r in single)
    assert summary.duplicates == sum(r.duplicates for r in single)
    assert summary.reordered == extent.size
    assert summary.max_extent == extent.max(initial=0)
    assert summary.p99_extent == pytest.approx(np.percentile(extent, 99) if extent.size else 0)
    assert summary.mean_late_seconds == pytest.approx(late.mean() * 1e-9 if late.size else 0)
    assert summary.max_late_seconds == pytest.approx(late.max(initial=0) * 1e-9)
    assert summary.max_n_reordering == max((r.degree.size for r in single), default=0)
    assert summary.buffer_packets_max == max((b.packets_max for b in buffers), default=0)
    assert summary.buffer_bytes_max == max((b.bytes_max for b in buffers), default=0)
    assert count_inversions(flow, sequence) == sum(
        int(reordered_mask(sequence[m]).sum()) for m in own
    )


@unhurried
@given(st.lists(st.integers(-7, 7), max_size=50), st.integers(0, 15))
def test_unwrap_undoes_the_wrap_of_steps_below_half_the_range(steps, start):
    true = start + np.cumsum([0, *steps])
    assert unwrap_sequence(true % 16, bits=4).tolist() == true.tolist()


@unhurried
@given(streams())
def test_first_copies_match_the_definition(sequence):
    assert first_copies(column(sequence)).tolist() == scalar_first_copies(sequence)


def test_byte_offsets_of_a_long_stream():
    # One byte per packet: the offset is the number of larger ones before, so the arrivals
    # before less the place among them in sorted order.
    sequence = np.argsort(np.arange(5000) + np.random.default_rng(3).uniform(0, 50, 5000))
    result = measure_reordering(sequence, np.arange(5000), 1)
    offsets = np.zeros(5000, np.int64)
    offsets[result.reordered] = result.byte_offset
    earlier: list[int] = []
    for position, number in enumerate(sequence.tolist()):
        assert offsets[position] == position - bisect(earlier, number)
        insort(earlier, number)
