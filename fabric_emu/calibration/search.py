"""The search for the highest factor that a machine carries, in few trials."""

from __future__ import annotations

import math
from collections.abc import Callable

RESOLUTION = 2**0.25
"""What is found is below the true limit by this ratio at most."""


MARGIN = 0.8
"""What is found is this share of a rate that was carried in a trial.

One trial that went well says little of the next run at the same rate: near the limit some do and
some do not. A worker's time and the lateness it is judged by grow with the rate, so a fifth less
leaves a fifth of it for what other processes take meanwhile and for what a longer run meets.
"""


def highest(carries: Callable[[float], bool], lowest: float, first: float = 1.0) -> float | None:
    """Return a factor that is carried and, within ``RESOLUTION``, the highest one.

    Bisects the logarithm, because nobody knows the order of magnitude beforehand.

    Args:
        carries: whether a factor is carried; then all smaller ones are taken to be carried, too.
        lowest: the smallest factor worth a trial.
        first: the largest, which is tried first.

    Returns:
        None when not even ``lowest`` is carried.
    """
    if carries(first):
        return first
    low, high, found = lowest, first, None
    while high / low > RESOLUTION:
        middle = math.sqrt(low * high)
        if carries(middle):
            low = found = middle
        else:
            high = middle
    if found is None and lowest < first and carries(lowest):
        return lowest
    return found


def best_of_three(once: Callable[[], bool]) -> bool:
    """Return what most of three trials say; one that goes well at once is enough.

    Others use the machine as well: one bad trial may be theirs.
    """
    if once():
        return True
    return once() and once()
