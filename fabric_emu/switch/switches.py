"""The switch table: policies and counters of every switch as numpy columns, and where they lead.

What is written here takes effect with the next packet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from fabric_emu.switch.columns import MapColumns, Records, read_only


class Mode(IntEnum):
    """How a switch chooses among equal next hops: ``mode`` of its configuration."""

    KERNEL = 0
    FLOWLET_QUALITY = 1
    FLOWLET_RANDOM = 2
    PER_PACKET_QUALITY = 3
    PER_PACKET_RANDOM = 4
    FIXED = 5
    ROUND_ROBIN = 6


GROUP_PORTS = 64
"""Equal next hops that a switch can choose from."""

ADVERT_LEAVES = 64
"""Leaves that one advert tells of."""

# These mirror the structures of bpf/structures.h, where each field is explained.
SWITCH_CONFIG_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("flowlet_gap_ns", "u8"),
        ("advert_ageing_ns", "u8"),
        ("table_entries", "u4"),
        ("hash_seed", "u4"),
        ("mode", "u4"),
        ("plane", "u1"),
        ("padding", "u1", (3,)),
    ]
)
SWITCH_COUNTERS_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("balanced", "u8"),
        ("flowlets", "u8"),
        ("reassignments", "u8"),
        ("fallbacks", "u8"),
        ("adverts_received", "u8"),
        ("adverts_refused", "u8"),
        ("stale", "u8"),
    ]
)
GROUP_DTYPE: np.dtype[Any] = np.dtype([("size", "u4"), ("ports", "u4", (GROUP_PORTS,))])
FLOWLET_DTYPE: np.dtype[Any] = np.dtype([("last_ns", "u8"), ("port", "u4"), ("route", "u4")])
ADVERT_DTYPE: np.dtype[Any] = np.dtype([("heard_ns", "u8"), ("quality", "u1", (ADVERT_LEAVES,))])


@dataclass(frozen=True)
class SwitchSizes:
    """How much of everything there is.

    Attributes:
        switches: that choose next hops themselves or listen to adverts.
        groups: of equal next hops.
        ports, leaves, flowlets, blocks: as the programs' constants say.
    """

    switches: int = 0
    groups: int = 0
    ports: int = 0
    leaves: int = 0
    flowlets: int = 0
    blocks: int = 0

    def with_constants(self, ports: int, leaves: int, flowlets: int, blocks: int) -> SwitchSizes:
        """Return the sizes with what the programs take as fixed."""
        return replace(self, ports=ports, leaves=leaves, flowlets=flowlets, blocks=blocks)

    def map_entries(self) -> dict[str, int]:
        """Return the size of each map."""
        return {
            "switch_configs": self.switches,
            "switch_counters": self.switches,
            "routes": self.switches * self.leaves,
            "groups": self.groups,
            "turns": self.groups,
            "flowlets": self.switches * self.flowlets,
            "adverts": self.ports * self.blocks,
        }


class SwitchTable:
    """The maps of the switches as numpy columns.

    Args:
        columns: opens the maps.
        sizes: of everything.

    Attributes:
        sizes: as given.
        configs: (switches,) of `SWITCH_CONFIG_DTYPE`, live.
        counters: (switches,) of `SWITCH_COUNTERS_DTYPE`, live and read-only.
        routes: (switches, leaves) uint32, live: number of the group of next hops to each leaf,
            from 1; 0 leaves the leaf to the kernel.
        groups: (groups,) of `GROUP_DTYPE`, live. A group that loses a member for good should get a
            new number: flowlets stay with a group as long as its number does.
        flowlets: (switches, entries) of `FLOWLET_DTYPE`, live and read-only.
        adverts: (ports, blocks) of `ADVERT_DTYPE`, live and read-only: what came in by each port.
        names: of the switches, by row; empty unless somebody sets them.

    Raises:
        ProgramRejected: a structure is not as mirrored.
    """

    def __init__(self, columns: MapColumns, sizes: SwitchSizes) -> None:
        self.sizes = sizes
        records = columns.records
        n = sizes.switches
        self.configs = records("switch_configs", "switch_config", SWITCH_CONFIG_DTYPE, n)
        counters = records("switch_counters", "switch_counters", SWITCH_COUNTERS_DTYPE, n)
        self.counters = read_only(counters)
        self.routes = columns.words("routes", n * sizes.leaves).reshape(n, sizes.leaves)
        self.groups = records("groups", "group", GROUP_DTYPE, sizes.groups)
        flowlets = records("flowlets", "flowlet", FLOWLET_DTYPE, n * sizes.flowlets)
        self.flowlets = read_only(flowlets).reshape(n, sizes.flowlets)
        adverts = records("adverts", "advert", ADVERT_DTYPE, sizes.ports * sizes.blocks)
        self.adverts = read_only(adverts).reshape(sizes.ports, sizes.blocks)
        self.names: tuple[str, ...] = ()

    def row(self, name: str) -> int:
        """Return the row of a switch. Raises ValueError for one that leaves all to the kernel."""
        return self.names.index(name)

    def close(self) -> None:
        """Let go of the columns."""
        for column in ("configs", "counters", "routes", "groups", "flowlets", "adverts"):
            setattr(self, column, np.empty(0, np.void))

    def totals(self) -> dict[str, int]:
        """Return every counter, summed over the switches."""
        return {name: int(self.counters[name].sum()) for name in SWITCH_COUNTERS_DTYPE.names or ()}


def group_of(ports: npt.ArrayLike) -> Records:
    """Return the ports as one record of `GROUP_DTYPE`."""
    members = np.asarray(ports, np.uint32)
    group = np.zeros((), GROUP_DTYPE)
    group["size"] = len(members)
    group["ports"][: len(members)] = members
    return group
