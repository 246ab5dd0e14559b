"""Many seeds: how the worst uplink is distributed, whether chance explains it, and which seed
gives a wanted load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.predict.entropy import hashes_source_port
from fabric_emu.predict.law import max_load_cdf
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.predict.spread import Spread, spread

SEEDS_SEARCHED = 1000
SIGNIFICANCE = 0.001
_SEEDS_AT_ONCE = 100
_EXACT_FLOWS = 4096  # beyond, the exact law takes seconds


@dataclass(frozen=True)
class Law:
    """The law of balls in bins for the fullest uplink of a leaf.

    Attributes:
        streams, links: equal streams of a leaf, and the uplinks each may take.
        leaves: how many leaves send as many streams in every run; None when it varies.
        cdf: (streams + 1,) P(no uplink of a leaf carries more than c streams).
    """

    streams: int
    links: int
    leaves: int | None
    cdf: NDArray[np.float64]

    @classmethod
    def of(cls, streams: int, links: int, leaves: int | None) -> Law:
        """Return the law of these numbers."""
        of = max_load_cdf if streams <= _EXACT_FLOWS else max_load_cdf_by_transform
        return cls(streams, links, leaves, of(streams, links))

    @property
    def leaf_mean(self) -> float:
        """Mean, over leaves and seeds, of a leaf's fullest uplink over the mean of its uplinks."""
        return float((1 - self.cdf).sum()) * self.links / self.streams

    @property
    def fabric_mean(self) -> float | None:
        """Mean, over seeds, of the fullest uplink of all leaves over the mean."""
        if self.leaves is None:
            return None
        return float((1 - self.cdf**self.leaves).sum()) * self.links / self.streams

    def pmf(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return possible values of a leaf's imbalance, and their probabilities."""
        loads = np.arange(self.streams + 1) * self.links / self.streams
        return loads, np.diff(self.cdf, prepend=0.0)


@dataclass(frozen=True)
class Fit:
    """What seeds gave against the law.

    Attributes:
        samples: leaves times seeds.
        mean, expected: of a leaf's imbalance, seen and by law.
        distance: largest difference between the distribution seen and the law's.
        allowed: what the distance stays under with a probability of 1 - ``SIGNIFICANCE`` when
            the law holds.
    """

    samples: int
    mean: float
    expected: float
    distance: float
    allowed: float

    @property
    def consistent(self) -> bool:
        """True when chance explains the difference."""
        return self.distance <= self.allowed


@dataclass(frozen=True)
class FoundSeed:
    """The seed whose worst uplink is nearest to a wanted load.

    Attributes:
        seed: the lowest of those equally near.
        worst: its worst uplink's load.
        wanted: the load asked for.
        searched: how many seeds were tried.
    """

    seed: int
    worst: float
    wanted: float
    searched: int

    @property
    def off(self) -> float:
        """By how much the found load differs from the wanted one."""
        return self.worst - self.wanted


def law_of(scenario: Scenario, scheme: Scheme, seen: Spread) -> tuple[Law | None, str]:
    """Return the law that the fullest uplinks of a spread follow, or None and why none does.

    Where leaves send different numbers of streams, it is the law of the most common number.
    """
    if not scenario.topology.uplinks_per_leaf:
        return None, "there are no uplinks"
    if scheme.nic.entropy != "qp":
        return None, "flows are sprayed"
    if not hashes_source_port(scheme.switch):
        return None, "switches do not look at the source port, so flows of two hosts hash alike"
    shares = NexthopGroup.of_leaf(scenario.topology).shares()
    # Shares of equal weights differ by a hash or two of 2^31.
    if not np.allclose(shares, shares[0]) or len(set(scenario.topology.rates_to_spines)) > 1:
        return None, "uplinks differ in rate or share"
    rates = scenario.workload.table(scenario.topology, int(seen.seeds[0])).rate_bps
    if not np.allclose(rates, rates[0]):
        return None, "flows have different rates"
    streams = seen.leaf_streams[seen.leaf_streams > 0]
    if not streams.size:
        return None, "no flow leaves its leaf"
    numbers, counts = np.unique(streams, return_counts=True)
    sending = (seen.leaf_streams > 0).sum(axis=1)
    leaves = int(sending[0]) if len(numbers) == 1 and (sending == sending[0]).all() else None
    most_common = int(numbers[np.argmax(counts)])
    return Law.of(most_common, scenario.topology.uplinks_per_leaf, leaves), ""


def fit(law: Law, seen: Spread) -> Fit:
    """Compare a spread with the law.

    Source: Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant (1990): a distribution
    seen in n samples differs from the true one by more than d somewhere with a probability of at
    most 2 exp(-2 n d^2).
    """
    imbalance = seen.leaf_imbalance[seen.leaf_streams == law.streams]
    fullest = np.rint(imbalance * law.streams / law.links).astype(np.int64)
    cumulative = np.cumsum(np.bincount(fullest, minlength=law.streams + 1)) / len(fullest)
    return Fit(
        len(fullest),
        float(imbalance.mean()),
        law.leaf_mean,
        float(np.abs(cumulative - law.cdf).max()),
        math.sqrt(math.log(2 / SIGNIFICANCE) / (2 * len(fullest))),
    )


def find_seed(
    scenario: Scenario,
    scheme: Scheme,
    worst: float,
    seeds: Sequence[int] = range(1, SEEDS_SEARCHED + 1),
    told: Callable[[float], object] = lambda share: None,
) -> FoundSeed:
    """Return the seed, of some, whose worst uplink is loaded most nearly as wanted.

    Args:
        scenario, scheme: what is to run.
        worst: the wanted load over the uplink's rate.
        seeds: those to try, in order.
        told: called with the share done.
    """
    loads = []
    for start in range(0, len(seeds), _SEEDS_AT_ONCE):
        part = seeds[start : start + _SEEDS_AT_ONCE]
        loads.append(spread(scenario, scheme, part).worst)
        told((start + len(part)) / len(seeds))
    found = np.concatenate(loads)
    # Loads that differ in their last digits only are the same number of flows.
    best = int(np.argmin(np.round(np.abs(found - worst), 9)))
    return FoundSeed(seeds[best], float(found[best]), worst, len(seeds))


def max_load_cdf_by_transform(flows: int, links: int) -> NDArray[np.float64]:
    """Return what ``max_load_cdf`` does to within 1e-12, faster for thousands of flows.

    Independent Poisson loads with a given sum are spread like balls. The sum stays within 12
    standard deviations of its mean but for 1e-30: a discrete Fourier transform over a window of
    24 of them finds the weight of the sum `flows` among loads of at most c.
    """
    mean = flows / links
    reach = 12 * math.sqrt(mean) + 24  # a Poisson load is farther from its mean but for 1e-18
    low, high = max(0, math.floor(mean - reach)), min(flows, math.ceil(mean + reach))
    window = 1 << math.ceil(math.log2(24 * math.sqrt(flows) + 48))
    roots = np.exp(-2j * np.pi * np.arange(window) / window)
    frequency = np.arange(window // 2 + 1)  # the others are these, conjugated
    count = np.where(frequency % (window // 2) == 0, 1, 2) / window
    back = roots[-frequency * flows % window] * count
    transform = np.zeros(len(frequency), np.complex128)
    cdf = np.ones(flows + 1)
    cdf[:low] = 0
    for load in range(low, high + 1):
        weight = math.exp(load * math.log(mean) - mean - math.lgamma(load + 1))
        transform += weight * roots[frequency * load % window]
        cdf[load] = max(0.0, float((_power(transform, links) * back).sum().real))
    cdf[low : high + 1] /= cdf[high]
    return np.maximum.accumulate(cdf)


def _power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        values = values * values
        exponent >>= 1
    return result
