"""Predicted paths around dead links: the whole fabric's own, and what must differ."""

from __future__ import annotations

import numpy as np
import pytest

from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.reachability import Knowledge
from fabric_emu.model.scheme import Nic, Switch
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import OpenLoop
from fabric_emu.predict.placement import Placement
from fabric_emu.predict.repaired import repaired_paths

TWO = Topology(leaves=3, spines=3, hosts_per_leaf=2, ip="both")
TOPOLOGIES = {
    "two tiers": TWO,
    "three tiers": Topology(tiers=3, pods=2, leaves=2, spines=2, super_spines=4, hosts_per_leaf=2),
    "planes": Topology(leaves=2, spines=2, hosts_per_leaf=2, planes=2),
    "parallel": Topology(leaves=2, spines=2, hosts_per_leaf=2, links_per_pair=2, ip=6),
    "weights": Topology(
        leaves=2, spines=2, hosts_per_leaf=2, spine_rates=["10mbit", "30mbit"],
        ecmp={"weights": "rates"},
    ),
}  # fmt: skip


def placed(topology: Topology) -> tuple[Placement, QueuePairs]:
    flows = OpenLoop(pattern="all-to-all", flows_per_host=24).expand(topology, 1)
    return Placement.of(topology, Switch(), 5), QueuePairs.of(flows, Nic(), 5)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_with_all_links_alive_paths_are_those_of_the_placement(name: str) -> None:
    placement, pairs = placed(TOPOLOGIES[name])
    np.testing.assert_array_equal(
        repaired_paths(placement, pairs, Knowledge()), placement.paths_of(pairs)
    )


def test_only_who_knows_leaves_a_dead_link() -> None:
    placement, pairs = placed(TWO)
    before = placement.paths_of(pairs)
    link = next(link for link in TWO.links if link.name == "leaf2-spine2")
    ends, everybody = (
        repaired_paths(placement, pairs, knowledge)
        for knowledge in (
            Knowledge(down=frozenset({link.index})),
            Knowledge(known=frozenset({link.index})),
        )
    )
    to_leaf2 = pairs.destination // TWO.hosts_per_leaf == 1
    over = (before == link.down_port).any(axis=1)
    # Others still send to the spine, which has no other way down.
    assert over.any()
    stuck = np.flatnonzero(over)
    np.testing.assert_array_equal(ends[stuck, :2], before[stuck, :2])
    assert (ends[stuck, 2:] == -1).all()
    # All that go to leaf 2 are spread anew over two spines, all that come from it as well.
    for paths in (ends, everybody):
        assert not ((paths == link.up_port) | (paths == link.down_port)).any()
    same_leaf = (before[:, 2] < 0) & to_leaf2
    arrived = everybody.max(axis=1, initial=-1)
    assert ((everybody >= 0).sum(axis=1)[to_leaf2 & ~same_leaf] == 4).all()
    assert (arrived[to_leaf2] >= 0).all()
    from_leaf2 = pairs.source // TWO.hosts_per_leaf == 1
    untouched = ~to_leaf2 & ~from_leaf2
    np.testing.assert_array_equal(everybody[untouched], before[untouched])
