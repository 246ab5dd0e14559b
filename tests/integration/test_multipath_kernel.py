"""Predictions against the running kernel: not one packet may go elsewhere.

One namespace is the switch. Its next hops are gateways behind one interface, told apart by their
address in the answer to a route query and by their MAC address in forwarded packets.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from pyroute2 import netns
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fabric_emu.predict.multipath import (
    FiveTuples,
    multipath_hash,
    rebalance_resilient,
    resilient_buckets,
    select_by_threshold,
    select_resilient,
)

pytestmark = pytest.mark.root

T = TypeVar("T")
KERNEL = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
MEMBERS = 16
GROUP = 1000
SEEDS = (1, 777, 12345, 0x80000000, 0xFFFFFFFF)
PORTLESS = 253  # a protocol number for experiments, without ports
MAC_IN = "02:00:00:00:00:fe"
RTM_GETROUTE, NLMSG_ERROR, NLM_F_REQUEST = 26, 2, 1
RTA_DST, RTA_SRC, RTA_IIF, RTA_GATEWAY = 1, 2, 3, 5
RTA_IP_PROTO, RTA_SPORT, RTA_DPORT, RTA_FLOWLABEL = 27, 28, 29, 31
SOL_PACKET, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 23, 3


class Header(NamedTuple):
    src: bytes
    dst: bytes
    proto: int
    sport: int
    dport: int
    label: int


def random_headers(rng: np.random.Generator, family: int, count: int) -> list[Header]:
    """Return headers, half of them with addresses and ports that differ in few bits."""

    def address(alike: bool) -> bytes:
        choice = rng.choice([0, 1, 128, 255], 15) if alike else rng.integers(0, 256, 15)
        first = rng.choice([11, 99]) if family == 4 else 0xFD
        return bytes([first, *choice])[: 4 if family == 4 else 16]

    def port(alike: bool) -> int:
        return int(rng.choice([0, 255, 256, 4791]) if alike else rng.integers(0, 1 << 16))

    def header(alike: bool) -> Header:
        proto = int(rng.choice([socket.IPPROTO_TCP, socket.IPPROTO_UDP]))
        label = int(rng.integers(0, 1 << 20)) if family == 6 else 0
        return Header(address(alike), address(alike), proto, port(alike), port(alike), label)

    return [header(alike=bool(number % 2)) for number in range(count)]


def as_tuples(headers: Sequence[Header]) -> FiveTuples:
    src, dst, proto, sport, dport, label = zip(*headers, strict=True)
    family = 4 if len(src[0]) == 4 else 6
    ends = [np.frombuffer(b"".join(end), ">u4" if family == 4 else "u1") for end in (src, dst)]
    if family == 6:
        ends = [end.reshape(-1, 16) for end in ends]
    return FiveTuples(family, ends[0], ends[1], proto, sport, dport, label)


def inside(namespace: str, action: Callable[[], T]) -> T:
    """Run the action in a thread of its own that has entered the namespace."""

    def entered() -> T:
        netns.setns(namespace)
        return action()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(entered).result()


def gateway(family: int, place: int) -> str:
    return f"10.255.0.{place + 2}" if family == 4 else f"fc00::{place + 2:x}"


class Switch:
    """A namespace with next hops 0 to 15 of each family, over which routes can be spread."""

    def __init__(self, namespace: str, stack: ExitStack) -> None:
        self.namespace = namespace
        self.ip(
            4,
            f"link add in address {MAC_IN} type veth peer name in-peer",
            "link add out type veth peer name out-peer",
            *(f"link set {device} up" for device in ("lo", "in", "in-peer", "out", "out-peer")),
            "address add 10.254.0.1/24 dev in",
            "address add 10.255.0.1/24 dev out",
        )
        self.ip(6, "address add fc01::1/64 dev in nodad", "address add fc00::1/64 dev out nodad")
        for family in (4, 6):
            for place in range(MEMBERS):
                self.make_reachable(family, place)
                self.add_member(family, place)
        self.sysctl("ipv4/ip_forward", 1)
        self.sysctl("ipv6/conf/all/forwarding", 1)
        self.sysctl("ipv4/conf/all/rp_filter", 0)
        self.sysctl("ipv4/conf/in/rp_filter", 0)
        inside(namespace, lambda: self._open(stack))

    def _open(self, stack: ExitStack) -> None:
        self.interface = socket.if_nametoindex("in")
        self.netlink = stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        self.sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        self.sender.bind(("in-peer", 0))
        self.receiver = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        self.receiver.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.receiver.bind(("out-peer", ETH_P_ALL))
        for end in (self.netlink, self.receiver):
            end.settimeout(10)

    def ip(self, family: int | None, *lines: str) -> None:
        choice = [] if family is None else [f"-{family}"]
        command = ["ip", "-n", self.namespace, *choice, "-batch", "-"]
        subprocess.run(command, input="\n".join(lines), text=True, check=True)

    def show(self, *words: str) -> list[dict[str, Any]]:
        command = ["ip", "-n", self.namespace, "-json", *words]
        return list(json.loads(subprocess.check_output(command)))

    def sysctl(self, name: str, value: int) -> None:
        path = Path("/proc/sys/net", name)
        inside(self.namespace, lambda: path.write_text(str(value)))

    def hashing(self, family: int, seed: int, policy: int, fields: int = 7) -> None:
        self.sysctl("ipv4/fib_multipath_hash_seed", seed)
        self.sysctl(f"ipv{family}/fib_multipath_hash_policy", policy)
        self.sysctl(f"ipv{family}/fib_multipath_hash_fields", fields)

    def make_reachable(self, family: int, place: int) -> None:
        state = f"lladdr 02:00:00:00:00:{place:02x} nud permanent"
        self.ip(family, f"neighbour replace {gateway(family, place)} dev out {state}")

    def make_unreachable(self, family: int, place: int) -> None:
        self.ip(family, f"neighbour replace {gateway(family, place)} dev out nud failed")

    def add_member(self, family: int, place: int) -> None:
        self.ip(family, f"nexthop add id {family}{place:02} via {gateway(family, place)} dev out")

    def remove_member(self, family: int, place: int) -> None:
        self.ip(family, f"nexthop delete id {family}{place:02}")

    def spread(self, family: int, kind: str, weights: Sequence[int], buckets: int = 0) -> None:
        """Point the default route at the first next hops, in any of the kernel's ways."""
        if kind == "route":
            hops = [
                f"nexthop via {gateway(family, place)} dev out weight {weight}"
                for place, weight in enumerate(weights)
            ]
            self.ip(family, "route replace default " + " ".join(hops))
            return
        members = [f"{family}{place:02},{weight}" for place, weight in enumerate(weights)]
        shape = f" type resilient buckets {buckets}" if kind == "resilient" else ""
        self.ip(None, f"nexthop replace id {GROUP} group {'/'.join(members)}{shape}")
        self.ip(family, f"route replace default nhid {GROUP}")

    def unspread(self, family: int, kind: str) -> None:
        self.ip(family, "route delete default")
        if kind != "route":
            self.ip(family, f"nexthop delete id {GROUP}")

    def table(self, family: int) -> NDArray[np.intp]:
        """Return the resilient group's table, as the kernel dumps it."""
        entries = self.show("nexthop", "bucket", "show", "id", str(GROUP))
        return np.array([entry["bucket"]["nhid"] - 100 * family for entry in entries])

    def lost(self, family: int, device: str) -> bool:
        """Tell whether the default route knows that this interface leads nowhere."""
        (route,) = self.show(f"-{family}", "route", "show", "default")
        (hop,) = (hop for hop in route["nexthops"] if hop["dev"] == device)
        return bool({"dead", "linkdown"} & set(hop["flags"]))

    def query(self, headers: Sequence[Header]) -> NDArray[np.intp]:
        """Ask for the route of each; return the places of the gateways named."""
        places = np.full(len(headers), -1)
        queries = [self._query(number, header) for number, header in enumerate(headers)]
        for start in range(0, len(queries), 64):
            batch = queries[start : start + 64]
            self.netlink.send(b"".join(batch))
            for _ in batch:
                answer = self.netlink.recv(8192)
                kind, number = struct.unpack_from("<H2xI", answer, 4)
                assert kind != NLMSG_ERROR, os.strerror(-struct.unpack_from("<i", answer, 16)[0])
                places[number] = attributes(answer[28:])[RTA_GATEWAY][-1] - 2
        return places

    def _query(self, number: int, header: Header) -> bytes:
        family = socket.AF_INET if len(header.src) == 4 else socket.AF_INET6
        bits = 8 * len(header.src)
        body = struct.pack("<3B9x", family, bits, bits)
        body += attribute(RTA_DST, header.dst) + attribute(RTA_SRC, header.src)
        body += attribute(RTA_IIF, struct.pack("<I", self.interface))
        body += attribute(RTA_IP_PROTO, bytes([header.proto]))
        body += attribute(RTA_SPORT, struct.pack(">H", header.sport))
        body += attribute(RTA_DPORT, struct.pack(">H", header.dport))
        if header.label:
            body += attribute(RTA_FLOWLABEL, struct.pack(">I", header.label))
        return struct.pack("<IHHI4x", 16 + len(body), RTM_GETROUTE, NLM_F_REQUEST, number) + body

    def forward(self, headers: Sequence[Header]) -> NDArray[np.intp]:
        """Send a packet with each through the switch; return the places they left for."""
        places = np.full(len(headers), -1)
        ethertype = b"\x08\x00" if len(headers[0].src) == 4 else b"\x86\xdd"
        for start in range(0, len(headers), 64):
            batch = headers[start : start + 64]
            for number, header in enumerate(batch, start):
                self.sender.send(frame(header, number))
            while np.any(places[start : start + len(batch)] < 0):
                seen = self.receiver.recv(256)
                if seen[12:14] == ethertype and seen[-8:-4] == b"test":
                    places[int.from_bytes(seen[-4:])] = seen[5]
        return places


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while data:
        length, kind = struct.unpack_from("<HH", data)
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def frame(header: Header, number: int) -> bytes:
    network: Packet
    if len(header.src) == 4:
        src, dst = (socket.inet_ntop(socket.AF_INET, end) for end in header[:2])
        network = IP(src=src, dst=dst, proto=header.proto)
    else:
        src, dst = (socket.inet_ntop(socket.AF_INET6, end) for end in header[:2])
        network = IPv6(src=src, dst=dst, nh=header.proto, fl=header.label)
    if header.proto == socket.IPPROTO_TCP:
        network /= TCP(sport=header.sport, dport=header.dport)
    elif header.proto == socket.IPPROTO_UDP:
        network /= UDP(sport=header.sport, dport=header.dport)
    return bytes(Ether(dst=MAC_IN) / network / Raw(b"test" + number.to_bytes(4)))


