"""Flows as columns: what a workload offers, without an object per flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fabric_emu.model.workload import Flow


@dataclass(frozen=True)
class FlowTable:
    """Constant-rate flows, one row each.

    Attributes:
        source, destination: (n,) 0-based host numbers.
        plane: (n,) 0-based.
        family: (n,) 4 or 6.
        rate_bps: (n,) offered load in bits of Ethernet frames per second.
    """

    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    plane: NDArray[np.int64]
    family: NDArray[np.int64]
    rate_bps: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, flows: Sequence[Flow]) -> Self:
        """Return flows given as objects."""
        return cls(
            np.array([flow.source.number - 1 for flow in flows], np.int64),
            np.array([flow.destination.number - 1 for flow in flows], np.int64),
            np.array([flow.plane for flow in flows], np.int64),
            np.array([flow.family for flow in flows], np.int64),
            np.array([flow.rate_bps for flow in flows], np.float64),
        )

    def take(self, rows: slice | NDArray[np.intp]) -> Self:
        """Return the flows of some rows."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        """Return the flows of several tables, in order."""
        return cls(
            *(np.concatenate([getattr(t, field.name) for t in tables]) for field in fields(cls))
        )
