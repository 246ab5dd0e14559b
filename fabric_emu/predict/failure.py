"""What a lost link moves: next hops before and after a member leaves its group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.predict.law import hash_threshold_disruption
from fabric_emu.predict.multipath import (
    rebalance_resilient,
    resilient_buckets,
    select_by_threshold,
    select_resilient,
)


@dataclass(frozen=True)
class Removal:
    """Next hops of flows around the removal of one member of equal weight.

    Attributes:
        before, after: (flows,) place of the next hop in the group as it was before.
        removed: the place of the member that went.
        expected: share of flows that move when hashes are spread evenly.
    """

    before: NDArray[np.intp]
    after: NDArray[np.intp]
    removed: int
    expected: float

    @property
    def moved(self) -> float:
        """Share of flows that have another next hop."""
        return float(np.mean(self.before != self.after))

    @property
    def moved_needlessly(self) -> float:
        """Share of flows that had another next hop than the removed one, and yet moved."""
        return float(np.mean((self.before != self.after) & (self.before != self.removed)))


def remove_from_hash_threshold(hashes: NDArray[np.uint32], members: int, removed: int) -> Removal:
    """Return what flows do when a multipath route or a hash-threshold group loses a member.

    The kernel divides the hash space anew among those left, so most regions shift.

    Args:
        hashes: (flows,) from ``multipath_hash``.
        members: of equal weight, before the removal.
        removed: the member's place, from 0.

    Raises:
        ValueError: fewer than 2 members, or a place beyond them.

    Source: RFC 2992, analysis of disruption.
    """
    usable = _left(members, removed)
    weights = [1] * members
    return Removal(
        select_by_threshold(hashes, weights),
        select_by_threshold(hashes, weights, usable),
        removed,
        hash_threshold_disruption(members, removed),
    )


def remove_from_resilient(
    hashes: NDArray[np.uint32], members: int, removed: int, buckets: int
) -> Removal:
    """Return what flows do when a resilient group of busy buckets loses a member.

    Only the removed member's buckets get another one.

    Args:
        hashes, members, removed: as for ``remove_from_hash_threshold``.
        buckets: of the group, dealt out when it was made and unchanged since.

    Raises:
        ValueError: fewer than 2 members, a place beyond them, or buckets that the kernel refuses.
    """
    usable = _left(members, removed)
    weights = [1] * members
    table = resilient_buckets(weights, buckets)
    return Removal(
        select_resilient(hashes, table),
        select_resilient(hashes, rebalance_resilient(table, weights, usable)),
        removed,
        float(np.mean(table == removed)),
    )


def _left(members: int, removed: int) -> NDArray[np.bool_]:
    if members < 2 or not 0 <= removed < members:
        raise ValueError(f"expected 2 or more members and one of them, not {members}, {removed}")
    left: NDArray[np.bool_] = np.arange(members) != removed
    return left
