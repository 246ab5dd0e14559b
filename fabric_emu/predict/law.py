"""What chance alone does to flows on equal-cost links.

Equal flows, each on a link drawn uniformly at random, are balls thrown into bins: the law of the
fullest link says how much imbalance hashing shows when nothing is wrong. A rule's disruption is
the share of flows that change links when a link comes or goes.

A hash sends the same flows to the same links for a given seed, so compare measurements with this
law over many seeds, and count flows that hash alike (both directions of one) only once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_NEGLIGIBLE = 1e-18  # cannot be seen next to 1 in a float64


def max_load_cdf(flows: int, links: int) -> NDArray[np.float64]:
    """Return P(no link carries more than c flows) for c = 0 to `flows`, (flows + 1,).

    Independent Poisson loads with a given sum are spread like that many balls. So P is the weight
    of the sum among loads of at most c, over its weight among any loads. Every term is positive:
    nothing cancels, and small probabilities are as accurate as large ones (about 1e-13 of each).

    Raises:
        ValueError: fewer than 0 flows or 1 link.
    """
    _check(flows, links)
    poisson = _poisson_weights(flows, flows / links)
    any_loads = _weight_of_sum(poisson, links, flows)
    cdf = np.zeros(flows + 1)
    for most in range(-(-flows // links), flows + 1):
        if links * poisson[most + 1 :].sum() < _NEGLIGIBLE * any_loads:
            cdf[most:] = 1.0
            break
        cdf[most] = min(_weight_of_sum(poisson[: most + 1], links, flows) / any_loads, 1.0)
    return cdf


def expected_max_load(flows: int, links: int) -> float:
    """Return the mean number of flows on the fullest link.

    Raises:
        ValueError: as `max_load_cdf`.
    """
    return float(np.sum(1.0 - max_load_cdf(flows, links)))


def expected_imbalance(flows: int, links: int) -> float:
    """Return the mean of the fullest link's load over the mean load of all links.

    Raises:
        ValueError: fewer than 1 flow or 1 link.
    """
    _check(flows, links, fewest_flows=1)
    return expected_max_load(flows, links) * links / flows


def expected_share_used(flows: int, links: int) -> float:
    """Return the mean share of links that carry at least one flow.

    Raises:
        ValueError: as `max_load_cdf`.
    """
    _check(flows, links)
    return float(1.0 - (1.0 - 1.0 / links) ** flows)


def probability_even(flows: int, links: int) -> float:
    """Return P(all links carry the same number of flows), 0 when that cannot be.

    Raises:
        ValueError: as `max_load_cdf`.
    """
    _check(flows, links)
    each, rest = divmod(flows, links)
    if rest:
        return 0.0
    return math.factorial(flows) / int(math.factorial(each) ** links * links**flows)


def hash_threshold_disruption(members: int, removed: int) -> float:
    """Return the share of flows that move when one of equal hash regions goes, or comes.

    Linux multipath routes and hash-threshold nexthop groups divide the hash space like this.

    Args:
        members: links before the removal, or after the addition.
        removed: the link's place, from 0.

    Raises:
        ValueError: fewer than 2 members, or a place beyond them.

    Source: RFC 2992, analysis of disruption.
    """
    _check_members(members)
    if not 0 <= removed < members:
        raise ValueError(f"removed: expected 0 to {members - 1}, not {removed}")
    before, after = removed, members - 1 - removed
    return (before * (before + 1) + after * (after + 1)) / (2 * members * (members - 1))


def modulo_n_disruption(members: int) -> float:
    """Return the share of flows that move when hash modulo N goes from N to N - 1, or back.

    Raises:
        ValueError: fewer than 2 members.

    Source: RFC 2991, modulo-N hash.
    """
    _check_members(members)
    return (members - 1) / members


def highest_random_weight_disruption(members: int) -> float:
    """Return the share of flows that move when one of N links goes, the least there can be.

    A resilient nexthop group comes as close to it as its buckets divide evenly.

    Raises:
        ValueError: fewer than 2 members.

    Source: RFC 2991, highest random weight.
    """
    _check_members(members)
    return 1 / members


def _poisson_weights(most: int, mean: float) -> NDArray[np.float64]:
    """Return Poisson probabilities of 0 to `most`, times a constant that makes them sum to 1."""
    mode = math.floor(mean)
    weights = np.ones(most + 1)
    weights[mode + 1 :] = np.cumprod(mean / np.arange(mode + 1, most + 1))
    weights[:mode] = np.cumprod(np.arange(mode, 0, -1) / mean)[::-1]
    weights /= weights.sum()
    return weights


def _weight_of_sum(weights: NDArray[np.float64], loads: int, total: int) -> float:
    """Return the coefficient of x^total in (sum of weights[k] x^k)^loads."""
    power = np.ones(1)
    square = weights
    while True:
        if loads & 1:
            power = np.convolve(power, square)[: total + 1]
        loads >>= 1
        if not loads:
            return float(power[total])
        square = np.convolve(square, square)[: total + 1]


def _check(flows: int, links: int, *, fewest_flows: int = 0) -> None:
    if flows < fewest_flows or links < 1:
        raise ValueError(
            f"expected {fewest_flows} or more flows and 1 or more links, not {flows} and {links}"
        )


def _check_members(members: int) -> None:
    if members < 2:
        raise ValueError(f"members: expected 2 or more, not {members}")
