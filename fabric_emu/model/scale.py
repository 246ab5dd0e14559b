"""How much slower a fabric is than the real thing, and how much it holds in flight."""

from __future__ import annotations

from fabric_emu.model.topology import Topology

HARDWARE_RATE_BPS = 400 * 10**9
"""Link rate that times given for hardware are taken to mean, unless a topology says otherwise."""

BDP_FRAMES = 8
"""Frames that a fabric's bandwidth-delay product is taken to hold at least."""

ETHERNET_BYTES = 14
_UDP_BTH_RETH_ICRC_BYTES = 8 + 12 + 16 + 4


def hardware_scale(topology: Topology) -> float:
    """Return how many times longer than in hardware everything takes: 4,000 at 100 Mbit/s."""
    return (topology.stands_for or HARDWARE_RATE_BPS) / topology.link_rate


def base_rtt_s(topology: Topology, frame_bytes: int) -> float:
    """Return a round trip's time in an empty fabric, from serialisation alone.

    A full frame there and an acknowledgement, whose time is neglected, back.

    Args:
        topology: the fabric.
        frame_bytes: of the frame there.
    """
    hosts = 2 * frame_bytes * 8 / topology.host_rate_bps
    between = 2 * (topology.tiers - 1) * frame_bytes * 8 / topology.slowest_rate_bps
    return hosts + between


def largest_frame_bytes(topology: Topology) -> int:
    """Return the bytes of a frame that fills the MTU."""
    return topology.mtu + ETHERNET_BYTES


def data_frame_bytes(topology: Topology, payload_bytes: int) -> int:
    """Return the bytes of a RoCEv2 WRITE with a payload, without its frame check sequence."""
    ip = 40 if 6 in topology.families else 20
    padding = -payload_bytes % 4
    return ETHERNET_BYTES + ip + _UDP_BTH_RETH_ICRC_BYTES + payload_bytes + padding


def bdp_bytes(topology: Topology, frame_bytes: int) -> int:
    """Return the bandwidth-delay product: the slowest link's rate over a base round trip.

    ``BDP_FRAMES`` at least: serialisation alone makes six frames at most, and NICs that are
    processes add about as much to a round trip. Real fabrics hold a hundred.
    """
    slowest_bps = min(topology.slowest_rate_bps, topology.host_rate_bps)
    serialised = round(slowest_bps / 8 * base_rtt_s(topology, frame_bytes))
    return max(serialised, BDP_FRAMES * frame_bytes)
