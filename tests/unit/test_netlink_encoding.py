"""Packing netlink messages: the same bytes as pyroute2 makes."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pyroute2.netlink.rtnl import RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from fabric_emu.net.encoding import encode, pack
from fabric_emu.net.netlink import CREATE, NexthopMessage, RouteMessage

END: list[tuple[str, object]] = [
    ("IFLA_IFNAME", "spine12"),
    ("IFLA_ADDRESS", "02:fe:00:01:02:03"),
    ("IFLA_MTU", 9000),
    ("IFLA_TXQLEN", 20_000),
    ("IFLA_NUM_TX_QUEUES", 1),
    ("IFLA_NET_NS_FD", 17),
]

PLAIN = {
    "up": (ifinfmsg, RTM_NEWLINK, (), {"index": 70_001, "flags": 1, "change": 1}),
    "address": (
        ifaddrmsg,
        RTM_NEWADDR,
        [("IFA_LOCAL", "10.0.3.2"), ("IFA_ADDRESS", "10.0.3.2")],
        {"family": socket.AF_INET, "prefixlen": 32, "index": 1, "flags": 2},
    ),
    "neighbour": (
        ndmsg,
        RTM_NEWNEIGH,
        [("NDA_DST", "fd00:0:3::2"), ("NDA_LLADDR", "02:fe:00:00:00:07")],
        {"family": socket.AF_INET6, "ifindex": 1_065_543, "state": 0x80},
    ),
    "nexthop": (
        NexthopMessage,
        104,
        [("NHA_ID", 40_000_007), ("NHA_OIF", 1_065_543), ("NHA_GATEWAY", "10.242.0.1")],
        {"family": socket.AF_INET, "protocol": 4, "flags": 4},
    ),
    "group": (
        NexthopMessage,
        104,
        [("NHA_ID", 41_000_000), ("NHA_GROUP", bytes(range(24)))],
        {"family": socket.AF_UNSPEC, "protocol": 4},
    ),
    "resilient group": (
        NexthopMessage,
        104,
        [("NHA_GROUP", bytes(16)), ("NHA_GROUP_TYPE", 1), ("NHA_RES_GROUP", bytes(range(8)))],
        {"family": socket.AF_UNSPEC, "protocol": 4},
    ),
    "route": (
        RouteMessage,
        RTM_NEWROUTE,
        [("RTA_NH_ID", 41_000_000), ("RTA_DST", "10.0.3.0")],
        {"family": socket.AF_INET, "dst_len": 24, "table": 254, "proto": 4, "type": 1},
    ),
}


def by_pyroute2(message: Any, kind: int, attributes: Any, fields: dict[str, int]) -> bytes:
    request = message()
    request.update(fields)
    request["attrs"] = list(attributes)
    request["header"]["type"] = kind
    request["header"]["flags"] = CREATE
    request.encode()
    return bytes(request.data)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_messages_are_those_of_pyroute2(name: str) -> None:
    message, kind, attributes, fields = PLAIN[name]
    packed = encode(message, kind, CREATE, attributes, **fields)
    assert packed == by_pyroute2(message, kind, attributes, fields)


def test_a_nested_message_is_that_of_pyroute2() -> None:
    peer = pack(ifinfmsg, END, index=65_537)
    data = pack(ifinfmsg.ifinfo.veth_data, [("VETH_INFO_PEER", peer)])
    info = pack(ifinfmsg.ifinfo, [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)])
    packed = encode(ifinfmsg, RTM_NEWLINK, CREATE, [*END, ("IFLA_LINKINFO", info)], index=65_536)

    nested = {
        "attrs": [
            ("IFLA_INFO_KIND", "veth"),
            ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", {"index": 65_537, "attrs": END})]}),
        ]
    }
    attributes = [*END, ("IFLA_LINKINFO", nested)]
    assert packed == by_pyroute2(ifinfmsg, RTM_NEWLINK, attributes, {"index": 65_536})


def test_what_is_not_plain_is_left_to_pyroute2() -> None:
    nested = {"attrs": [("IFLA_INFO_KIND", "dummy")]}
    attributes = [("IFLA_IFNAME", "d"), ("IFLA_LINKINFO", nested)]
    packed = encode(ifinfmsg, RTM_NEWLINK, CREATE, attributes)
    assert packed == by_pyroute2(ifinfmsg, RTM_NEWLINK, attributes, {})


def test_a_field_that_the_message_has_not_is_refused() -> None:
    with pytest.raises(KeyError, match="ifaddrmsg has no table"):
        encode(ifaddrmsg, RTM_NEWADDR, CREATE, (), table=254)
