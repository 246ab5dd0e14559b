"""Built fabrics of every shape, read back from the kernel."""

from __future__ import annotations

import array
import fcntl
import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.model.scheme import Scheme, Switch
from fabric_emu.model.topology import Link, Node, Role, Topology, hash_seed
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric

pytestmark = pytest.mark.root

SHAPES: dict[str, dict[str, Any]] = {
    "one tier": {"tiers": 1, "leaves": 1, "spines": 0, "hosts_per_leaf": 3},
    "two tiers": {"leaves": 3, "spines": 2, "hosts_per_leaf": 2, "host_rate": 25_000_000},
    "three tiers": {
        "tiers": 3,
        "pods": 2,
        "leaves": 2,
        "spines": 2,
        "super_spines": 4,
        "hosts_per_leaf": 1,
    },
    "two planes": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2, "planes": 2},
    "parallel links": {"leaves": 2, "spines": 2, "hosts_per_leaf": 1, "links_per_pair": 2},
}
SIOCETHTOOL, ETHTOOL_GTSO, ETHTOOL_GGRO = 0x8946, 0x1E, 0x2B


@pytest.fixture(scope="module", params=[4, 6, "both"], ids=lambda ip: f"ip {ip}")
def ip(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module", params=list(SHAPES))
def fabric(request: pytest.FixtureRequest, ip: Any) -> Iterator[Fabric]:
    with Fabric(Topology(**SHAPES[request.param], ip=ip), seed=7) as built:
        yield built


# What must be there, from positions alone.


def own_address(fabric: Fabric, node: Node, family: int, plane: int) -> str:
    if node.role is Role.HOST:
        leaf, place = divmod(node.number - 1, fabric.topology.hosts_per_leaf)
        if family == 4:
            return f"10.{16 * plane}.{leaf + 1}.{place + 1}"
        return str(ip_address(f"fd00:{plane}:{leaf + 1}::{place + 1:x}"))
    tier = {Role.LEAF: 1, Role.SPINE: 2, Role.SUPER_SPINE: 3}[node.role]
    number = 2048 * node.plane + node.number
    if family == 4:
        return f"10.{240 + tier}.{number >> 8}.{number & 255}"
    return f"fd00:ffff:{tier}::{number:x}"


def leaf_prefix(leaf: int, family: int, plane: int) -> str:
    if family == 4:
        return f"10.{16 * plane}.{leaf}.0/24"
    return str(ip_network(f"fd00:{plane}:{leaf}::/48"))


def towards(topology: Topology, switch: Node, leaf: int) -> list[str]:
    """Return the interfaces by which a switch sends to a leaf, in the order of its group."""
    suffix = f"p{switch.plane + 1}" if switch.plane else ""
    pod = (leaf - 1) // topology.leaves
    spines = [switch.pod * topology.spines + place + 1 for place in range(topology.spines)]
    if switch.role is Role.LEAF:
        nodes = [f"spine{spine}{suffix}" for spine in spines]
    elif switch.role is Role.SPINE and switch.pod == pod:
        nodes = [f"leaf{leaf}{suffix}"]
    elif switch.role is Role.SPINE:
        width = topology.super_spines // topology.spines
        first = (switch.number - 1) % topology.spines * width + 1
        nodes = [f"super{first + place}{suffix}" for place in range(width)]
    else:
        width = topology.super_spines // topology.spines
        nodes = [f"spine{pod * topology.spines + (switch.number - 1) // width + 1}{suffix}"]
    if topology.links_per_pair == 1:
        return nodes
    return [f"{node}.{link + 1}" for node in nodes for link in range(topology.links_per_pair)]


# What the kernel says.


def show(fabric: Fabric, node: str, *words: str) -> list[dict[str, Any]]:
    command = ["ip", "-n", fabric.namespace(node), "-json", *words]
    return list(json.loads(subprocess.check_output(command) or "[]"))


def ends(fabric: Fabric) -> list[tuple[Link, Node, str, int]]:
    return [
        end
        for link in fabric.topology.links
        for end in (
            (link, link.lower, link.lower_interface, link.up_port),
            (link, link.upper, link.upper_interface, link.down_port),
        )
    ]


def next_hops(route: dict[str, Any]) -> list[tuple[str, str]]:
    return [(hop["dev"], hop.get("gateway", "")) for hop in route.get("nexthops", [route])]


def read_sysctl(fabric: Fabric, node: str, path: str) -> str:
    with namespaces.inside(fabric.namespace_fds[node]):
        return Path("/proc/sys", path).read_text().strip()


def offload(interface: str, command: int) -> int:
    words = array.array("I", (command, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sP16x", interface.encode(), words.buffer_info()[0])
        fcntl.ioctl(control, SIOCETHTOOL, request)
    return words[1]


def test_addresses(fabric: Fabric) -> None:
    for node in fabric.topology.nodes.values():
        found = {
            (interface["ifname"], address["local"], address["prefixlen"])
            for interface in show(fabric, node.name, "address")
            for address in interface["addr_info"]
            if address["local"] not in ("127.0.0.1", "::1")
        }
        planes = range(fabric.topology.planes)
        at = [(f"eth{plane}", plane) for plane in planes]
        if node.role is not Role.HOST:
            at = [("lo", node.plane)]
        assert found == {
            (interface, own_address(fabric, node, family, plane), 32 if family == 4 else 128)
            for family in fabric.topology.families
            for interface, plane in at
        }


def test_routes_of_hosts(fabric: Fabric) -> None:
    topology = fabric.topology
    for host in topology.hosts:
        for family in topology.families:
            routes = show(fabric, host.name, f"-{family}", "route", "show", "proto", "static")
            expected = {}
            for plane in range(topology.planes):
                leaf = topology.leaf_of(host, plane)
                gateway = own_address(fabric, leaf, family, plane)
                prefix = "default"
                if topology.planes > 1:
                    prefix = f"10.{16 * plane}.0.0/12" if family == 4 else f"fd00:{plane}::/32"
                    prefix = str(ip_network(prefix))
                expected[prefix] = [(f"eth{plane}", gateway)]
            assert {route["dst"]: next_hops(route) for route in routes} == expected


def test_routes_of_switches(fabric: Fabric) -> None:
    topology = fabric.topology
    for switch in topology.switches:
        for family in topology.families:
            routes = show(fabric, switch.name, f"-{family}", "route", "show", "proto", "static")
            expected = {}
            for leaf in range(1, topology.total_leaves + 1):
                if switch.role is not Role.LEAF or switch.number != leaf:
                    devices = towards(topology, switch, leaf)
                    expected[leaf_prefix(leaf, family, switch.plane)] = devices
            hosts = [
                host for host in topology.hosts if topology.leaf_of(host, switch.plane) == switch
            ]
            for host in hosts:
                expected[own_address(fabric, host, family, switch.plane)] = [host.name]
            found = {route["dst"]: [device for device, _ in next_hops(route)] for route in routes}
            assert found == expected
            for route in routes:
                hops = route.get("nexthops", [])
                assert all(hop["weight"] == 1 for hop in hops)
                assert "nhid" in route or route["dst"] in {
                    own_address(fabric, host, family, switch.plane) for host in hosts
                }
                for device, gateway in next_hops(route):
                    there = topology.nodes[device.partition(".")[0]]
                    if there.role is not Role.HOST:
                        assert gateway == own_address(fabric, there, family, there.plane)


def test_neighbours_are_permanent_and_right(fabric: Fabric) -> None:
    addresses = {
        (node, entry["ifname"]): entry["address"]
        for node in fabric.topology.nodes
        for entry in show(fabric, node, "link")
    }
    expected: dict[str, set[tuple[str, str, str]]] = {node: set() for node in fabric.topology.nodes}
    for link, node, interface, port in ends(fabric):
        at_lower = port == link.up_port
        there = link.upper if at_lower else link.lower
        other = link.upper_interface if at_lower else link.lower_interface
        for family in fabric.topology.families:
            address = own_address(fabric, there, family, link.upper.plane)
            expected[node.name].add((interface, address, addresses[there.name, other]))
    for name, entries in expected.items():
        found = show(fabric, name, "neighbour")
        assert {(each["dev"], each["dst"], each["lladdr"]) for each in found} == entries
        assert {state for each in found for state in each["state"]} == {"PERMANENT"}


def test_links(fabric: Fabric) -> None:
    base, topology = fabric.lease.ifindex_base, fabric.topology
    interfaces = {
        (node, entry["ifname"]): entry
        for node in topology.nodes
        for entry in show(fabric, node, "link")
    }
    assert len(interfaces) == 2 * len(topology.links) + len(topology.nodes)  # and the loopbacks
    for _, node, name, port in ends(fabric):
        interface = interfaces[node.name, name]
        assert interface["ifindex"] == base + port
        assert interface["link_index"] == base + (port ^ 1)
        assert interface["mtu"] == topology.mtu
        assert interface["operstate"] == "UP"
        with namespaces.inside(fabric.namespace_fds[node.name]):
            assert (offload(name, ETHTOOL_GGRO), offload(name, ETHTOOL_GTSO)) == (1, 0)


def test_shaping(fabric: Fabric) -> None:
    frame = fabric.topology.mtu + 14
    for link, node, name, _ in ends(fabric):
        is_host_link = link.lower.role is Role.HOST
        rate = fabric.topology.host_rate_bps if is_host_link else fabric.topology.link_rate
        classes = {cls[0]: cls[1:] for cls in shaper_classes(fabric.namespace(node.name), name)}
        # Root, control and data class: their share of the rate, and the whole of it as ceiling.
        assert {number: (own, ceiling) for number, (own, ceiling, _) in classes.items()} == {
            "1:1": (rate, rate),
            "1:10": (rate / 10, rate),
            "1:20": (rate * 9 / 10, rate),
        }
        # One millisecond or two frames; the kernel keeps bursts as times, in ticks of 64 ns.
        burst = max(rate / 8 / 1000, 2 * frame)
        assert all(abs(found - burst) <= 64e-9 * rate / 8 + 4 for *_, found in classes.values())
        hooks = subprocess.check_output(
            ["tc", "-n", fabric.namespace(node.name), "qdisc", "show", "dev", name], text=True
        )
        assert "qdisc htb 1: root" in hooks
        assert "default 0x20" in hooks
        assert "qdisc clsact" in hooks
        ingress = "host_ingress" if node.role is Role.HOST else "port_ingress"
        for hook, program in (("ingress", ingress), ("egress", "port_egress")):
            filters = subprocess.check_output(
                ["tc", "-n", fabric.namespace(node.name), "filter", "show", "dev", name, hook],
                text=True,
            )
            assert re.findall(r"\bname (\S+)", filters) == [program]


def shaper_classes(namespace: str, interface: str) -> list[tuple[str, float, float, float]]:
    """Return number, rate, ceiling (bit/s) and ceiling burst (bytes) of each class."""
    text = subprocess.check_output(
        ["tc", "-n", namespace, "class", "show", "dev", interface], text=True
    )
    units = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    found = re.findall(
        r"htb (\S+) .*rate ([\d.]+)([KMG]?)bit ceil ([\d.]+)([KMG]?)bit .*cburst (\d+)b", text
    )
    return [
        (number, float(rate) * units[unit], float(ceiling) * units[other], float(burst))
        for number, rate, unit, ceiling, other, burst in found
    ]


def test_sysctls(fabric: Fabric) -> None:
    topology = fabric.topology
    seeds = set()
    for node in topology.nodes.values():
        forwards = "0" if node.role is Role.HOST else "1"
        assert read_sysctl(fabric, node.name, "net/ipv4/ip_forward") == forwards
        disabled = read_sysctl(fabric, node.name, "net/ipv6/conf/all/disable_ipv6")
        assert disabled == ("0" if 6 in topology.families else "1")
        if node.role is Role.HOST:
            continue
        for family in topology.families:
            policy = f"net/ipv{family}/fib_multipath_hash_policy"
            assert read_sysctl(fabric, node.name, policy) == "1"
        if fabric.hash_seeds_set:
            seed = int(read_sysctl(fabric, node.name, "net/ipv4/fib_multipath_hash_seed"))
            assert seed == hash_seed(7, node)
            seeds.add(seed)
    if fabric.hash_seeds_set:
        assert len(seeds) == len(topology.switches)


def test_every_host_reaches_every_other(fabric: Fabric) -> None:
    topology, last = fabric.topology, fabric.topology.hosts[-1]
    with Fabric(topology) as own:  # one whose shells end with the test
        assert own.net.pingAll(timeout=5) == 0
        for family in topology.families:
            for plane in range(topology.planes):
                address = own_address(own, last, family, plane)
                said = own.net["h1"].cmd("ping", f"-{family}", "-c1", "-W5", address)
                assert " 0% packet loss" in said


def test_same_seed_everywhere() -> None:
    with Fabric(Topology(leaves=2, spines=2), seed=7, hash_seeds="same") as fabric:
        if not fabric.hash_seeds_set:
            pytest.skip("a kernel without fib_multipath_hash_seed")
        path = "net/ipv4/fib_multipath_hash_seed"
        found = {read_sysctl(fabric, switch.name, path) for switch in fabric.topology.switches}
    assert len(found) == 1
    assert found != {"0"}


def test_hash_policy_and_fields() -> None:
    switch = Switch(hash_policy=3, hash_fields=0x33)
    topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, ip="both")
    with Fabric(topology, Scheme(name="fields", switch=switch)) as fabric:
        for family in (4, 6):
            prefix = f"net/ipv{family}/fib_multipath_hash_"
            assert read_sysctl(fabric, "leaf1", prefix + "policy") == "3"
            assert int(read_sysctl(fabric, "leaf1", prefix + "fields"), 0) == 0x33
