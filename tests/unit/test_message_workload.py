"""Workloads of messages: ranks on hosts, what does not fit, and how scenarios name their kind."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.message_workload import MAX_MESSAGES, Messages
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Nic
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import OpenLoop

TOPOLOGY = Topology(leaves=4, spines=2, hosts_per_leaf=2)


def pairs_of(workload: Messages, topology: Topology = TOPOLOGY) -> set[tuple[int, int]]:
    graph = workload.graph(topology, 1)
    return set(zip(graph.source.tolist(), graph.destination.tolist(), strict=True))


def test_ranks_in_order_and_across_leaves():
    assert Messages().place(TOPOLOGY, 1).tolist() == list(range(8))
    dealt = Messages(placement="across-leaves").place(TOPOLOGY, 1)
    assert dealt.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert Messages(placement="across-leaves", ranks=5).place(TOPOLOGY, 1).tolist() == [
        0, 2, 4, 6, 1,
    ]  # fmt: skip
    # Every neighbour of the ring is on another leaf.
    for source, destination in pairs_of(Messages(placement="across-leaves")):
        assert source // 2 != destination // 2


def test_random_placement_follows_the_seed():
    workload = Messages(placement="random")
    first = workload.place(TOPOLOGY, 1)
    assert sorted(first.tolist()) == list(range(8))
    assert first.tolist() == workload.place(TOPOLOGY, 1).tolist()
    assert any(first.tolist() != workload.place(TOPOLOGY, seed).tolist() for seed in range(2, 5))


def test_named_hosts_are_the_ranks():
    workload = Messages(collective="permutation", hosts=("h8", "h1", "h3"), shift=1)
    assert pairs_of(workload) == {(7, 0), (0, 2), (2, 7)}


def test_a_permutation_shifts_by_a_leaf():
    assert (0, 2) in pairs_of(Messages(collective="permutation"))


def test_incast_comes_from_the_farthest_ranks():
    workload = Messages(collective="incast", senders=3)
    assert pairs_of(workload) == {(5, 0), (6, 0), (7, 0)}
    assert len(pairs_of(Messages(collective="incast"))) == 7


@pytest.mark.parametrize(
    "collective",
    [
        "ring-all-reduce",
        "ring-all-gather",
        "ring-reduce-scatter",
        "all-to-all",
        "broadcast",
        "permutation",
        "incast",
    ],
)
def test_every_collective_has_its_name_and_cuts_messages(collective):
    workload = Messages(collective=collective, size=1_000_001, message_size=10_000)
    graph = workload.graph(TOPOLOGY, 1)
    assert [found.name for found in graph.collectives] == [collective]
    assert graph.size_bytes.max() == 10_000
    assert not graph.local.any()


def test_computation_and_iterations_make_a_loop():
    workload = Messages(size=8000, iterations=3, compute_time=0.01, checkpoint_every=2)
    graph = workload.graph(TOPOLOGY, 1)
    assert graph.iteration.max() == 2
    assert (graph.delay_s[graph.local] == 0.01).all()
    assert graph.local.sum() == 3 * 8
    # Computation alone, too, is a loop, of one iteration.
    assert Messages(size=8000, compute_time=0.01).graph(TOPOLOGY, 1).local.sum() == 8


def test_a_flow_for_each_pair_of_hosts():
    table = Messages(collective="all-to-all").table(TOPOLOGY, 1)
    assert len(table) == 8 * 7
    assert (np.diff(table.source * 8 + table.destination) > 0).all()
    assert table.rate_bps == pytest.approx(TOPOLOGY.link_rate / 7)
    assert len(QueuePairs.of(table, Nic(queue_pairs=4), 1)) == 4 * 56
    both = Topology(planes=2, ip="both")
    table = Messages(collective="all-to-all").table(both, 1)
    assert table.plane[:3].tolist() == [0, 1, 0]
    assert table.family[:3].tolist() == [4, 4, 6]
    assert table.rate_bps[:3].tolist() == [50e6, 100e6, 50e6]


@pytest.mark.parametrize(
    ("workload", "topology", "path"),
    [
        (Messages(payload=8990), TOPOLOGY, "workload.payload"),
        (Messages(), Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=1), "topology"),
        (Messages(ranks=9), TOPOLOGY, "workload.ranks"),
        (Messages(hosts=("h1", "h9")), TOPOLOGY, r"workload.hosts\[1\]"),
        (Messages(hosts=("spine1", "h1")), TOPOLOGY, r"workload.hosts\[0\]"),
        (Messages(collective="permutation", shift=8), TOPOLOGY, "workload.shift"),
        (Messages(collective="permutation", ranks=2), TOPOLOGY, "workload.shift"),
        (Messages(collective="incast", senders=8), TOPOLOGY, "workload.senders"),
        (Messages(size=10**9, message_size=64, iterations=10), TOPOLOGY, "workload.message_size"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(workload, topology, path):
    for use in (workload.graph, workload.table):
        with pytest.raises(ScenarioError, match=path):
            use(topology, 1)


@pytest.mark.parametrize("collective", ["ring-all-reduce", "all-to-all", "incast", "broadcast"])
def test_messages_are_counted_before_they_are_made(collective):
    workload = Messages(collective=collective, size=8 * 65536 * 4)
    most = len(workload.graph(TOPOLOGY, 1))
    # The count is by ranks, one of which does not send in an incast or a broadcast.
    senders = 7 if collective in ("incast", "broadcast") else 8
    fitting = MAX_MESSAGES * senders // (8 * most)
    workload.model_copy(update={"iterations": fitting}).check(TOPOLOGY)
    with pytest.raises(ScenarioError, match="message_size"):
        workload.model_copy(update={"iterations": fitting + 1}).check(TOPOLOGY)


# In scenarios.


def problem(workload: str) -> str:
    with pytest.raises(InvalidScenario) as caught:
        parse_scenario(f"title: t\nworkload:\n{workload}", "s.yaml")
    return str(caught.value)


def test_kind_decides_and_open_loop_is_usual():
    messages = parse_scenario("title: t\nworkload: {kind: messages, size: 1MB}", "s.yaml")
    assert isinstance(messages.workload, Messages)
    assert messages.workload.size == 10**6
    for text in ("{pattern: pairs}", "{kind: open-loop}", "{}"):
        found = parse_scenario(f"title: t\nworkload: {text}", "s.yaml")
        assert isinstance(found.workload, OpenLoop)
    assert isinstance(parse_scenario("title: t", "s.yaml").workload, OpenLoop)
    changed = parse_scenario("title: t", "s.yaml", ["workload.kind=messages"])
    assert isinstance(changed.workload, Messages)


@pytest.mark.parametrize("workload", [OpenLoop(load=0.5), Messages(iterations=3)])
def test_scenarios_survive_json(workload):
    scenario = Scenario(title="t", workload=workload)
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


def test_misspelt_keys_are_told_with_those_of_the_kind():
    said = problem("  kind: messages\n  iteratons: 3\n")
    assert said.startswith("s.yaml:4: workload: 'iteratons': expected one of the keys kind, coll")
    assert said.endswith("did you mean 'iterations'?")
    said = problem("  patern: ring\n")
    assert said.startswith("s.yaml:3: workload: 'patern': expected one of the keys kind, pattern")
    assert said.endswith("did you mean 'pattern'?")


def test_keys_of_the_other_kind_are_told_so():
    assert problem("  collective: incast\n").endswith("; a key of kind: messages")
    assert problem("  kind: messages\n  load: 0.5\n").endswith("; a key of kind: open-loop")


def test_wrong_values_have_the_place_that_the_file_has():
    assert problem("  kind: messages\n  iterations: 0\n") == (
        "s.yaml:4: workload.iterations: 0: expected 1 or more"
    )
    assert problem("  flows: [{source: h1, flows: 0, destination: h2}]\n") == (
        "s.yaml:3: workload.flows[0].flows: 0: expected 1 or more"
    )
    assert problem("  kind: mesages\n") == (
        "s.yaml:3: workload.kind: 'mesages': expected 'open-loop' or 'messages'; "
        "did you mean 'messages'?"
    )
    assert problem("  kind: 3\n") == "s.yaml:3: workload.kind: 3: expected 'open-loop'"


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ("collective: incast\n  shift: 3", "shift", "3: expected nothing with collective incast"),
        ("senders: 3", "senders", "3: expected nothing with collective ring-all-reduce"),
        ("in_flight: 3", "in_flight", "3: expected nothing with collective ring-all-reduce"),
        ("ranks: 2\n  hosts: [h1, h2]", "ranks", "2: expected nothing when hosts are named"),
        (
            "placement: random\n  hosts: [h1, h2]",
            "placement",
            "'random': expected nothing when hosts are named",
        ),
        ("hosts: [h1, h1]", "hosts", "'this section': expected two hosts or more, each once"),
    ],
)
def test_keys_that_contradict_each_other(keys, key, said):
    assert problem(f"  kind: messages\n  {keys}\n").split(": ", 1)[1] == f"workload.{key}: {said}"


def test_the_schema_describes_both_kinds():
    schema = json.dumps(Scenario.model_json_schema()["properties"]["workload"])
    assert "OpenLoop" in schema
    assert "Messages" in schema