def random_weights(rng: np.random.Generator) -> list[int]:
    return [int(weight) for weight in rng.integers(1, 256, rng.integers(2, MEMBERS + 1))]


def wait_until(condition: Callable[[], bool], timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not in time"


def assert_same(kernel: NDArray[np.intp], predicted: NDArray[np.intp], case: object) -> None:
    wrong = np.flatnonzero(kernel != predicted)
    assert not wrong.size, f"{case}: {wrong.size} of {len(kernel)} elsewhere, first {wrong[:5]}"


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    if KERNEL < (6, 11):
        pytest.skip("a kernel before 6.11 does not let its hash seed be set")
    name = f"fep-hash-{os.getpid()}"
    with ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", name], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=True)
        yield Switch(name, stack)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", ["route", "threshold", "resilient"])
def test_route_queries(switch, family, kind):
    rng = np.random.default_rng(family)
    for trial in range(20):
        weights = random_weights(rng)
        buckets = int(rng.integers(1, 300))
        seed, policy = int(rng.integers(1, 1 << 32)), trial % 4
        fields = int(rng.integers(1, 0x40))
        headers = random_headers(rng, family, 200)
        if KERNEL < (6, 14):  # route queries know no flow label
            headers = [header._replace(label=0) for header in headers]
        switch.spread(family, kind, weights, buckets)
        switch.hashing(family, seed, policy, fields)
        kernel = switch.query(headers)
        switch.unspread(family, kind)

        # For IPv4 the kernel makes up a packet to route, for IPv6 it looks at the query alone.
        hashes = multipath_hash(as_tuples(headers), seed, policy, fields, forwarded=family == 4)
        if kind == "resilient":
            predicted = select_resilient(hashes, resilient_buckets(weights, buckets))
        else:
            predicted = select_by_threshold(hashes, weights)
        assert_same(kernel, predicted, (seed, policy, hex(fields), weights, buckets))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    ("policy", "fields"),
    [(0, 7), (1, 7), (2, 7), (3, 7), (3, 0x37), (3, 0x3F), (3, 0x08), (3, 0x40)],
)
def test_forwarded_packets(switch, family, policy, fields):
    rng = np.random.default_rng([family, policy, fields])
    weights = random_weights(rng)
    headers = random_headers(rng, family, 150)
    headers += [header._replace(proto=PORTLESS, sport=0, dport=0) for header in headers[:20]]
    seed = int(rng.choice(SEEDS))
    kind = str(rng.choice(["route", "threshold"]))
    switch.spread(family, kind, weights)
    switch.hashing(family, seed, policy, fields)
    kernel = switch.forward(headers)
    switch.unspread(family, kind)
    hashes = multipath_hash(as_tuples(headers), seed, policy, fields)
    assert_same(kernel, select_by_threshold(hashes, weights), (kind, seed, weights))


