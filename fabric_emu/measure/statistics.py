"""Figures that condense a column to a few numbers: balance of loads, percentiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Imbalance:
    """How unevenly loads lie on their carriers; 1, 0, 1 when they are equal.

    Attributes:
        max_over_mean: largest load over the mean, 1 to the number of carriers.
        range_over_mean: largest less smallest load over the mean.
        jain: Jain's fairness index, 1 over the number of carriers to 1.
    """

    max_over_mean: float
    range_over_mean: float
    jain: float


@dataclass(frozen=True)
class Percentiles:
    """Median, 99th percentile and maximum of ``count`` values; all 0 when ``count`` is 0."""

    count: int
    p50: float
    p99: float
    max: float


def _finite(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    column = np.asarray(values, np.float64).ravel()
    if not np.isfinite(column).all():
        raise ValueError("values hold NaN or infinity: expected finite numbers only")
    return column


def imbalance(loads: npt.ArrayLike) -> Imbalance:
    """Return the imbalance of loads; carriers that are all idle, or none, count as balanced.

    Args:
        loads: one non-negative load per carrier (uplink, spine, queue pair), in any unit.

    Raises:
        ValueError: a load is negative, NaN or infinite.

    Source: R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination",
    DEC-TR-301, 1984.
    """
    column = _finite(loads)
    if (column < 0).any():
        raise ValueError(f"load {column.min():g}: expected 0 or more")
    if not column.any():
        return Imbalance(max_over_mean=1.0, range_over_mean=0.0, jain=1.0)
    # No figure depends on the unit; in units of the largest load no square can overflow.
    column = column / column.max()
    mean = float(column.mean())
    return Imbalance(
        max_over_mean=1.0 / mean,
        range_over_mean=(1.0 - float(column.min())) / mean,
        jain=min(mean**2 / float(np.mean(column**2)), 1.0),  # rounding may pass 1
    )


def percentiles(values: npt.ArrayLike) -> Percentiles:
    """Return count, median, 99th percentile and maximum; zeros and a count of 0 without values.

    Percentiles interpolate linearly between the two nearest values.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    column = _finite(values)
    if not column.size:
        return Percentiles(count=0, p50=0.0, p99=0.0, max=0.0)
    p50, p99, largest = np.percentile(column, [50, 99, 100])
    return Percentiles(count=column.size, p50=float(p50), p99=float(p99), max=float(largest))
