"""Open-loop workloads: who sends to whom, and how much."""

import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scheme import Nic
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import FlowSpec, OpenLoop

TOPOLOGY = Topology(leaves=4, spines=2, hosts_per_leaf=2, link_rate="100mbit")


def pairs_of(workload, topology=TOPOLOGY, seed=1):
    flows = workload.expand(topology, seed)
    return [(flow.source.name, flow.destination.name) for flow in flows]


def test_pairs_go_from_the_first_half_to_the_second():
    assert pairs_of(OpenLoop(pattern="pairs")) == [
        ("h1", "h5"), ("h2", "h6"), ("h3", "h7"), ("h4", "h8"),
    ]  # fmt: skip


def test_a_permutation_shifts_by_a_leaf():
    pairs = pairs_of(OpenLoop(pattern="permutation"))
    assert pairs[0] == ("h1", "h3")
    assert pairs[-1] == ("h8", "h2")


@pytest.mark.parametrize("seed", range(20))
def test_a_random_permutation_sends_nobody_to_itself(seed):
    pairs = pairs_of(OpenLoop(pattern="random"), seed=seed)
    assert sorted(source for source, _ in pairs) == sorted(to for _, to in pairs)
    assert all(source != to for source, to in pairs)


def test_random_permutations_follow_the_seed():
    drawn = {tuple(pairs_of(OpenLoop(pattern="random"), seed=seed)) for seed in range(20)}
    assert len(drawn) > 10
    assert pairs_of(OpenLoop(pattern="random"), seed=3) == pairs_of(
        OpenLoop(pattern="random"), seed=3
    )


def test_incast_comes_from_the_farthest_hosts():
    assert pairs_of(OpenLoop(pattern="incast", senders=3)) == [
        ("h6", "h1"), ("h7", "h1"), ("h8", "h1"),
    ]  # fmt: skip


def test_flows_as_listed():
    listed = (FlowSpec(source="h1", destination="h8", flows=2, rate="5mbit"),)
    flows = OpenLoop(pattern="flows", flows=listed).expand(TOPOLOGY, 1)
    assert [(f.source.name, f.destination.name, f.rate_bps) for f in flows] == [
        ("h1", "h8", 5_000_000)
    ] * 2


def test_load_is_shared_by_a_hosts_flows():
    flows = OpenLoop(pattern="pairs", flows_per_host=8, load=0.9).expand(TOPOLOGY, 1)
    by_host: dict[str, float] = {}
    for flow in flows:
        by_host[flow.source.name] = by_host.get(flow.source.name, 0) + flow.rate_bps
    assert by_host == pytest.approx(dict.fromkeys(["h1", "h2", "h3", "h4"], 90_000_000))


def test_flows_go_over_planes_and_families_in_turn():
    topology = Topology(planes=2, ip="both")
    flows = OpenLoop(pattern="pairs", flows_per_host=4).expand(topology, 1)
    assert [(f.plane, f.family) for f in flows[:4]] == [(0, 4), (1, 4), (0, 6), (1, 6)]
    # Both planes together carry load x 2 ports.
    assert sum(f.rate_bps for f in flows[:4]) == pytest.approx(0.9 * 2 * topology.link_rate)


@pytest.mark.parametrize(
    ("workload", "topology", "path"),
    [
        (OpenLoop(pattern="permutation", shift=8), TOPOLOGY, "workload.shift"),
        (OpenLoop(pattern="incast", senders=8), TOPOLOGY, "workload.senders"),
        (OpenLoop(payload=8990), TOPOLOGY, "workload.payload"),
        (OpenLoop(pattern="pairs"), Topology(leaves=3, hosts_per_leaf=1), "topology"),
        (
            OpenLoop(pattern="flows", flows=(FlowSpec(source="h9", destination="h1"),)),
            TOPOLOGY,
            r"workload.flows\[0\].source",
        ),
        (
            OpenLoop(pattern="flows", flows=(FlowSpec(source="h1", destination="h1"),)),
            TOPOLOGY,
            r"workload.flows\[0\].destination",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(workload, topology, path):
    with pytest.raises(ScenarioError, match=path):
        workload.expand(topology, 1)


def test_queue_pairs_have_ports_of_their_own_drawn_from_the_seed():
    flows = OpenLoop(pattern="pairs", flows_per_host=8).expand(TOPOLOGY, 1)
    pairs = QueuePairs.of(flows, Nic(queue_pairs=4), seed=5)
    assert len(pairs) == 4 * 8 * 4
    assert pairs.flow.tolist()[:5] == [0, 0, 0, 0, 1]
    assert pairs.source_port.min() >= 0xC000
    assert len(set(pairs.source_port.tolist())) > 100  # 128 draws of 16,384: about half one double
    again = QueuePairs.of(flows, Nic(queue_pairs=4), seed=5)
    other = QueuePairs.of(flows, Nic(queue_pairs=4), seed=6)
    assert (pairs.source_port == again.source_port).all()
    assert (pairs.source_port != other.source_port).any()


def test_sprayed_queue_pairs_have_no_port_of_their_own():
    flows = OpenLoop(pattern="pairs").expand(TOPOLOGY, 1)
    assert not QueuePairs.of(flows, Nic(entropy="random"), seed=1).source_port.any()


def test_groups_split_by_family_and_plane():
    topology = Topology(planes=2, ip="both")
    flows = OpenLoop(pattern="pairs", flows_per_host=4).expand(topology, 1)
    groups = QueuePairs.of(flows, Nic(), seed=1).groups()
    assert [len(rows) for rows in groups] == [2, 2, 2, 2]
