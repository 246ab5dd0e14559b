"""Weights and resilient groups: what a topology asks for, and where flows go for it."""

import numpy as np
import pytest
from pydantic import ValidationError

from fabric_emu.measure.ideal import Framing, IdealFabric
from fabric_emu.model.ecmp import NexthopGroups, Resilient
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.numbering import Numbering, Stage
from fabric_emu.model.scheme import Scheme, Switch
from fabric_emu.model.topology import Topology
from fabric_emu.predict.forecast import forecast
from fabric_emu.predict.multipath import (
    multipath_hash,
    resilient_buckets,
    select_by_threshold,
    select_resilient,
)
from fabric_emu.predict.nexthop_group import NexthopGroup
from fabric_emu.predict.placement import Packets, Placement
from fabric_emu.predict.spread import spread
from fabric_emu.results.describe import nexthop_groups, rates

RATES = ("10mbit", "10mbit", "20mbit", "40mbit")
UNEQUAL = Topology(spines=4, link_rate="40mbit", spine_rates=RATES)
WEIGHTED = {"weights": "rates"}
SCENARIO = """
title: unequal
topology:
  {leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 40mbit,
  spine_rates: [10mbit, 10mbit, 20mbit, 40mbit]}
workload: {pattern: pairs, flows_per_host: 4, load: 0.9, payload: 1024, duration: 1s}
"""


def topology(**changes):
    return Topology(**UNEQUAL.model_dump() | changes)


@pytest.mark.parametrize(
    ("rates_bps", "weights"),
    [
        ([10**7, 10**7, 2 * 10**7, 4 * 10**7], (1, 1, 2, 4)),
        ([4 * 10**11, 10**11, 2 * 10**11], (4, 1, 2)),
        ([7 * 10**6] * 3, (1, 1, 1)),
        ([256, 1], (256, 1)),
        # 300 : 200 : 1 have no common factor: 256, 256 * 2 / 3, and one at least.
        ([300, 200, 1], (256, 171, 1)),
    ],
)
def test_weights_are_the_smallest_numbers_in_the_rates_proportion(rates_bps, weights):
    assert NexthopGroups(weights="rates").weights_of(rates_bps) == weights
    assert NexthopGroups().weights_of(rates_bps) == (1,) * len(weights)


def test_links_to_each_spine_have_its_rate_in_every_plane_and_parallel_one():
    fabric = topology(links_per_pair=2, planes=2, host_rate="80mbit")
    expected = [10**7, 10**7, 2 * 10**7, 4 * 10**7]
    assert fabric.rates_to_spines == tuple(expected)
    for link in fabric.links:
        spine = link.upper.name.startswith("spine")
        assert link.rate_bps == (expected[link.upper.number - 1] if spine else 8 * 10**7)
    rates_bps = np.repeat([link.rate_bps for link in fabric.links], 2)
    assert Numbering(fabric).rates_bps().tolist() == rates_bps.tolist()
    assert fabric.leaf_capacity_bps == 16 * 10**7
    assert fabric.oversubscription == 1.0


def test_the_ideal_uses_all_uplinks_at_their_rates():
    ideal = IdealFabric(UNEQUAL, Framing(1024, 60))
    assert ideal.byte_s[Stage.LEAF_UP] == 8 / 40e6  # one link: the fastest
    assert ideal.shared_byte_s[Stage.LEAF_UP] == pytest.approx(8 / 80e6)


@pytest.mark.parametrize("links_per_pair", [1, 3])
@pytest.mark.parametrize("resilient", [None, {"buckets": 100}])
def test_packets_take_the_uplink_that_the_group_picks(resilient, links_per_pair):
    ecmp = WEIGHTED | {"resilient": resilient}
    fabric = topology(ecmp=ecmp, links_per_pair=links_per_pair)
    placement = Placement.of(fabric, Switch(), 3)
    n = 4000
    ports = np.arange(0xC000, 0xC000 + n).astype(np.uint16)
    packets = Packets(4, 0, np.zeros(n, np.int64), np.full(n, 2), ports)
    choices = placement.choices(packets)

    def by_group(switch, weights):
        hashes = multipath_hash(placement.tuples(packets), int(placement._seeds[0, switch]))
        if resilient is None:
            return select_by_threshold(hashes, weights)
        return select_resilient(hashes, resilient_buckets(weights, 100))

    weights = np.repeat([1, 1, 2, 4], links_per_pair).tolist()
    assert choices[:, 0].tolist() == by_group(0, weights).tolist()
    if links_per_pair > 1:
        last = 2 + choices[:, 0] // links_per_pair
        for spine in range(4):
            down = by_group(2 + spine, [1] * links_per_pair)
            assert (choices[:, 3] == down)[last == 2 + spine].all()
    share = np.bincount(choices[:, 0], minlength=len(weights)) / n
    expected = NexthopGroup.of_leaf(fabric).shares()
    # Buckets are whole: a hundredth is the most that a share is off its weight's.
    assert expected == pytest.approx(np.array(weights) / sum(weights), abs=0.01)
    # Five standard deviations of a count among 4,000 hashes: 5 sqrt(1/4 / 4000) at most.
    assert share == pytest.approx(expected, abs=0.04)


