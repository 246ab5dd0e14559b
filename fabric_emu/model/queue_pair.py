"""Queue pairs: what a run's flows open, with the source ports that their seed gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.flow_table import FlowTable

if TYPE_CHECKING:
    from fabric_emu.model.scheme import Nic
    from fabric_emu.model.workload import Flow

QPN_BASE = 0x100
"""Number of a run's first queue pair at its destination; the low ones are reserved."""

FIRST_SOURCE_PORT, SOURCE_PORTS = 0xC000, 1 << 14
"""UDP source ports that RoCEv2 uses: 14 bits of entropy."""


def plane_of(source_port: NDArray[np.uint16], planes: int) -> NDArray[np.int64]:
    """Return (n,) the plane that packets of messages take, from their source ports.

    A NIC with a port in each of several planes picks one by the packet's entropy, so that an
    entropy value names its plane, and answers, which echo it, come back over the same one.
    """
    return (source_port.astype(np.int64) - FIRST_SOURCE_PORT) % planes


def draw_source_ports(count: int, seed: int) -> NDArray[np.uint16]:
    """Return the source ports of a run's queue pairs, in the order of their rows."""
    last = FIRST_SOURCE_PORT + SOURCE_PORTS
    return np.random.default_rng([seed, 1]).integers(FIRST_SOURCE_PORT, last, count, np.uint16)


@dataclass(frozen=True)
class QueuePairs:
    """Every queue pair of a run, one row each; its number is ``QPN_BASE`` + row.

    Attributes:
        flow: (n,) index of the flow it belongs to.
        source, destination: (n,) 0-based host numbers.
        plane: (n,).
        family: (n,) 4 or 6.
        source_port: (n,) uint16; 0 when the entropy changes from packet to packet.
    """

    flow: NDArray[np.int64]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    plane: NDArray[np.int64]
    family: NDArray[np.int64]
    source_port: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.flow)

    @classmethod
    def of(cls, flows: Sequence[Flow] | FlowTable, nic: Nic, seed: int) -> QueuePairs:
        """Return the queue pairs of flows; their source ports are drawn from the seed."""
        table = flows if isinstance(flows, FlowTable) else FlowTable.of(flows)
        flow = np.repeat(np.arange(len(table)), nic.queue_pairs)
        ports = draw_source_ports(len(flow), seed)
        return cls(
            flow,
            table.source[flow],
            table.destination[flow],
            table.plane[flow],
            table.family[flow],
            ports if nic.entropy == "qp" else np.zeros_like(ports),
        )

    def groups(self) -> list[NDArray[np.intp]]:
        """Return the rows of each (family, plane) in use."""
        keys = self.family * 256 + self.plane
        return [np.nonzero(keys == key)[0] for key in np.unique(keys)]
