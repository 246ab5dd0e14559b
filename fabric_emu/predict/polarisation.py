"""How many paths are left when switches of two tiers hash with one seed."""

from __future__ import annotations

import math


def polarised_paths(leaf_uplinks: int, spine_uplinks: int) -> int:
    """Return how many of the leaf_uplinks x spine_uplinks paths can be used with one seed.

    Both tiers cut the hash space [0, 1) into equal regions. A hash decides both choices, and these
    change only where it passes a bound of the leaf's, of the spine's, or one they share. With m
    and n regions there are (m - 1) + (n - 1) bounds, of which gcd(m, n) - 1 coincide: m + n -
    gcd(m, n) pairs of choices. With m = n that is m of m^2: the diagonal.

    Raises:
        ValueError: fewer than 1 uplink.
    """
    if leaf_uplinks < 1 or spine_uplinks < 1:
        raise ValueError(f"expected 1 or more uplinks, not {leaf_uplinks} and {spine_uplinks}")
    return leaf_uplinks + spine_uplinks - math.gcd(leaf_uplinks, spine_uplinks)
