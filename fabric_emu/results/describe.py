"""A topology in words."""

from __future__ import annotations

from fabric_emu.model.topology import Topology
from fabric_emu.units import format_rate

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


def rates(topology: Topology) -> str:
    """Return the link rates: ``50 Mbit/s links, standing for 400 Gbit/s``."""
    text = f"{format_rate(topology.link_rate)} links"
    if topology.host_rate_bps != topology.link_rate:
        text += f", {format_rate(topology.host_rate_bps)} to hosts"
    if topology.stands_for:
        text += f", standing for {format_rate(topology.stands_for)}"
    return text