def test_weighted_shares_are_forecast_and_level_the_loads():
    equal, weighted = (
        parse_scenario(SCENARIO, "made-up.yaml", [f"topology.ecmp.weights={weights}"])
        for weights in ("equal", "rates")
    )
    random = Scheme.named("mrc-random")
    one, other = (forecast(scenario, random, 1).summary for scenario in (equal, weighted))
    shares = [[link["share"] for link in run["uplinks"]["leaf1"]] for run in (one, other)]
    # A forecast of random entropy takes every one of 16,384 source ports once: five deviations.
    assert shares[0] == pytest.approx([1 / 4] * 4, abs=0.02)
    assert shares[1] == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2], abs=0.02)
    # 72 Mbit/s: a quarter is 1.8 of a slow uplink; by weight every uplink has nine tenths.
    assert one["worst_uplink_load"] == pytest.approx(1.8, abs=0.16)
    assert other["worst_uplink_load"] == pytest.approx(0.9, abs=0.16)
    # Over many seeds too, also with queue pairs placed in parts.
    assert spread(weighted, random, [1, 2]).leaf_mean[:, 0] == pytest.approx(0.9, abs=0.05)
    hashed = Scheme.named("ecmp-4qp")
    whole, parts = (spread(weighted, hashed, [5], at_once) for at_once in (1 << 19, 8))
    assert parts.leaf_worst == pytest.approx(whole.leaf_worst)
    assert whole.worst[0] == pytest.approx(
        forecast(weighted, hashed, 5).summary["worst_uplink_load"]
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spine_rates": ("10mbit",)}, "spine_rates: one rate for each of the 4 spines"),
        (
            {"tiers": 3, "super_spines": 4, "pods": 2},
            "spine_rates: left out, but with tiers: 2",
        ),
        (
            {"ecmp": {"resilient": {"buckets": 3}}},
            "resilient.buckets of 4 or more, one for each next hop, not 3",
        ),
        ({"ecmp": {"resilient": {"idle_timer": "1ms"}}}, "idle_timer"),
        ({"ecmp": {"weights": "speed"}}, "'equal' or 'rates'"),
    ],
)
def test_mistakes_are_named(changes, expected):
    with pytest.raises(ValidationError, match=expected):
        topology(**changes)


@pytest.mark.parametrize("ecmp", ["{weights: rates}", "{resilient: true}"])
@pytest.mark.parametrize("of", ["control_plane=bgp", "schemes.0.switch.control_plane=bgp"])
def test_bgp_makes_its_own_groups(ecmp, of):
    text = SCENARIO + "schemes: [{name: mine, switch: {}}]\n"
    with pytest.raises(InvalidScenario, match=r"topology\.ecmp: .* left out with control_plane"):
        parse_scenario(text, "made-up.yaml", [f"topology.ecmp={ecmp}", of])
    parse_scenario(text, "made-up.yaml", [of])


def test_groups_are_told_in_words():
    fabric = topology(ecmp=WEIGHTED | {"resilient": True})
    assert fabric.ecmp.resilient == Resilient(buckets=128)
    assert nexthop_groups(fabric) == (
        "resilient, 128 buckets, weights 1, 1, 2, 4: 12.5 %, 12.5 %, 25.0 %, 50.0 % of the flows"
    )
    assert "10 Mbit/s, 10 Mbit/s, 20 Mbit/s, 40 Mbit/s to spine1" in rates(fabric)
