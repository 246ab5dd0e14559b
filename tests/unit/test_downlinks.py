"""Loads of links that lead down, against what faults leave of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabric_emu.measure.downlinks import room_share, summarise_downlinks
from fabric_emu.measure.links import LinkLoads
from fabric_emu.model.fault import Fault
from fabric_emu.model.topology import Link, Topology

TOPOLOGY = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="40mbit")


def fault(action: str, **fields: Any) -> Fault:
    return Fault.model_validate({"at": 0, "link": "leaf2-spine1", "action": action, **fields})


def link(name: str, topology: Topology = TOPOLOGY) -> Link:
    return next(link for link in topology.links if link.name == name)


def both(*faults: Fault, window_s: float = 4.0) -> tuple[float, float]:
    """Return the room of the faulty link, upwards and downwards; assert that no other is hit."""
    room = room_share(TOPOLOGY, faults, window_s)
    hit = link("leaf2-spine1")
    others = np.delete(room, [hit.up_port, hit.down_port])
    assert others == pytest.approx(np.ones(len(others)))
    return float(room[hit.up_port]), float(room[hit.down_port])


@pytest.mark.parametrize(
    ("faults", "up", "down"),
    [
        ([], 1, 1),
        ([fault("slow", rate="10mbit")], 0.25, 0.25),
        ([fault("slow", rate="10mbit", towards="leaf2")], 1, 0.25),
        ([fault("slow", rate="10mbit", towards="spine1")], 0.25, 1),
        # For one of four seconds, and for what is left of them.
        ([fault("slow", at=1, rate="10mbit", **{"for": 1})], 0.8125, 0.8125),
        ([fault("down", at=3, **{"for": 60})], 0.75, 0.75),
        ([fault("down", at=5)], 1, 1),
        ([fault("blackhole", towards="leaf2")], 1, 0),
        ([fault("flap", period=0.1)], 0.5, 0.5),
        ([fault("loss", probability=0.5)], 1, 1),
        ([fault("slow", rate="80mbit")], 1, 1),
        # A second at a fourth, one with nothing, two at a fourth.
        ([fault("slow", rate="10mbit"), fault("down", at=1, **{"for": 1})], 0.1875, 0.1875),
    ],
)
def test_room_is_what_faults_leave(faults: list[Fault], up: float, down: float) -> None:
    assert both(*faults) == pytest.approx((up, down))


def loads(topology: Topology, **offered: float) -> LinkLoads:
    """Return loads of nothing but these links downwards, ``leaf2_spine1=0.7``."""
    column = np.zeros(2 * len(topology.links))
    for name, load in offered.items():
        column[link(name.replace("_", "-"), topology).down_port] = load
    return LinkLoads(column, np.minimum(column, 0.5))


def test_loads_are_compared_with_the_room() -> None:
    room = room_share(TOPOLOGY, [fault("slow", rate="20mbit", towards="leaf2")], 1.0)
    even = loads(TOPOLOGY, leaf2_spine1=0.7, leaf2_spine2=0.7)
    found = summarise_downlinks(TOPOLOGY, even, room)
    assert (found["worst_downlink"], found["worst_downlink_load"]) == ("leaf2-spine1", 1.4)
    assert found["downlinks"].keys() == {"leaf1", "leaf2"}
    assert found["downlinks"]["leaf2"][0] == {
        "spine": "spine1", "link": "leaf2-spine1", "offered": 0.7, "carried": 0.5, "room": 0.5,
    }  # fmt: skip
    # 1.4 and 0.7: the worst over the mean is 4 / 3.
    spread = found["downlink_imbalance"]
    assert spread["leaf2"]["max_over_mean"] == pytest.approx(4 / 3)
    assert spread["leaf1"]["max_over_mean"] == 1.0


def test_dead_links_have_no_load_to_compare() -> None:
    room = room_share(TOPOLOGY, [fault("down")], 1.0)
    found = summarise_downlinks(TOPOLOGY, loads(TOPOLOGY, leaf2_spine1=0.1, leaf2_spine2=0.6), room)
    assert (found["worst_downlink"], found["worst_downlink_load"]) == ("leaf2-spine2", 0.6)
    assert found["downlink_imbalance"]["leaf2"]["max_over_mean"] == 1.0
    assert found["downlinks"]["leaf2"][0]["room"] == 0.0


def test_three_tiers_have_links_down_to_spines() -> None:
    topology = Topology(tiers=3, pods=2, leaves=1, spines=2, super_spines=2, hosts_per_leaf=1)
    room = room_share(topology, [], 1.0)
    found = summarise_downlinks(topology, loads(topology, spine3_super1=0.9), room)
    assert (found["worst_downlink"], found["worst_downlink_load"]) == ("spine3-super1", 0.9)
    assert found["downlinks"]["spine3"][0]["super_spine"] == "super1"


def test_one_tier_has_none() -> None:
    chassis = Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=2)
    found = summarise_downlinks(chassis, loads(chassis), room_share(chassis, [], 1.0))
    assert found["downlinks"] == found["downlink_imbalance"] == {}
    assert found["worst_downlink_load"] is None is found["worst_downlink"]
