"""Entropy on purpose: all paths alike, or one path."""

import numpy as np
import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.measure.statistics import imbalance
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scheme import Nic, Switch
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import OpenLoop
from fabric_emu.predict.entropy import ALL_PORTS, path_to_entropy, rotations, spread_evenly
from fabric_emu.predict.law import expected_imbalance
from fabric_emu.predict.placement import Packets, Placement, path_name

TWO_TIERS = Topology(leaves=3, spines=8, hosts_per_leaf=2, ip="both")
THREE_TIERS = Topology(tiers=3, pods=2, leaves=2, spines=2, super_spines=6, hosts_per_leaf=2)
PARALLEL = Topology(leaves=2, spines=2, hosts_per_leaf=1, links_per_pair=3, planes=2)
CHASSIS = Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=3)


def names_of(placement, source, destination, entropy, family=4):
    n = len(entropy)
    packets = Packets(
        family, 0, np.full(n, source), np.full(n, destination), entropy.source_port,
        entropy.flow_label,
    )  # fmt: skip
    return [path_name(placement.topology, path) for path in placement.paths(packets)]


@pytest.mark.parametrize("policy", [1, 3])
@pytest.mark.parametrize("family", [4, 6])
def test_every_spine_can_be_chosen(policy, family):
    placement = Placement.of(TWO_TIERS, Switch(hash_policy=policy), 7)
    for spine in range(1, 9):
        path = ["leaf1", f"spine{spine}", "leaf3"]
        entropy = path_to_entropy(placement, "h1", "h5", path, count=20, family=family)
        assert len(set(entropy.source_port.tolist())) == 20
        assert entropy.source_port.min() >= 0xC000
        assert names_of(placement, 0, 4, entropy, family) == [">".join(path)] * 20


@pytest.mark.parametrize("spine", [1, 2])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_every_super_spine_can_be_chosen(spine, place):
    placement = Placement.of(THREE_TIERS, Switch(), 7)
    # Each spine meets three super-spines, and the last spine is the first one's counterpart.
    above = f"super{3 * (spine - 1) + place}"
    path = ["leaf1", f"spine{spine}", above, f"spine{spine + 2}", "leaf4"]
    entropy = path_to_entropy(placement, 0, 7, path, count=5)
    assert names_of(placement, 0, 7, entropy) == [">".join(path)] * 5


def test_within_a_pod_and_a_leaf_paths_are_shorter():
    placement = Placement.of(THREE_TIERS, Switch(), 7)
    entropy = path_to_entropy(placement, "h1", "h3", ["leaf1", "spine2", "leaf2"])
    assert names_of(placement, 0, 2, entropy) == ["leaf1>spine2>leaf2"]
    # On one leaf nothing is chosen: the first port will do.
    assert path_to_entropy(placement, "h1", "h2", ["leaf1"]).source_port.tolist() == [0xC000]
    chassis = Placement.of(CHASSIS, Switch(), 7)
    assert len(path_to_entropy(chassis, "h1", "h3", ["chassis1"], count=100)) == 100


def test_ports_tell_parallel_links_apart():
    placement = Placement.of(PARALLEL, Switch(), 7)
    names = ["leaf1p2", "spine1p2", "leaf2p2"]
    by_name = path_to_entropy(placement, 0, 1, names, count=200)
    packets = Packets(4, 1, np.zeros(200, int), np.ones(200, int), by_name.source_port)
    paths = np.unique(placement.paths(packets), axis=0)
    # Three links up, three down.
    assert len(paths) == 9
    for path in paths:
        ports = path[path >= 0].tolist()
        entropy = path_to_entropy(placement, 0, 1, ports, count=3)
        packets = Packets(4, 1, np.zeros(3, int), np.ones(3, int), entropy.source_port)
        assert (placement.paths(packets)[:, :4] == ports).all()


@pytest.mark.parametrize(("policy", "fields"), [(0, 0x37), (2, 0x37), (3, 0x0B)])
def test_flow_labels_steer_where_ports_do_not(policy, fields):
    placement = Placement.of(TWO_TIERS, Switch(hash_policy=policy, hash_fields=fields), 7)
    for spine in range(1, 9):
        path = ["leaf1", f"spine{spine}", "leaf2"]
        entropy = path_to_entropy(placement, "h1", "h3", path, count=4, family=6)
        assert names_of(placement, 0, 2, entropy, family=6) == [">".join(path)] * 4


def test_ipv4_packets_go_one_way_where_ports_are_not_hashed():
    placement = Placement.of(TWO_TIERS, Switch(hash_policy=0), 7)
    refused = []
    for spine in range(1, 9):
        try:
            path_to_entropy(placement, "h1", "h3", ["leaf1", f"spine{spine}", "leaf2"])
        except ScenarioError as error:
            refused.append(error.hint)
    assert len(refused) == 7
    assert refused[0] == "under hash policy 0 no more of them do"