@pytest.mark.parametrize("family", [4, 6])
def test_a_group_divides_a_removed_member_among_all(switch, family):
    rng = np.random.default_rng(family)
    switch.hashing(family, 1, 1)
    for _ in range(8):
        weights = random_weights(rng)
        removed = int(rng.integers(len(weights)))
        headers = random_headers(rng, family, 200)
        switch.spread(family, "threshold", weights)
        switch.remove_member(family, removed)
        kernel = switch.query(headers)
        switch.unspread(family, "threshold")
        switch.add_member(family, removed)
        usable = [place != removed for place in range(len(weights))]
        predicted = select_by_threshold(multipath_hash(as_tuples(headers), 1), weights, usable)
        assert_same(kernel, predicted, (weights, removed))


@pytest.mark.parametrize("family", [4, 6])
def test_a_resilient_group_moves_what_it_must(switch, family):
    rng = np.random.default_rng(family)
    switch.hashing(family, 1, 1)
    for _ in range(12):
        weights = random_weights(rng)
        buckets = int(rng.integers(1, 300))
        removed = int(rng.integers(len(weights)))
        usable = [place != removed for place in range(len(weights))]
        case = (weights, buckets, removed)
        headers = random_headers(rng, family, 100)
        hashes = multipath_hash(as_tuples(headers), 1)

        switch.spread(family, "resilient", weights, buckets)
        table = resilient_buckets(weights, buckets)
        assert_same(switch.table(family), table, case)
        # A bucket used in the very tick that filled it still counts as never used.
        busy_until = time.monotonic() + 0.02
        while time.monotonic() < busy_until:
            assert_same(switch.query(headers), select_resilient(hashes, table), case)
        idle = np.ones(buckets, bool)
        idle[hashes % buckets] = False

        switch.remove_member(family, removed)
        without = rebalance_resilient(table, weights, usable, idle=idle)
        assert_same(switch.table(family), without, case)
        idle |= without != table

        switch.add_member(family, removed)
        switch.spread(family, "resilient", weights, buckets)
        restored = rebalance_resilient(without, weights, idle=idle)
        assert_same(switch.table(family), restored, case)
        assert_same(switch.query(headers), select_resilient(hashes, restored), case)
        switch.unspread(family, "resilient")


