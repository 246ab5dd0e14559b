"""Whether this machine's kernel hashes as ``predict.multipath`` does: asked by route queries."""

from __future__ import annotations

import functools
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyroute2.netlink.rtnl import RTM_GETROUTE, RTM_NEWLINK, RTM_NEWROUTE
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from fabric_emu.errors import CommandFailed, FabricError
from fabric_emu.model.ecmp import Resilient
from fabric_emu.net import links, namespaces
from fabric_emu.net.encoding import encode
from fabric_emu.net.netlink import (
    CREATE,
    NLM_F_REQUEST,
    NetlinkSocket,
    NexthopMessage,
    RouteMessage,
    attributes,
)
from fabric_emu.net.routing import RTM_NEWNEXTHOP, resilient_attributes
from fabric_emu.predict.multipath import FiveTuples, multipath_hash, select_by_threshold

Family = Literal[4, 6]
SEED_SYSCTL = "net/ipv4/fib_multipath_hash_seed"

_AF: dict[int, int] = {4: socket.AF_INET, 6: socket.AF_INET6}
_LOOPBACK, _OUT, _IN = 1, 1000, 1001
_GROUP_SIZES = (3, 8)
_SEEDS = (12345, 0xFFFFFFFF)
_TUPLES = 32
"""Of each family and group size: a wrong hash hits 32 choices of 3 once in 3^32."""

_ROUTE_ATTRIBUTES = 16 + 12
_RTA_GATEWAY = 5
_RTNH_F_ONLINK = 4


@dataclass(frozen=True)
class PredictionSupport:
    """Whether packets' paths can be predicted on this machine.

    Attributes:
        offered: True when they can.
        reason: a sentence that says why, or why not.
    """

    offered: bool
    reason: str


@functools.cache
def prediction_support() -> PredictionSupport:
    """Ask this kernel for a few hundred choices of next hops and compare them with our own."""
    if not namespaces.has_sysctl(SEED_SYSCTL):
        return PredictionSupport(
            False,
            "this kernel has no fib_multipath_hash_seed (Linux before 6.11); "
            "predicted paths are not offered",
        )
    try:
        differing = _differing_choices()
    except FabricError as error:
        return PredictionSupport(False, f"the kernel's multipath hash could not be seen: {error}")
    asked, wrong = len(differing), int(differing.sum())
    if wrong:
        return PredictionSupport(
            False,
            f"this kernel's multipath hash is another than the one known here: {wrong} of {asked} "
            "choices differ; predicted paths are not offered",
        )
    return PredictionSupport(True, f"this kernel's {asked} choices of next hops are as predicted")


def _differing_choices() -> NDArray[np.bool_]:
    """Return, of every choice asked of the kernel, whether it differs from the prediction."""
    with namespaces.temporary():
        router = NetlinkSocket("self-test")
        try:
            families: list[Family] = [4]
            if namespaces.has_sysctl("net/ipv6/conf/all/forwarding"):
                families.append(6)
            _make_router(router, families)
            found = [_compare(router, family) for family in families]
        finally:
            router.close()
    return np.concatenate(found)


def _make_router(router: NetlinkSocket, families: Sequence[Family]) -> None:
    """Give the namespace a router whose prefixes lead to nexthop groups of different sizes."""
    make_veth_pair(router, _OUT)
    namespaces.write_sysctl("net/ipv4/ip_forward", 1)
    namespaces.write_sysctl("net/ipv4/conf/all/rp_filter", 0)
    for family in families:
        namespaces.write_sysctl(f"net/ipv{family}/fib_multipath_hash_policy", 1)
    if 6 in families:
        namespaces.write_sysctl("net/ipv6/conf/all/disable_ipv6", 0)
        namespaces.write_sysctl("net/ipv6/conf/all/forwarding", 1)
    router.flush()
    for name in ("in", "out"):
        namespaces.write_sysctl(f"net/ipv4/conf/{name}/rp_filter", 0)
    for family in families:
        for place in range(max(_GROUP_SIZES)):
            make_nexthop(router, family, place)
        for size in _GROUP_SIZES:
            make_group(router, family, size)
            route = encode(
                RouteMessage,
                RTM_NEWROUTE,
                CREATE,
                [("RTA_DST", str(_prefix(family, size)[0])), ("RTA_NH_ID", _group(family, size))],
                family=_AF[family],
                dst_len=_prefix(family, size).prefixlen,
                table=254,
                proto=4,
                type=1,
            )
            router.queue(route, f"route over {size} next hops")
    router.flush()


