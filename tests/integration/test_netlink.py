"""Netlink in batches, against the kernel: what is refused is named, what is answered comes back."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest
from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_GETROUTE, RTM_NEWADDR
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from fabric_emu.errors import CommandFailed
from fabric_emu.net import links, namespaces
from fabric_emu.net.encoding import encode
from fabric_emu.net.netlink import (
    CREATE,
    NLM_F_REQUEST,
    NetlinkSocket,
    RouteMessage,
    attributes,
)

pytestmark = pytest.mark.root

LOOPBACK, NO_SUCH_INTERFACE = 1, 4242
IFLA_IFNAME, RTA_DST, RTA_OIF = 3, 1, 4
LINK_ATTRIBUTES, ROUTE_ATTRIBUTES = 16 + 16, 16 + 12


@pytest.fixture
def sock() -> Iterator[NetlinkSocket]:
    with namespaces.temporary():
        made = NetlinkSocket("tester")
        try:
            yield made
        finally:
            made.close()


def address(number: int, index: int = LOOPBACK) -> bytes:
    text = str(IPv4Address((10 << 24) + number))
    return encode(
        ifaddrmsg,
        RTM_NEWADDR,
        CREATE,
        [("IFA_LOCAL", text), ("IFA_ADDRESS", text)],
        family=socket.AF_INET,
        prefixlen=32,
        index=index,
    )


def numbers_present() -> set[int]:
    """Return which addresses the namespace has, as numbers."""
    found = json.loads(subprocess.check_output(["ip", "-json", "-4", "address"]))
    addresses = [info["local"] for interface in found for info in interface["addr_info"]]
    return {int(IPv4Address(each)) - (10 << 24) for each in addresses if each != "127.0.0.1"}


def test_more_than_a_batch(sock: NetlinkSocket) -> None:
    count = 3000  # 180 kB in batches of 64
    for number in range(1, count + 1):
        sock.queue(address(number), "address")
    sock.flush()
    assert numbers_present() == set(range(1, count + 1))


def test_nothing_queued(sock: NetlinkSocket) -> None:
    sock.flush()


def test_the_refused_request_is_named(sock: NetlinkSocket) -> None:
    sock.queue(address(1), "first")
    sock.queue(address(2, NO_SUCH_INTERFACE), "second")
    sock.queue(address(3), "third")
    sock.queue(address(1), "fourth")
    with pytest.raises(CommandFailed, match=r"^tester: second: No such device \(ENODEV\)$"):
        sock.flush()
    # The kernel goes on with the rest of the batch.
    assert numbers_present() == {1, 3}


def test_the_last_request_refused(sock: NetlinkSocket) -> None:
    sock.queue(address(1), "first")
    sock.queue(address(1), "again")
    with pytest.raises(CommandFailed, match=r"tester: again: File exists \(EEXIST\)"):
        sock.flush()


@pytest.mark.parametrize("count", [1, 100, 3000])
def test_all_refused(sock: NetlinkSocket, count: int) -> None:
    for number in range(count):
        sock.queue(address(number, NO_SUCH_INTERFACE), f"number {number}")
    with pytest.raises(CommandFailed, match="tester: number 0: No such device"):
        sock.flush()


def test_use_after_a_failure(sock: NetlinkSocket) -> None:
    for number in range(100):
        sock.queue(address(number, NO_SUCH_INTERFACE), "wrong")
    with pytest.raises(CommandFailed):
        sock.flush()
    sock.flush()  # what failed is not sent again
    sock.queue(address(1), "right")
    sock.flush()
    assert numbers_present() == {1}


def test_close_forgets_what_is_queued() -> None:
    with namespaces.temporary():
        sock = NetlinkSocket("tester")
        sock.queue(address(1), "address")
        sock.close()
        assert numbers_present() == set()


def test_a_socket_serves_its_namespace_from_anywhere(sock: NetlinkSocket) -> None:
    sock.queue(address(1), "address")
    with namespaces.temporary():
        sock.flush()
        assert numbers_present() == set()
    assert numbers_present() == {1}


def test_questions_are_answered_in_order(sock: NetlinkSocket) -> None:
    links.set_up(sock, LOOPBACK, "loopback")
    count = 200  # several batches of questions
    for number in range(1, count + 1):
        sock.queue(address(number), "address")
    sock.flush()
    asked = [str(IPv4Address((10 << 24) + number)) for number in range(1, count + 1)]
    questions = [
        encode(
            RouteMessage,
            RTM_GETROUTE,
            NLM_F_REQUEST,
            [("RTA_DST", destination)],
            family=socket.AF_INET,
            dst_len=32,
        )
        for destination in asked
    ]
    found = [attributes(answer, ROUTE_ATTRIBUTES) for answer in sock.ask(questions)]
    assert [socket.inet_ntoa(each[RTA_DST]) for each in found] == asked
    assert {int.from_bytes(each[RTA_OIF], "little") for each in found} == {LOOPBACK}
    assert sock.ask([]) == []


def test_a_refused_question(sock: NetlinkSocket) -> None:
    known = encode(ifinfmsg, RTM_GETLINK, NLM_F_REQUEST, [], index=LOOPBACK)
    unknown = encode(ifinfmsg, RTM_GETLINK, NLM_F_REQUEST, [], index=NO_SUCH_INTERFACE)
    with pytest.raises(CommandFailed, match=r"tester: No such device \(ENODEV\)"):
        sock.ask([known, unknown, known])
    (answer,) = sock.ask([known])
    assert attributes(answer, LINK_ATTRIBUTES)[IFLA_IFNAME] == b"lo\0"
