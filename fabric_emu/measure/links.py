"""Load on the links: what was asked of each uplink and what it carried, and how unevenly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.statistics import imbalance
from fabric_emu.model.topology import Role, Topology


@dataclass(frozen=True)
class LinkLoads:
    """Loads over one window.

    Attributes:
        offered: (ports,) bytes asked of each port, before any drop, over rate times time.
        carried: (ports,) bytes that left it, likewise.
    """

    offered: NDArray[np.float64]
    carried: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        topology: Topology,
        offered_bytes: NDArray[np.uint64],
        carried_bytes: NDArray[np.uint64],
        window_s: float,
    ) -> LinkLoads:
        """Return the loads of all ports, given bytes counted over ``window_s`` seconds."""
        rate = np.repeat([link.rate_bps for link in topology.links], 2)
        room = rate / 8 * window_s
        return cls(offered_bytes / room, carried_bytes / room)


def summarise_links(topology: Topology, loads: LinkLoads) -> dict[str, Any]:
    """Return the uplinks of every switch that sends upwards, their imbalance, and the worst ones.

    Keys: ``uplinks`` (``share``: of what the switch was asked to send up), ``imbalance``,
    ``worst_uplink``, ``worst_uplink_load`` (both None with one tier), ``worst_link``,
    ``worst_link_load`` (of all ports of switches).
    """
    uplinks: dict[str, list[dict[str, Any]]] = {}
    spread = {}
    for switch in topology.switches:
        links = topology.uplinks[switch.name]
        ports = [link.up_port for link in links]
        if not links:
            continue
        upper = "spine" if switch.role is Role.LEAF else "super_spine"
        asked = np.array([loads.offered[link.up_port] * link.rate_bps for link in links])
        shares = asked / (asked.sum() or 1)
        uplinks[switch.name] = [
            {
                upper: link.upper.name,
                "link": link.name,
                "offered": float(loads.offered[link.up_port]),
                "carried": float(loads.carried[link.up_port]),
                "share": float(share),
            }
            for link, share in zip(links, shares, strict=True)
        ]
        spread[switch.name] = asdict(imbalance(loads.offered[ports]))
    entries = [entry for links_of in uplinks.values() for entry in links_of]
    worst_up = max(entries, key=lambda entry: entry["offered"], default=None)
    switch_ports = [
        (port, link.name)
        for link in topology.links
        for port in ((link.down_port,) if link.lower.role is Role.HOST else _both(link.index))
    ]
    worst, name = max(switch_ports, key=lambda entry: loads.offered[entry[0]])
    return {
        "worst_uplink_load": worst_up["offered"] if worst_up else None,
        "worst_uplink": worst_up["link"] if worst_up else None,
        "worst_link_load": float(loads.offered[worst]),
        "worst_link": name,
        "uplinks": uplinks,
        "imbalance": spread,
    }


def _both(index: int) -> tuple[int, int]:
    return 2 * index, 2 * index + 1
