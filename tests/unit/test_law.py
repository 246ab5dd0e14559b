"""The law of balls in bins and the disruption of hash rules: tables, brute force, simulation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.predict.law import (
    expected_imbalance,
    expected_max_load,
    expected_share_used,
    hash_threshold_disruption,
    highest_random_weight_disruption,
    max_load_cdf,
    modulo_n_disruption,
    probability_even,
)
from fabric_emu.predict.multipath import (
    rebalance_resilient,
    resilient_buckets,
    select_by_threshold,
    thresholds,
)

# Flows, links, E[max], E[max]/mean, share of links used, P(even); as printed elsewhere.
TABLE = [
    (2, 2, "1.5000", "1.5000", "0.7500", "0.5"),
    (4, 4, "2.1250", "2.1250", "0.6836", "0.09375"),
    (8, 2, "5.0938", "1.2734", "0.9961", "0.27344"),
    (8, 4, "3.5381", "1.7690", "0.8999", "0.038452"),
    (8, 8, "2.5972", "2.5972", "0.6564", "0.0024033"),
    (16, 4, "6.1390", "1.5348", "0.9900", "0.014683"),
    (16, 8, "4.2014", "2.1007", "0.8819", "2.9036e-4"),
    (16, 16, "3.0782", "3.0782", "0.6439", "1.13e-6"),
    (32, 4, "10.9937", "1.3742", "0.9999", "0.0053972"),
    (32, 8, "7.0478", "1.7619", "0.9861", "3.02e-5"),
    (64, 4, "20.2020", "1.2626", "1.0000", "0.0019458"),
    (64, 8, "12.2353", "1.5294", "0.9998", "2.9e-6"),
    (64, 16, "7.8804", "1.9701", "0.9839", "9e-11"),
    (128, 8, "21.9096", "1.3693", "1.0000", "2.7e-7"),
    (128, 16, "13.3569", "1.6696", "0.9997", "5.9e-13"),
]


def exact_cdf(flows: int, links: int, most: int) -> Fraction:
    """Count the ways to throw labelled balls with at most `most` in a bin, bin by bin."""
    ways = [1] + [0] * flows  # of placing exactly that many of the balls in the bins so far
    for _ in range(links):
        ways = [
            sum(math.comb(n, k) * ways[n - k] for k in range(min(most, n) + 1))
            for n in range(flows + 1)
        ]
    return Fraction(ways[flows], links**flows)


def test_fullest_uplink_of_a_permutation():
    # Four leaves of four flows on four uplinks each; the fullest of all sixteen decides.
    at_most = max_load_cdf(4, 4) ** 4
    assert np.diff(at_most)[1:] == pytest.approx([0.40, 0.54, 0.06], abs=0.005)


@pytest.mark.parametrize("row", TABLE)
def test_table(row):
    flows, links, max_load, imbalance, share, even = row
    assert f"{expected_max_load(flows, links):.4f}" == max_load
    assert f"{expected_imbalance(flows, links):.4f}" == imbalance
    assert f"{expected_share_used(flows, links):.4f}" == share
    digits = len(even.split("e")[0].replace(".", "").lstrip("0"))
    assert float(f"{probability_even(flows, links):.{digits - 1}e}") == float(even)


@given(st.integers(0, 60), st.integers(1, 20))
def test_exact_for_every_load(flows, links):
    cdf = max_load_cdf(flows, links)
    assert len(cdf) == flows + 1
    for most, probability in enumerate(cdf):
        # At most 20 products of rounded weights and 6 convolutions of positive terms: an error of
        # at most some hundred units in the last place, 1e-13 of the value. Near 1 the law stops
        # where 1e-18 is missing.
        assert probability == pytest.approx(float(exact_cdf(flows, links, most)), rel=1e-12, abs=0)


def test_small_probabilities_keep_their_digits():
    # The fullest of 64 links holds 16 of 1024 flows only when all do: about 5e-63.
    even = probability_even(1024, 64)
    assert 1e-63 < even < 1e-62
    assert max_load_cdf(1024, 64)[16] == pytest.approx(even, rel=1e-12)


def test_enumeration():
    flows, links = 6, 3
    loads = np.array(
        [np.bincount(way, minlength=links) for way in itertools.product(range(links), repeat=flows)]
    )
    fullest = loads.max(axis=1)
    assert expected_max_load(flows, links) == pytest.approx(fullest.mean(), rel=1e-14)
    assert expected_share_used(flows, links) == pytest.approx((loads > 0).mean(), rel=1e-14)
    assert probability_even(flows, links) == np.mean(fullest == flows // links)


def test_simulation_agrees():
    # Loads of 1000 flows on 16 links; 4 standard errors of the mean of 20,000 trials are passed
    # by chance once in 16,000, and the seed is fixed.
    trials = 20_000
    rng = np.random.default_rng(2024)
    fullest = rng.multinomial(1000, np.full(16, 1 / 16), size=trials).max(axis=1)
    error = fullest.std() / math.sqrt(trials)
    assert expected_max_load(1000, 16) == pytest.approx(fullest.mean(), abs=4 * error)
    cdf = max_load_cdf(1000, 16)
    for most in (70, 76, 82):
        error = math.sqrt(cdf[most] * (1 - cdf[most]) / trials)
        assert cdf[most] == pytest.approx(np.mean(fullest <= most), abs=4 * error)


def test_edges():
    assert max_load_cdf(0, 3).tolist() == [1.0]
    assert max_load_cdf(1000, 1).tolist() == [0.0] * 1000 + [1.0]
    assert expected_max_load(0, 4) == 0
    assert expected_share_used(0, 4) == 0
    assert probability_even(3, 2) == 0
    assert probability_even(0, 2) == 1
    assert probability_even(7, 1) == 1


@pytest.mark.parametrize(("flows", "links"), [(-1, 4), (4, 0)])
def test_impossible_counts_are_refused(flows, links):
    laws = (max_load_cdf, expected_max_load, expected_share_used, probability_even)
    for law in (*laws, expected_imbalance):
        with pytest.raises(ValueError, match="expected"):
            law(flows, links)
    with pytest.raises(ValueError, match="expected"):
        expected_imbalance(0, 4)


@pytest.mark.parametrize(("removed", "moved"), [(0, 1 / 2), (2, 3 / 10), (3, 7 / 20), (4, 1 / 2)])
def test_disruption_of_five(removed, moved):
    assert hash_threshold_disruption(5, removed) == moved


@given(st.integers(2, 64), st.data())
def test_disruption_is_what_the_thresholds_do(members, data):
    removed = data.draw(st.integers(0, members - 1))
    usable = [place != removed for place in range(members)]
    edges = {-1, *thresholds([1] * members).tolist(), *thresholds([1] * members, usable).tolist()}
    ends = sorted(edges)
    values = np.array(ends[1:], np.uint32)  # stands for all hashes above the end before it
    moves = select_by_threshold(values, [1] * members) != select_by_threshold(
        values, [1] * members, usable
    )
    moved = np.diff(ends)[moves].sum() / 2**31
    # Each of 2 * members bounds is rounded to half a hash.
    expected = hash_threshold_disruption(members, removed)
    assert moved == pytest.approx(expected, abs=members / 2**31)


@given(st.integers(2, 40))
def test_disruption_of_modulo(members):
    keys = np.arange(members * (members - 1))  # one period of both remainders
    moved = np.mean(keys % members != keys % (members - 1))
    assert modulo_n_disruption(members) == pytest.approx(moved, rel=1e-15)


@given(st.integers(2, 16), st.integers(1, 20), st.data())
def test_least_disruption_is_that_of_a_resilient_group(members, each, data):
    removed = data.draw(st.integers(0, members - 1))
    before = resilient_buckets([1] * members, members * each)
    usable = [place != removed for place in range(members)]
    after = rebalance_resilient(before, [1] * members, usable)
    assert highest_random_weight_disruption(members) == np.mean(before != after)


def test_impossible_removals_are_refused():
    for disruption in (modulo_n_disruption, highest_random_weight_disruption):
        with pytest.raises(ValueError, match="expected"):
            disruption(1)
    for members, removed in ((1, 0), (5, 5), (5, -1)):
        with pytest.raises(ValueError, match="expected"):
            hash_threshold_disruption(members, removed)


def test_steps_of_the_slowest_flow_of_a_hashed_permutation():
    # 4 leaves of 4 hosts, host i to host i + 4: each leaf hashes 4 flows on 4 uplinks, and each
    # spine's link to the next leaf carries just the flows of one uplink. The slowest flow takes
    # as many times the ideal as there are flows on the fullest of all uplinks.
    most = max_load_cdf(4, 4) ** 4
    law = np.diff(most)  # of a maximum of 1, 2, 3, 4
    # Of 4^4 = 256 ways to hash 4 flows: 24 with all apart, 204 with 2 at most, 252 with 3.
    assert law == pytest.approx(
        np.diff(np.array([0, 24, 204, 252, 256]) ** 4) / 256.0**4, rel=1e-12
    )
    assert np.round(law, 2).tolist() == [0.0, 0.40, 0.54, 0.06]