@pytest.mark.parametrize(
    ("source", "destination", "path"),
    [
        ("h1", "h8", ["leaf1", "spine1", "super4", "spine3", "leaf4"]),  # of the other group
        ("h1", "h8", ["leaf1", "spine1", "super1", "spine4", "leaf4"]),
        ("h1", "h8", ["leaf1", "spine1", "leaf4"]),
        ("h1", "h3", ["leaf1", "spine3", "leaf2"]),  # of the other pod
        ("h1", "h3", ["leaf2", "spine1", "leaf1"]),
        ("h1", "h3", ["leaf1", "spine9", "leaf2"]),
        ("h1", "h3", ["leaf1"]),
        ("h1", "h3", []),
        ("h1", "h3", [0, 16, 21]),
        ("h1", "h3", [0, -1]),
    ],
)
def test_a_path_that_is_not_there_is_named(source, destination, path):
    placement = Placement.of(THREE_TIERS, Switch(), 7)
    with pytest.raises(ScenarioError, match="a path of the fabric from h1") as caught:
        path_to_entropy(placement, source, destination, path)
    assert caught.value.value == ">".join(map(str, path))


def test_hosts_that_are_not_there_are_named():
    placement = Placement.of(THREE_TIERS, Switch(), 7)
    for host in ("h9", "leaf1", "h0", 8, -1):
        with pytest.raises(ScenarioError, match="h1 to h8"):
            path_to_entropy(placement, host, "h1", ["leaf1"])


def test_more_values_than_there_are_cannot_be_had():
    placement = Placement.of(TWO_TIERS, Switch(), 7)
    # An eighth of 16,384 source ports is 2,048, deviating by 42.
    with pytest.raises(ScenarioError, match="3000 entropy values reach, not"):
        path_to_entropy(placement, "h1", "h3", ["leaf1", "spine1", "leaf2"], count=3000)


@pytest.mark.parametrize(("topology", "paths"), [(TWO_TIERS, 8), (THREE_TIERS, 6), (PARALLEL, 18)])
def test_a_rotation_visits_every_path_once_a_lap(topology, paths):
    placement = Placement.of(topology, Switch(), 3)
    last = topology.total_hosts - 1
    flows = Packets(4, 0, np.array([0, 0]), np.array([last, last]), np.zeros(2, np.uint16))
    ports = spread_evenly(placement, flows, 100, np.random.default_rng(1))
    for row in ports:
        packets = flows.take(np.zeros(len(row), int)).with_ports(row[:, None])
        keys = placement.numbering.path_keys(placement.choices(packets))
        assert len(row) == paths * -(-100 // paths)
        laps = keys.reshape(-1, paths)
        assert all(len(set(lap)) == paths for lap in laps)
        # Shuffled anew: a lap in the same order again has a probability of 1 in 6! at most.
        assert len({tuple(lap) for lap in laps.tolist()}) > 1


def test_rotations_serve_flows_of_all_planes_and_families():
    topology = Topology(leaves=2, spines=4, hosts_per_leaf=1, planes=2, ip="both")
    flows = OpenLoop(pattern="pairs", flows_per_host=8).expand(topology, 1)
    nic = Nic(entropy="even", entropy_values=16, queue_pairs=2)
    pairs = QueuePairs.of(flows, nic, 1)
    placement = Placement.of(topology, Switch(), 1)
    ports = rotations(placement, pairs, nic, 1)
    assert ports.shape == (8, 16)
    for flow in range(8):
        packets = Packets.of(pairs, np.array([2 * flow])).with_ports(ports[flow : flow + 1])
        uplink = placement.choices(packets)[:, 0]
        assert np.bincount(uplink).tolist() == [4, 4, 4, 4]


def test_even_spraying_is_balanced_where_random_spraying_is_as_chance_has_it():
    placement = Placement.of(TWO_TIERS, Switch(), 3)
    flows, packets_each = 16, 250
    draw = np.random.default_rng(5)
    source = np.zeros(flows, int)
    one_each = Packets(4, 0, source, source + 4, np.zeros(flows, np.uint16))
    turn = spread_evenly(placement, one_each, 256, draw)[:, :packets_each]
    loads = {}
    for name, ports in (
        ("even", turn),
        ("random", draw.choice(ALL_PORTS, (flows, packets_each))),
    ):
        uplink = placement.choices(one_each.with_ports(ports))[:, 0]
        loads[name] = imbalance(np.bincount(uplink, minlength=8)).max_over_mean
    # A flow's 250 packets are 31 laps of 8 paths and two more: on the fullest uplink 16 flows put
    # at most 16 x 32, where 500 is the mean.
    assert loads["even"] <= 16 * 32 / 500
    # 4,000 balls in 8 bins: 1.064 on average; the fullest deviates by about 0.025.
    assert loads["random"] == pytest.approx(expected_imbalance(flows * packets_each, 8), abs=0.08)
    assert loads["random"] > loads["even"]
