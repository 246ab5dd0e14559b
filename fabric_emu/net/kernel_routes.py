"""What a kernel's routing table holds, read back, and what it should hold."""

from __future__ import annotations

import socket
import struct
from collections.abc import Set
from ipaddress import IPv4Network, IPv6Network

from pyroute2.netlink.rtnl import RTM_GETROUTE

from fabric_emu.model.reachability import next_hops_without
from fabric_emu.model.topology import Node, Role, Topology
from fabric_emu.net.encoding import encode
from fabric_emu.net.netlink import NLM_F_REQUEST, NetlinkSocket, RouteMessage, attributes

_NLM_F_DUMP = 0x300
_RTA_DST, _RTA_OIF, _RTA_MULTIPATH = 1, 4, 9
_RTM_HEADER = struct.Struct("=BBBBBBBBI")
RTPROT_STATIC, RTPROT_BGP = 4, 186

Routes = dict[str, tuple[int, ...]]


def kernel_routes(sock: NetlinkSocket, family: int, protocol: int) -> Routes:
    """Return the interface indexes of each prefix of a protocol's routes, in ECMP order."""
    number = socket.AF_INET if family == 4 else socket.AF_INET6
    request = encode(RouteMessage, RTM_GETROUTE, NLM_F_REQUEST | _NLM_F_DUMP, [], family=number)
    found: Routes = {}
    for message in sock.dump(request):
        _, length, _, _, _, by, *_ = _RTM_HEADER.unpack_from(message, 16)
        known = attributes(message, 28)
        if by != protocol or _RTA_DST not in known:
            continue
        prefix = f"{socket.inet_ntop(number, known[_RTA_DST])}/{length}"
        if _RTA_MULTIPATH in known:
            hops = _hops(known[_RTA_MULTIPATH])
        else:
            hops = struct.unpack("=I", known[_RTA_OIF])
        found[prefix] = found.get(prefix, ()) + hops
    return found


def leaf_routes(sock: NetlinkSocket, topology: Topology, protocol: int) -> Routes:
    """Return a protocol's routes to leaves, of all families of a fabric."""
    leaves = [node for node in topology.switches if node.role is Role.LEAF]
    prefixes = {str(prefix) for leaf in leaves for prefix in _prefixes(topology, leaf)}
    found: Routes = {}
    for family in topology.families:
        found |= kernel_routes(sock, family, protocol)
    return {prefix: hops for prefix, hops in found.items() if prefix in prefixes}


def expected_routes(topology: Topology, base: int, switch: Node, dead: Set[int]) -> Routes:
    """Return the routes to leaves that a switch's kernel must have, next hops in ECMP order.

    Args:
        topology: the fabric.
        base: interface index of port 0.
        switch: whose.
        dead: indexes of the links that the switch knows to be dead.
    """
    routes: Routes = {}
    for leaf in topology.switches:
        if leaf.role is not Role.LEAF or leaf.plane != switch.plane or leaf == switch:
            continue
        hops = tuple(
            base + (link.up_port if link.lower == switch else link.down_port)
            for link in next_hops_without(topology, switch, leaf, dead)
        )
        if hops:
            routes |= {str(prefix): hops for prefix in _prefixes(topology, leaf)}
    return routes


def _prefixes(topology: Topology, leaf: Node) -> list[IPv4Network | IPv6Network]:
    return [
        topology.leaf_prefix4(leaf) if family == 4 else topology.leaf_prefix6(leaf)
        for family in topology.families
    ]


def _hops(data: bytes) -> tuple[int, ...]:
    """Return the interface index of each ``struct rtnexthop``."""
    found, offset = [], 0
    while offset + 8 <= len(data):
        length, _, _, index = struct.unpack_from("=HBBi", data, offset)
        found.append(index)
        offset += (length + 3) & ~3
    return tuple(found)
