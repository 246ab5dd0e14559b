"""Next hops left by dead links: by hand, and that following them never meets one."""

from itertools import combinations

from fabric_emu.model.reachability import next_hops_without
from fabric_emu.model.topology import Link, Node, Role, Topology

TWO_TIERS = Topology(leaves=3, spines=3, hosts_per_leaf=1)
THREE_TIERS = Topology(tiers=3, pods=2, leaves=2, spines=2, super_spines=4, hosts_per_leaf=1)


def named(topology: Topology, *names: str) -> set[int]:
    found = {link.index for link in topology.links if link.name in names}
    assert len(found) == len(names)
    return found


def left(topology: Topology, switch: str, leaf: str, dead: set[int]) -> list[str]:
    nodes = topology.nodes
    return [k.name for k in next_hops_without(topology, nodes[switch], nodes[leaf], dead)]


def test_a_leaf_leaves_the_spine_that_has_lost_the_other_leaf() -> None:
    dead = named(TWO_TIERS, "leaf2-spine2")
    assert left(TWO_TIERS, "leaf1", "leaf2", dead) == ["leaf1-spine1", "leaf1-spine3"]
    assert len(left(TWO_TIERS, "leaf1", "leaf3", dead)) == 3
    assert left(TWO_TIERS, "spine2", "leaf2", dead) == []  # no way back up


def test_a_spine_that_is_cut_off_takes_its_super_spines_with_it() -> None:
    dead = named(THREE_TIERS, "leaf3-spine3")
    assert left(THREE_TIERS, "super1", "leaf3", dead) == []
    assert left(THREE_TIERS, "leaf1", "leaf3", dead) == ["leaf1-spine2"]
    assert len(left(THREE_TIERS, "leaf1", "leaf4", dead)) == 2
    dead = named(THREE_TIERS, "spine3-super1")
    assert left(THREE_TIERS, "spine1", "leaf3", dead) == ["spine1-super2"]
    assert len(left(THREE_TIERS, "leaf1", "leaf3", dead)) == 2


def test_every_next_hop_left_leads_to_the_leaf_over_links_alive() -> None:
    between = [link for link in THREE_TIERS.links if link.lower.role is not Role.HOST]
    leaves = [node for node in THREE_TIERS.switches if node.role is Role.LEAF]

    def walk(at: Node, leaf: Node, dead: set[int], climbs: bool) -> None:
        hops = next_hops_without(THREE_TIERS, at, leaf, dead)
        assert hops or at == leaf
        for link in hops:
            up = link.lower == at
            assert link.index not in dead
            assert climbs or not up
            walk(link.upper if up else link.lower, leaf, dead, up)

    def ends(pair: tuple[Link, ...]) -> set[int]:
        return {link.index for link in pair}

    for dead in map(ends, combinations(between, 2)):
        for source in leaves:
            for leaf in leaves:
                if source != leaf and next_hops_without(THREE_TIERS, source, leaf, dead):
                    walk(source, leaf, dead, True)
