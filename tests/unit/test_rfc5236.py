"""RFC 5236's worked examples and packet-by-packet references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabric_emu.measure.rfc5236 import buffer_occupancy_density, reorder_density

# A shared machine may stall any example.
unhurried = settings(deadline=None)


def column(values):
    return np.array(values, np.int64)


def density(values, shares):
    return {v: s for v, s in zip(values.tolist(), shares.tolist(), strict=True) if s}


RD_AND_RBD = [
    (
        [1, 4, 2, 5, 3, 6, 7, 8],
        4,
        {-2: 0.125, -1: 0.125, 0: 0.5, 1: 0.125, 2: 0.125},
        {0: 0.625, 1: 0.25, 2: 0.125},
    ),
    ([1, 2, 4, 5, 6, 7], 3, {0: 1.0}, {0: 1 / 2, 1: 1 / 6, 2: 1 / 6, 3: 1 / 6}),
    ([1, 3, 2, 3, 4, 5], 2, {-1: 0.2, 0: 0.6, 1: 0.2}, {0: 0.8, 1: 0.2}),
]


@pytest.mark.parametrize(("sequence", "threshold", "rd", "rbd"), RD_AND_RBD)
def test_rfc5236_densities(sequence, threshold, rd, rbd):
    displaced = reorder_density(column(sequence), threshold)
    assert density(displaced.displacement, displaced.density) == rd
    waiting = buffer_occupancy_density(column(sequence), threshold)
    assert density(waiting.occupancy, waiting.density) == rbd


@pytest.mark.parametrize(
    ("sequence", "threshold", "receive_index"),
    [
        ([2, 1, 4, 5, 3], 4, [1, 2, 3, 4, 5]),
        ([1, 4, 3, 5, 3], 2, [1, 3, 4, 5, None]),
        ([1, 4, 3, 5, 3, 8, 7, 6], 3, [1, 3, 4, 5, None, 6, 7, 8]),
    ],
)
def test_rfc5236_receive_index(sequence, threshold, receive_index):
    result = reorder_density(column(sequence), threshold)
    assert result.counted.tolist() == [index is not None for index in receive_index]
    expected = [index for index in receive_index if index is not None]
    assert result.receive_index[result.counted].tolist() == expected


def test_rfc5236_displacements():
    sequence = column([1, 4, 3, 5, 3, 8, 7, 6])
    result = reorder_density(sequence, 3)
    displacement = (result.receive_index - sequence)[result.counted]
    assert displacement.tolist() == [0, -1, 1, 0, -2, 0, 2]


@pytest.mark.parametrize(
    ("sequence", "threshold", "events"),
    [
        ([1, 2, 3, 5, 4, 6], 3, [(4, 1), (5, -1)]),
        ([1, 2, 5, 3, 6, 2], 2, [(3, 2), (5, -2)]),
    ],
)
def test_rfc5236_events(sequence, threshold, events):
    result = reorder_density(column(sequence), threshold)
    pairs = zip(result.event_sequence.tolist(), result.event_displacement.tolist(), strict=True)
    assert list(pairs) == events


def test_rfc5236_packet_over_the_threshold_counts_as_lost():
    # 2 comes three arrivals late: with DT 2 it is given up, and the rest moves up in step.
    result = reorder_density(column([1, 3, 4, 5, 2, 6]), 2)
    assert result.counted.tolist() == [True, True, True, True, False, True]
    assert density(result.displacement, result.density) == {0: 1.0}


def test_rfc5236_first_number_lost():
    # Told that 1 comes first, the buffer fills until it gives 1 up: 2, 3 wait, 4 frees all.
    told = buffer_occupancy_density(column([2, 3, 4, 5]), 2, first=1)
    assert density(told.occupancy, told.density) == {0: 0.5, 1: 0.25, 2: 0.25}
    untold = buffer_occupancy_density(column([2, 3, 4, 5]), 2)
    assert density(untold.occupancy, untold.density) == {0: 1.0}


def test_rfc5236_empty_and_bad_threshold():
    empty = column([])
    assert not reorder_density(empty, 2).density.any()
    assert not buffer_occupancy_density(empty, 2).density.any()
    for function in (reorder_density, buffer_occupancy_density):
        with pytest.raises(ValueError, match="threshold -1"):
            function(empty, -1)


def scalar_receive_indexes(sequence, threshold):
    """{position: receive index} by stepping the index through every number."""
    result: dict[int, int] = {}
    window: list[tuple[int, int]] = []
    early: set[int] = set()
    stream = iter(enumerate(sequence))
    index = min(sequence)

    def read():
        for position, s in stream:
            if s >= index and s not in early and s not in [n for _, n in window]:
                window.append((position, s))
                return

    for _ in range(threshold + 1):
        read()
    while window:
        if index not in early and index not in [n for _, n in window]:
            index += 1
            continue
        position, s = window.pop(0)
        if abs(index - s) <= threshold:
            result[position] = index
            early.discard(index)
            if s > index:
                early.add(s)
            index += 1
        read()
    return result


def scalar_occupancies(sequence, threshold):
    held, occupancies, expected = set(), [], min(sequence, default=0)
    for s in sequence:
        if s < expected or s in held:
            continue
        held.add(s)
        if len(held) > threshold:
            expected = min(held)
        while expected in held:
            held.remove(expected)
            expected += 1
        occupancies.append(len(held))
    return occupancies


@st.composite
def streams(draw):
    """Numbers with losses, copies and displacement, from none to no order left."""
    size, largest = draw(st.integers(0, 60)), draw(st.sampled_from([8, 20, 60, 1000]))
    sent = sorted(draw(st.lists(st.integers(0, largest), min_size=size, max_size=size)))
    delay = st.integers(0, draw(st.sampled_from([0, 2, 6, 40, 1000])))
    arrival = [number + draw(delay) for number in sent]
    return [sent[i] for i in np.argsort(np.array(arrival, np.int64), kind="stable")]


@unhurried
@given(streams(), st.integers(0, 12))
@example([1, 50, 2, 51, 3], 2)
def test_reorder_density_matches_the_reference(sequence, threshold):
    expected = scalar_receive_indexes(sequence, threshold) if sequence else {}
    result = reorder_density(column(sequence), threshold)
    counted = np.flatnonzero(result.counted).tolist()
    assert dict(zip(counted, result.receive_index[counted].tolist(), strict=True)) == expected
    shares = np.zeros(2 * threshold + 1)
    for position, index in expected.items():
        shares[index - sequence[position] + threshold] += 1 / len(expected)
    assert result.density.tolist() == pytest.approx(shares.tolist())


@unhurried
@given(streams(), st.integers(0, 12))
def test_buffer_occupancy_matches_the_reference(sequence, threshold):
    expected = scalar_occupancies(sequence, threshold)
    result = buffer_occupancy_density(column(sequence), threshold)
    shares = np.bincount(np.array(expected, np.int64), minlength=threshold + 1)
    assert result.density.tolist() == pytest.approx((shares / max(len(expected), 1)).tolist())
