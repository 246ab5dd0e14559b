"""Load on the links that lead down to a switch, against what they can carry while faults last.

A leaf decides about its uplinks alone; what became of it further on shows here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.links import LinkLoads
from fabric_emu.measure.statistics import imbalance
from fabric_emu.model.fault import Fault
from fabric_emu.model.topology import Role, Topology

FLAP_SHARE = 0.5
"""A flapping link is there half of the time."""


def room_share(topology: Topology, faults: Sequence[Fault], window_s: float) -> NDArray[np.float64]:
    """Return (ports,) what faults leave of each port's rate, on average over a window.

    Of several faults that a port has at a time the worst counts. A lossy link keeps its rate.

    Args:
        topology: the fabric.
        faults: those of the run.
        window_s: from the moment the hosts begin to send.
    """
    ends = [(fault.at, fault.at + (fault.duration or np.inf)) for fault in faults]
    edges = np.unique(np.clip([0.0, window_s, *np.ravel(ends)], 0.0, window_s))
    room = np.zeros(2 * len(topology.links))
    for begin, end in itertools.pairwise(edges):
        left = np.ones_like(room)
        for fault, (first, last) in zip(faults, ends, strict=True):
            if first <= begin and end <= last:
                ports, share = _effect(topology, fault)
                left[ports] = np.minimum(left[ports], share)
        room += left * (end - begin) / window_s
    return room


def _effect(topology: Topology, fault: Fault) -> tuple[list[int], float]:
    """Return the ports that a fault hits and what it leaves of their rate."""
    links = fault.links(topology, "faults")
    ports = [port for link in links for port in (link.up_port, link.down_port)]
    link = links[0]
    if fault.towards is not None:
        ports = [link.up_port if fault.towards == link.upper.name else link.down_port]
    if fault.action == "slow":
        return ports, min((fault.rate or 0) / link.rate_bps, 1.0)
    return ports, {"loss": 1.0, "flap": FLAP_SHARE}.get(fault.action, 0.0)


def summarise_downlinks(
    topology: Topology, loads: LinkLoads, room: NDArray[np.float64]
) -> dict[str, Any]:
    """Return the links down to every switch, their imbalance, and the worst of them.

    Keys: ``downlinks``, by receiving switch, with ``offered`` and ``carried`` over the link's own
    rate and ``room``, the share of that rate which faults left; ``downlink_imbalance``, of offered
    over room; ``worst_downlink`` and ``worst_downlink_load``, likewise (both None with one tier).
    Links without any room have no load to compare and are left out of the last three.

    Args:
        topology: the fabric.
        loads: of all ports.
        room: (ports,) as from ``room_share``.
    """
    downlinks: dict[str, list[dict[str, Any]]] = {}
    spread = {}
    worst: tuple[float, str] | None = None
    for switch in topology.switches:
        links = topology.uplinks[switch.name]
        if not links:
            continue
        upper = "spine" if switch.role is Role.LEAF else "super_spine"
        downlinks[switch.name] = [
            {
                upper: link.upper.name,
                "link": link.name,
                "offered": float(loads.offered[link.down_port]),
                "carried": float(loads.carried[link.down_port]),
                "room": float(room[link.down_port]),
            }
            for link in links
        ]
        open_links = [entry for entry in downlinks[switch.name] if entry["room"] > 0]
        of_room = [entry["offered"] / entry["room"] for entry in open_links]
        spread[switch.name] = asdict(imbalance(of_room))
        for load, entry in zip(of_room, open_links, strict=True):
            if worst is None or load > worst[0]:
                worst = load, entry["link"]
    return {
        "worst_downlink_load": worst[0] if worst else None,
        "worst_downlink": worst[1] if worst else None,
        "downlinks": downlinks,
        "downlink_imbalance": spread,
    }
