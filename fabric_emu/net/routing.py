"""Addresses, permanent neighbours and static routes over nexthop objects.

A node's own address sits on its loopback (a host's on its NIC); links are unnumbered and every
gateway is the address of the node at the other end, reached on-link. Nexthop ids::

    family * 10,000,000 + port            one link
    family * 10,000,000 + 1,000,000 + n   n-th group of the switch
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Set
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Literal

from pyroute2.netlink.rtnl import RTM_DELROUTE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from fabric_emu.model.ecmp import Resilient
from fabric_emu.model.reachability import next_hops_without
from fabric_emu.model.topology import Link, Node, Role, Topology, mac_address
from fabric_emu.net.encoding import encode, pack
from fabric_emu.net.kernel_routes import kernel_routes
from fabric_emu.net.netlink import (
    CREATE,
    NLM_F_REQUEST,
    NetlinkSocket,
    NexthopMessage,
    ResilientGroup,
    RouteMessage,
)

RTM_NEWNEXTHOP = 104
_NEXTHOP_GRP_TYPE_RES = 1
_USER_HZ = 100
_RTNH_F_ONLINK = 4
_NUD_PERMANENT = 0x80
_RTPROT_STATIC, _RTN_UNICAST, _RT_TABLE_MAIN = 4, 1, 254
_SCOPE_LINK, _SCOPE_NOWHERE = 253, 255
_IFA_F_NODAD = 2
_LOOPBACK = 1
_ZEBRA_GATEWAY = "169.254.0.1"
"""What zebra routes IPv4 over on every link whose session is IPv6. It makes the neighbour, too, but
only some time after a link is back, and packets that wait for it are lost without a count.