def make_veth_pair(sock: NetlinkSocket, index: int) -> None:
    """Queue a veth pair within a namespace, up: "out" and "in", with index and index + 1."""
    peer = {"index": index + 1, "attrs": [("IFLA_IFNAME", "in")]}
    data = {"attrs": [("VETH_INFO_PEER", peer)]}
    info = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)]}
    pair = [("IFLA_IFNAME", "out"), ("IFLA_LINKINFO", info)]
    sock.queue(encode(ifinfmsg, RTM_NEWLINK, CREATE, pair, index=index), "veth pair")
    # The kernel takes no gateway before the loopback interface has an address.
    for each in (_LOOPBACK, index, index + 1):
        links.set_up(sock, each, "veth")


def make_nexthop(sock: NetlinkSocket, family: Family, place: int) -> None:
    """Queue a nexthop object: a gateway behind the interface "out" of `make_veth_pair`."""
    values = [
        ("NHA_ID", 100 * family + place),
        ("NHA_OIF", _OUT),
        ("NHA_GATEWAY", str(_gateways(family)[place])),
    ]
    request = encode(
        NexthopMessage, RTM_NEWNEXTHOP, CREATE, values, family=_AF[family], flags=_RTNH_F_ONLINK
    )
    sock.queue(request, "nexthop")


def make_group(
    sock: NetlinkSocket, family: Family, size: int, kind: Sequence[tuple[str, object]] = ()
) -> None:
    """Queue a group of the first nexthop objects."""
    members = b"".join(struct.pack("=II", 100 * family + place, 0) for place in range(size))
    values = [("NHA_ID", _group(family, size)), ("NHA_GROUP", members), *kind]
    sock.queue(encode(NexthopMessage, RTM_NEWNEXTHOP, CREATE, values), "nexthop group")


@functools.cache
def has_resilient_groups() -> bool:
    """Tell whether this kernel has resilient nexthop groups, by making one.

    Raises:
        FabricError: it lacks what that takes.
    """
    with namespaces.temporary():
        sock = NetlinkSocket("self-test")
        try:
            make_veth_pair(sock, _OUT)
            for place in range(2):
                make_nexthop(sock, 4, place)
            make_group(sock, 4, 2)
            sock.flush()
            make_group(sock, 4, 1, resilient_attributes(Resilient(buckets=4)))
            try:
                sock.flush()
            except CommandFailed:
                return False
        finally:
            sock.close()
    return True


def _group(family: Family, size: int) -> int:
    return 1000 * family + size


def _gateways(family: Family) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    network = ipaddress.ip_network("10.255.0.0/28" if family == 4 else "fd00:ffff::/124")
    return [network[place] for place in range(max(_GROUP_SIZES))]


def _prefix(family: Family, size: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(f"10.{size}.0.0/16" if family == 4 else f"fd00:{size}::/32")


def _compare(router: NetlinkSocket, family: Family) -> NDArray[np.bool_]:
    draw = np.random.default_rng(family)
    differing = []
    for size in _GROUP_SIZES:
        prefix = _prefix(family, size)
        hosts = draw.integers(1, 1 << 16, (2, _TUPLES)).tolist()
        sources, destinations = ([str(prefix[host]) for host in end] for end in hosts)
        ports = draw.integers(1, 1 << 16, (2, _TUPLES))
        questions = [
            encode(
                RouteMessage,
                RTM_GETROUTE,
                NLM_F_REQUEST,
                [
                    ("RTA_DST", destinations[row]),
                    ("RTA_SRC", sources[row]),
                    ("RTA_IIF", _IN),
                    ("RTA_IP_PROTO", socket.IPPROTO_UDP),
                    ("RTA_SPORT", int(ports[0, row]).to_bytes(2, "big")),
                    ("RTA_DPORT", int(ports[1, row]).to_bytes(2, "big")),
                ],
                family=_AF[family],
                dst_len=prefix.max_prefixlen,
                src_len=prefix.max_prefixlen,
            )
            for row in range(_TUPLES)
        ]
        tuples = FiveTuples.from_text(sources, destinations, sport=ports[0], dport=ports[1])
        places = {gateway.packed: n for n, gateway in enumerate(_gateways(family))}
        for seed in _SEEDS:
            namespaces.write_sysctl(SEED_SYSCTL, seed)
            answers = router.ask(questions)
            found = (attributes(answer, _ROUTE_ATTRIBUTES) for answer in answers)
            kernel = np.array([places.get(each.get(_RTA_GATEWAY, b""), -1) for each in found])
            differing.append(
                kernel != select_by_threshold(multipath_hash(tuples, seed), [1] * size)
            )
    return np.concatenate(differing)
