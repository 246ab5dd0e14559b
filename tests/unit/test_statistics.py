"""Balance figures and percentiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.measure.statistics import Imbalance, Percentiles, imbalance, percentiles

BALANCED = Imbalance(max_over_mean=1.0, range_over_mean=0.0, jain=1.0)


def test_equal_loads_are_balanced():
    assert imbalance([7, 7, 7, 7]) == BALANCED


def test_one_of_n_carries_all():
    # max/mean = n, (max - min)/mean = n, Jain's index = 1/n.
    result = imbalance(np.array([0, 12, 0, 0], np.uint64))
    assert result == Imbalance(max_over_mean=4.0, range_over_mean=4.0, jain=0.25)


def test_by_hand():
    # Mean 2; Jain (1 + 2 + 3)^2 / (3 (1 + 4 + 9)) = 36/42.
    result = imbalance([1, 2, 3])
    assert result.max_over_mean == pytest.approx(1.5)
    assert result.range_over_mean == pytest.approx(1.0)
    assert result.jain == pytest.approx(36 / 42)


@pytest.mark.parametrize("loads", [[], [0], [0, 0, 0]])
def test_idle_carriers_are_balanced(loads):
    assert imbalance(loads) == BALANCED


@pytest.mark.parametrize("loads", [[1, -1], [1, float("nan")], [float("inf")]])
def test_impossible_loads_are_refused(loads):
    with pytest.raises(ValueError, match="expected"):
        imbalance(loads)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=64))
def test_imbalance_stays_in_its_bounds(loads):
    result = imbalance(loads)
    n = len(loads)
    # Only rounding, of a few units in the last place, may pass the bounds.
    assert 1 - 1e-9 <= result.max_over_mean <= n + 1e-9
    assert 0 <= result.range_over_mean <= result.max_over_mean
    assert 1 / n - 1e-9 <= result.jain <= 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=64))
def test_imbalance_does_not_depend_on_the_unit(loads):
    one, other = imbalance(loads), imbalance([8 * load for load in loads])
    assert one == other


def test_percentiles_by_hand():
    # 0 ... 100: the k-th percentile is k.
    assert percentiles(np.arange(101)[::-1]) == Percentiles(
        count=101, p50=50.0, p99=99.0, max=100.0
    )


def test_percentiles_interpolate():
    # Two values: p99 lies 0.99 of the way from 10 to 20.
    result = percentiles([20, 10])
    assert (result.p50, result.p99, result.max) == (15.0, pytest.approx(19.9), 20.0)


def test_percentiles_of_nothing_are_zero():
    assert percentiles([]) == Percentiles(count=0, p50=0.0, p99=0.0, max=0.0)


def test_percentiles_refuse_nan():
    with pytest.raises(ValueError, match="NaN"):
        percentiles([1.0, float("nan")])
