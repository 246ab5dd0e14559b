"""One nexthop group as the kernel makes it: which member takes a hash, and what share each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.topology import Link, Topology
from fabric_emu.predict.multipath import (
    resilient_buckets,
    select_by_threshold,
    select_resilient,
    thresholds,
)


@dataclass(frozen=True)
class NexthopGroup:
    """A group whose members are all there and have been since it was made.

    Attributes:
        weights: of the members, in order.
        buckets: of a resilient group; None: thresholds.
    """

    weights: tuple[int, ...]
    buckets: int | None = None

    @classmethod
    def of_leaf(cls, topology: Topology) -> NexthopGroup:
        """Return the group of a leaf's uplinks."""
        rates = [rate for rate in topology.rates_to_spines for _ in range(topology.links_per_pair)]
        return cls._of(topology, topology.ecmp.weights_of(rates))

    @classmethod
    def of_alike(cls, topology: Topology, members: int) -> NexthopGroup:
        """Return a group of links of one rate."""
        return cls._of(topology, (1,) * members)

    @classmethod
    def of_links(cls, topology: Topology, links: Sequence[Link]) -> NexthopGroup:
        """Return the group of some next hops, made when these were all there are."""
        return cls._of(topology, topology.ecmp.weights_of([link.rate_bps for link in links]))

    @classmethod
    def _of(cls, topology: Topology, weights: tuple[int, ...]) -> NexthopGroup:
        resilient = topology.ecmp.resilient
        return cls(weights, resilient.buckets if resilient else None)

    def choose(self, hashes: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Return (n,) the place of the member that takes each hash."""
        if self.buckets is None:
            return select_by_threshold(hashes, self.weights)
        return select_resilient(hashes, self._table)

    def shares(self) -> NDArray[np.float64]:
        """Return (members,) the part of all hashes that each member takes."""
        if self.buckets is None:
            bounds = thresholds(self.weights)
            return np.asarray(np.diff(bounds, prepend=-1) / (bounds[-1] + 1))
        return np.bincount(self._table, minlength=len(self.weights)) / self.buckets

    @cached_property
    def _table(self) -> NDArray[np.intp]:
        return resilient_buckets(self.weights, self.buckets or 0)