Source: FRR, zebra/rt_netlink.c, ipv4_ll_buf.
"""

_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_FAMILY_STEP, _FIRST_GROUP = 10_000_000, 1_000_000

Family = Literal[4, 6]


def link_local(port: int) -> str:
    """Return the IPv6 link-local address of a port: the EUI-64 of its MAC address.

    zebra reads the MAC address for IPv4 out of it, and orders equal next hops by it: it rises with
    the port, so ECMP groups have the topology's order.

    Source: RFC 4291, appendix A; FRR, zebra/interface.c, if_nbr_ipv6ll_to_ipv4ll_neigh_update.
    """
    mac = bytes.fromhex(mac_address(port).replace(":", ""))
    identifier = bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + identifier))


class Routing:
    """Queues what one node needs to forward: addresses, neighbours, routes.

    Args:
        topology: the fabric.
        base: interface index of port 0.
        socket_of: the netlink socket of a node, by name.
        flags: ``CREATE``, or ``REPLACE`` where some of it may still be there.
        bgp: whether routes between switches are left to BGP, which needs link-local addresses.
        dead_for: the links that a node knows to be dead; no route leads over them.
    """

    def __init__(
        self,
        topology: Topology,
        base: int,
        socket_of: Callable[[str], NetlinkSocket],
        flags: int = CREATE,
        *,
        bgp: bool = False,
        dead_for: Callable[[Node], Set[int]] = lambda _: frozenset(),
    ) -> None:
        self._dead_for = dead_for
        self._flags = flags
        self._bgp = bgp
        self._topology = topology
        self._base = base
        self._socket_of = socket_of
        self._addresses: dict[tuple[str, Family, int], str] = {}

    def _address(self, node: Node, family: Family, plane: int) -> str:
        key = node.name, family, plane
        if key not in self._addresses:
            of = self._topology.address4 if family == 4 else self._topology.address6
            self._addresses[key] = str(of(node, plane))
        return self._addresses[key]

    def addresses(self, node: Node) -> None:
        """Queue a node's own addresses; its interfaces exist."""
        sock = self._socket_of(node.name)
        places = [(_LOOPBACK, node.plane)]
        if node.role is Role.HOST:
            uplinks = self._topology.uplinks[node.name]
            places = [(self._base + link.up_port, link.upper.plane) for link in uplinks]
        for index, plane in places:
            for family in self._topology.families:
                address = self._address(node, family, plane)
                request = encode(
                    ifaddrmsg,
                    RTM_NEWADDR,
                    self._flags,
                    [("IFA_LOCAL", address), ("IFA_ADDRESS", address)],
                    family=_FAMILY[family],
                    prefixlen=32 if family == 4 else 128,
                    index=index,
                    flags=_IFA_F_NODAD,
                )
                sock.queue(request, f"address {address}")

    def neighbours(self, link: Link) -> None:
        """Queue a permanent neighbour entry at each end of a link for the node at the other."""
        for here, there, port in (
            (link.lower, link.upper, link.up_port),
            (link.upper, link.lower, link.down_port),
        ):
            for family in self._topology.families:
                address = self._address(there, family, link.upper.plane)
                request = encode(
                    ndmsg,
                    RTM_NEWNEIGH,
                    self._flags,
                    [("NDA_DST", address), ("NDA_LLADDR", mac_address(port ^ 1))],
                    family=_FAMILY[family],
                    ifindex=self._base + port,
                    state=_NUD_PERMANENT,
                )
                self._socket_of(here.name).queue(request, f"neighbour {address}")

    def link_locals(self, link: Link) -> None:
        """Queue the link-local addresses of a link between switches, which BGP talks over."""
        if not self._bgp or link.lower.role is Role.HOST:
            return
        for here, port in ((link.lower, link.up_port), (link.upper, link.down_port)):
            sock, index = self._socket_of(here.name), self._base + port
            own = link_local(port)
            address = encode(
                ifaddrmsg,
                RTM_NEWADDR,
                self._flags,
                [("IFA_LOCAL", own), ("IFA_ADDRESS", own)],
                family=socket.AF_INET6,
                prefixlen=64,
                index=index,
                scope=_SCOPE_LINK,
                flags=_IFA_F_NODAD,
            )
            sock.queue(address, f"address {own}")
        self.gateways(link)

    def gateways(self, link: Link) -> None:
        """Queue permanent neighbour entries for what zebra routes over a link between switches.

        zebra makes its own of them, which the kernel forgets as soon as the other end is down.
        """
        if not self._bgp or link.lower.role is Role.HOST:
            return
        for here, port in ((link.lower, link.up_port), (link.upper, link.down_port)):
            sock, index = self._socket_of(here.name), self._base + port
            peer = link_local(port ^ 1)
            for family, gateway in ((socket.AF_INET6, peer), (socket.AF_INET, _ZEBRA_GATEWAY)):
                neighbour = encode(
                    ndmsg,
                    RTM_NEWNEIGH,
                    self._flags,
                    [("NDA_DST", gateway), ("NDA_LLADDR", mac_address(port ^ 1))],
                    family=family,
                    ifindex=index,
                    state=_NUD_PERMANENT,
                )
                sock.queue(neighbour, f"neighbour {gateway}")

    def routes(self, node: Node) -> None:
        """Queue a node's routes: a host's towards each plane, a switch's towards every leaf."""
        for family in self._topology.families:
            if node.role is Role.HOST:
                self._host_routes(node, family)
            else:
                self._switch_routes(node, family)

    def _host_routes(self, host: Node, family: Family) -> None:
        sock = self._socket_of(host.name)
        dead = self._dead_for(host)
        for link in self._topology.uplinks[host.name]:
            if link.index in dead:
                continue
            leaf, port = link.upper, link.up_port
            gateway = self._nexthop(sock, family, port, self._address(leaf, family, leaf.plane))
            prefix: IPv4Network | IPv6Network
            if self._topology.planes == 1:
                prefix = IPv4Network("0.0.0.0/0") if family == 4 else IPv6Network("::/0")
            elif family == 4:
                prefix = self._topology.plane_prefix4(leaf.plane)
            else:
                prefix = self._topology.plane_prefix6(leaf.plane)
            self._route(sock, prefix, gateway)

    def _switch_routes(self, switch: Node, family: Family) -> None:
        topology, sock = self._topology, self._socket_of(switch.name)
        dead = self._dead_for(switch)
        made: dict[int, int] = {}
        groups: dict[tuple[int, ...], int] = {}
        for link in topology.downlinks[switch.name]:
            if link.lower.role is Role.HOST and link.index not in dead:
                self._host_on_link(sock, family, link)
        leaves = [
            topology.switch(Role.LEAF, number, switch.plane)
            for number in (() if self._bgp else range(1, topology.total_leaves + 1))
        ]
        # Groups of whole fabrics come first, so that repairs leave them to the routes they serve.
        numbers: dict[tuple[int, ...], int] = {}
        for leaf in leaves:
            if len(whole := topology.next_hops(switch, leaf)) > 1:
                numbers.setdefault(_indexes(whole), len(numbers))
        for leaf in leaves:
            hops, rates = [], []
            alive = next_hops_without(topology, switch, leaf, dead)
            for link in alive:
                is_up = link.lower.name == switch.name
                port = link.up_port if is_up else link.down_port
                if port not in made:
                    there = link.upper if is_up else link.lower
                    address = self._address(there, family, there.plane)
                    made[port] = self._nexthop(sock, family, port, address)
                hops.append(made[port])
                rates.append(link.rate_bps)
            prefix = topology.leaf_prefix4(leaf) if family == 4 else topology.leaf_prefix6(leaf)
            if not hops:
                if dead and leaf != switch:
                    self._withdraw(sock, prefix)
                continue
            key = tuple(hops)
            if len(hops) > 1 and key not in groups:
                number = numbers.setdefault(_indexes(alive), len(numbers))
                groups[key] = self._group(sock, family, number, key, rates)
            self._route(sock, prefix, groups.get(key, hops[0]))

    def _host_on_link(self, sock: NetlinkSocket, family: Family, link: Link) -> None:
        address = self._address(link.lower, family, link.upper.plane)
        bits = 32 if family == 4 else 128
        request = encode(
            RouteMessage,
            RTM_NEWROUTE,
            self._flags,
            [("RTA_DST", address), ("RTA_OIF", self._base + link.down_port)],
            family=_FAMILY[family],
            dst_len=bits,
            table=_RT_TABLE_MAIN,
            proto=_RTPROT_STATIC,
            type=_RTN_UNICAST,
            scope=_SCOPE_LINK if family == 4 else 0,
        )
        sock.queue(request, f"route {address}/{bits}")

    def _nexthop(self, sock: NetlinkSocket, family: Family, port: int, gateway: str) -> int:
        identity = family * _FAMILY_STEP + port
        request = encode(
            NexthopMessage,
            RTM_NEWNEXTHOP,
            self._flags,
            [("NHA_ID", identity), ("NHA_OIF", self._base + port), ("NHA_GATEWAY", gateway)],
            family=_FAMILY[family],
            protocol=_RTPROT_STATIC,
            flags=_RTNH_F_ONLINK,
        )
        sock.queue(request, f"nexthop {gateway}")
        return identity

    def _group(
        self,
        sock: NetlinkSocket,
        family: Family,
        number: int,
        members: tuple[int, ...],
        rates_bps: list[int],
    ) -> int:
        """Queue a group of next hops, whose links have these rates."""
        ecmp = self._topology.ecmp
        identity = family * _FAMILY_STEP + _FIRST_GROUP + number
        # struct nexthop_grp: id, weight - 1, and three bytes reserved.
        entries = b"".join(
            struct.pack("=IBBH", member, weight - 1, 0, 0)
            for member, weight in zip(members, ecmp.weights_of(rates_bps), strict=True)
        )
        kind = resilient_attributes(ecmp.resilient) if ecmp.resilient else []
        request = encode(
            NexthopMessage,
            RTM_NEWNEXTHOP,
            self._flags,
            [("NHA_ID", identity), ("NHA_GROUP", entries), *kind],
            family=socket.AF_UNSPEC,
            protocol=_RTPROT_STATIC,
        )
        sock.queue(request, f"nexthop group {identity}")
        return identity

    def _withdraw(self, sock: NetlinkSocket, prefix: IPv4Network | IPv6Network) -> None:
        """Queue the end of a route that nothing is left of, if the kernel still has it."""
        family = 4 if prefix.version == 4 else 6
        if str(prefix) not in kernel_routes(sock, family, _RTPROT_STATIC):
            return
        request = encode(
            RouteMessage,
            RTM_DELROUTE,
            NLM_F_REQUEST,
            [("RTA_DST", str(prefix.network_address))],
            family=_FAMILY[family],
            dst_len=prefix.prefixlen,
            table=_RT_TABLE_MAIN,
            scope=_SCOPE_NOWHERE,
        )
        sock.queue(request, f"end of route {prefix}")

    def _route(self, sock: NetlinkSocket, prefix: IPv4Network | IPv6Network, nexthop: int) -> None:
        attributes: list[tuple[str, object]] = [("RTA_NH_ID", nexthop)]
        if prefix.prefixlen:
            attributes.append(("RTA_DST", str(prefix.network_address)))
        request = encode(
            RouteMessage,
            RTM_NEWROUTE,
            self._flags,
            attributes,
            family=_FAMILY[4 if prefix.version == 4 else 6],
            dst_len=prefix.prefixlen,
            table=_RT_TABLE_MAIN,
            proto=_RTPROT_STATIC,
            type=_RTN_UNICAST,
        )
        sock.queue(request, f"route {prefix}")


def _indexes(found: Iterable[Link]) -> tuple[int, ...]:
    return tuple([link.index for link in found])


def resilient_attributes(group: Resilient) -> list[tuple[str, object]]:
    """Return the attributes that make a group a resilient one."""
    values = [
        ("NHA_RES_GROUP_BUCKETS", group.buckets),
        ("NHA_RES_GROUP_IDLE_TIMER", round(group.idle_timer * _USER_HZ)),
        ("NHA_RES_GROUP_UNBALANCED_TIMER", round(group.unbalanced_timer * _USER_HZ)),
    ]
    return [
        ("NHA_GROUP_TYPE", _NEXTHOP_GRP_TYPE_RES),
        ("NHA_RES_GROUP", pack(ResilientGroup, values)),
    ]
