"""A topology in words."""

from __future__ import annotations

from fabric_emu.model.fault import Fault
from fabric_emu.model.topology import Topology
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.results.figures import percent
from fabric_emu.units import format_duration, format_rate

_PLURALS = {"leaf": "leaves", "chassis": "chassis", "process": "processes"}


def plural(number: int, noun: str) -> str:
    """Return ``1 leaf``, ``2 leaves``, ``1,024 hosts``."""
    return f"{number:,} {noun if number == 1 else _PLURALS.get(noun, noun + 's')}"


def nodes(topology: Topology) -> str:
    """Return how many hosts and switches there are, over all planes: ``2 leaves, 8 spines, ...``"""
    planes = topology.planes
    if topology.tiers == 1:
        counts = [plural(planes, "chassis")]
    else:
        counts = [
            plural(topology.total_leaves * planes, "leaf"),
            plural(topology.spines * topology.pods * planes, "spine"),
        ]
    if topology.tiers == 3:
        counts.append(plural(topology.super_spines * planes, "super-spine"))
    return ", ".join([*counts, plural(topology.total_hosts, "host")])


def fault_text(fault: Fault) -> str:
    """Return a fault: ``leaf1-spine2 slow, 10 Mbit/s, towards spine2, from 1 s for 500 ms``."""
    parts = [f"{fault.place} {fault.action}"]
    if fault.rate is not None:
        parts.append(format_rate(fault.rate))
    if fault.probability is not None:
        parts.append(percent(fault.probability, 2))
    if fault.period is not None:
        parts.append(f"every {format_duration(fault.period)}")
    if fault.towards is not None:
        parts.append(f"towards {fault.towards}")
    lasts = "on" if fault.duration is None else f"for {format_duration(fault.duration)}"
    return f"{', '.join(parts)}, from {format_duration(fault.at)} {lasts}"


def rates(topology: Topology) -> str:
    """Return the link rates: ``50 Mbit/s links, standing for 400 Gbit/s``."""
    text = f"{format_rate(topology.link_rate)} links"
    if topology.spine_rates:
        to_spines = ", ".join(map(format_rate, topology.spine_rates))
        text = f"links of {to_spines} to spine1 and on"
    if topology.host_rate_bps != topology.link_rate or topology.spine_rates:
        text += f", {format_rate(topology.host_rate_bps)} to hosts"
    if topology.stands_for:
        text += f", standing for {format_rate(topology.stands_for)}"
    return text


def nexthop_groups(topology: Topology) -> str:
    """Return what a leaf's group is: ``weights 1, 1, 2: 25.0 %, 25.0 %, 50.0 % of the flows``."""
    group = NexthopGroup.of_leaf(topology)
    shares = ", ".join(percent(share, 1) for share in group.shares())
    text = f"weights {', '.join(map(str, group.weights))}: {shares} of the flows"
    return text if group.buckets is None else f"resilient, {group.buckets:,} buckets, {text}"