@pytest.mark.parametrize(("family", "kind"), [(4, "route"), (4, "threshold"), (6, "threshold")])
def test_unreachable_gateways_are_passed_over(switch, family, kind):
    rng = np.random.default_rng(family)
    switch.hashing(family, 1, 1)
    switch.sysctl("ipv4/fib_multipath_use_neigh", 1)
    for count in (1, 1, 3, MEMBERS):
        weights = random_weights(rng)
        unreachable = rng.permutation(len(weights))[:count]
        headers = random_headers(rng, family, 200)
        switch.spread(family, kind, weights)
        for place in unreachable:
            switch.make_unreachable(family, place)
        kernel = switch.query(headers)
        for place in unreachable:
            switch.make_reachable(family, place)
        switch.unspread(family, kind)
        reachable = ~np.isin(np.arange(len(weights)), unreachable)
        hashes = multipath_hash(as_tuples(headers), 1)
        predicted = select_by_threshold(hashes, weights, reachable=reachable)
        assert_same(kernel, predicted, (weights, unreachable))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("end", ["", "-peer"])
def test_a_route_divides_a_dead_next_hop_among_all(switch, family, end):
    """Set one interface of four down, or only take away its carrier and heed that."""
    weights = (3, 1, 2, 5)
    headers = random_headers(np.random.default_rng(family), family, 300)
    hashes = multipath_hash(as_tuples(headers), 1)
    prefix, length = ("10.{}.0.", 24) if family == 4 else ("fc0{}::", 64)
    hops = []
    with ExitStack() as stack:
        for place, weight in enumerate(weights):
            net = prefix.format(place + 4)
            switch.ip(
                family,
                f"link add d{place} type veth peer name d{place}-peer",
                f"link set d{place} up",
                f"link set d{place}-peer up",
                f"address add {net}1/{length} dev d{place}" + (" nodad" if family == 6 else ""),
            )
            stack.callback(switch.ip, family, f"link delete d{place}")
            switch.sysctl(f"ipv{family}/conf/d{place}/ignore_routes_with_linkdown", 1)
            hops.append(f"nexthop via {net}{place + 2} dev d{place} weight {weight}")
        switch.ip(family, "route replace default " + " ".join(hops))
        switch.hashing(family, 1, 1)
        assert_same(switch.query(headers), select_by_threshold(hashes, weights), "all alive")
        switch.ip(family, f"link set d1{end} down")
        wait_until(lambda: switch.lost(family, "d1"))
        usable = [True, False, True, True]
        assert_same(switch.query(headers), select_by_threshold(hashes, weights, usable), "d1 dead")
