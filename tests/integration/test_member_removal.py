"""What flows do when a link goes, measured on the kernel: as predicted, flow by flow."""

import json
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Role, Topology, hash_seed
from fabric_emu.net.fabric import Fabric
from fabric_emu.predict.failure import (
    Removal,
    remove_from_hash_threshold,
    remove_from_resilient,
)
from fabric_emu.predict.multipath import multipath_hash
from fabric_emu.predict.placement import Packets, Placement

pytestmark = pytest.mark.root

FLOWS = 1000
SPINES = 5
BUCKETS = 40
SEED = 11
TOPOLOGY = Topology(leaves=2, spines=SPINES, hosts_per_leaf=1, link_rate="100mbit")
PORTS = np.arange(0xC000, 0xC000 + FLOWS, dtype=np.uint16)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(TOPOLOGY, Scheme.named("ecmp"), seed=SEED) as fabric:
        if not fabric.hash_seeds_set:
            pytest.skip("this kernel has no fib_multipath_hash_seed")
        yield fabric


def ip(fabric: Fabric, *lines: str) -> str:
    """Run ``ip`` commands in the namespace of leaf 1."""
    command = ["ip", "-n", fabric.namespace("leaf1"), "-json", "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uplinks_taken(fabric: Fabric) -> np.ndarray:
    """Ask the kernel of leaf 1 over which uplink each flow goes."""
    source, destination = (str(TOPOLOGY.address4(host)) for host in TOPOLOGY.hosts)
    queries = [
        f"route get {destination} from {source} iif h1 ipproto udp sport {port} dport 4791"
        for port in PORTS
    ]
    decoder = json.JSONDecoder()
    text, answers = ip(fabric, *queries), []
    while text.strip():
        answer, end = decoder.raw_decode(text.lstrip())
        answers += answer
        text = text.lstrip()[end:]
    return np.array([int(answer["dev"].removeprefix("spine")) - 1 for answer in answers])


def hashes() -> np.ndarray:
    switch = Scheme.named("ecmp").switch
    packets = Packets(4, 0, np.zeros(FLOWS, int), np.ones(FLOWS, int), PORTS)
    leaf = TOPOLOGY.switch(Role.LEAF, 1)
    tuples = Placement.of(TOPOLOGY, switch, SEED).tuples(packets)
    return multipath_hash(tuples, hash_seed(SEED, leaf))


def assert_moved(removal: Removal, before: np.ndarray, after: np.ndarray) -> None:
    assert (before == removal.before).all()
    assert (after == removal.after).all()
    # A share of 1,000 flows deviates by 0.016 at most.
    assert float(np.mean(before != after)) == pytest.approx(removal.expected, abs=5 * 0.016)


@pytest.mark.parametrize("removed", [0, 2, 3])
def test_a_link_down_moves_flows_as_rfc_2992_says(fabric: Fabric, removed: int) -> None:
    before = uplinks_taken(fabric)
    ip(fabric, f"link set dev spine{removed + 1} down")
    after = uplinks_taken(fabric)
    removal = remove_from_hash_threshold(hashes(), SPINES, removed)
    # RFC 2992 for five members: the edge, the middle, and beside it.
    assert removal.expected == pytest.approx({0: 0.5, 2: 0.3, 3: 0.35}[removed])
    assert_moved(removal, before, after)


@pytest.mark.parametrize("removed", [0, 2])
def test_a_resilient_group_moves_the_lost_links_flows_only(fabric: Fabric, removed: int) -> None:
    # One nexthop per spine, as the fabric makes them, then a resilient group instead of its own.
    nexthops = [
        f"nexthop add id {n} via {TOPOLOGY.address4(TOPOLOGY.switch(Role.SPINE, n))} "
        f"dev spine{n} onlink"
        for n in range(1, SPINES + 1)
    ]
    members = "/".join(str(n) for n in range(1, SPINES + 1))
    prefix = TOPOLOGY.leaf_prefix4(TOPOLOGY.switch(Role.LEAF, 2))
    ip(
        fabric,
        *nexthops,
        f"nexthop add id 100 group {members} type resilient buckets {BUCKETS} idle_timer 120",
        f"route replace {prefix} nhid 100",
    )
    before = uplinks_taken(fabric)
    ip(fabric, f"nexthop del id {removed + 1}")
    after = uplinks_taken(fabric)
    removal = remove_from_resilient(hashes(), SPINES, removed, BUCKETS)
    assert removal.expected == pytest.approx(1 / SPINES)
    assert removal.moved_needlessly == 0
    assert_moved(removal, before, after)
