"""Forecasts: loads as a run has them, many seeds against the law, seeds on demand."""

import math
from pathlib import Path

import numpy as np
import pytest

from fabric_emu.model.load import load_scenario, parse_scenario
from fabric_emu.model.numbering import Numbering
from fabric_emu.model.scheme import Nic, Scheme, Switch
from fabric_emu.predict.distribution import (
    Law,
    find_seed,
    fit,
    law_of,
    max_load_cdf_by_transform,
)
from fabric_emu.predict.fluid import link_loads
from fabric_emu.predict.forecast import forecast
from fabric_emu.predict.law import max_load_cdf
from fabric_emu.predict.polarisation import polarised_paths
from fabric_emu.predict.spread import spread

SCENARIOS = Path(__file__).parents[2] / "scenarios"
HOLBROOK = load_scenario(SCENARIOS / "holbrook.yaml")
ECMP = Scheme.named("ecmp")
SMALL = """
title: small
topology: {leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 40mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.9, payload: 1024, duration: 1s}
"""
THREE_TIERS = """
title: three tiers
topology: {tiers: 3, pods: 2, leaves: 2, spines: 2, super_spines: 4, hosts_per_leaf: 2}
workload: {pattern: random, flows_per_host: 8, load: 0.9}
"""


def scenario(text=SMALL, *changes):
    return parse_scenario(text, "made-up.yaml", changes)


def uplinks(one, switch):
    return [uplink["offered"] for uplink in one.summary["uplinks"][switch]]


def test_a_leafs_uplinks_are_asked_for_what_its_hosts_send():
    one = forecast(HOLBROOK, ECMP, 7)
    loads = uplinks(one, "leaf1")
    # 8 hosts at 0.9 in 64 flows: every load is a whole number of 64ths of 7.2.
    assert sum(loads) == pytest.approx(7.2)
    assert np.allclose(np.array(loads) / 0.1125, np.rint(np.array(loads) / 0.1125))
    assert one.summary["worst_uplink_load"] == max(loads)
    assert uplinks(one, "leaf2") == [0.0] * 8
    # What is over 1 on an uplink is lost; nothing else is.
    assert one.summary["efficiency"] == pytest.approx(sum(min(x, 1) for x in loads) / 7.2)


def test_a_flow_table_tells_the_paths_that_make_the_loads():
    one = forecast(HOLBROOK, ECMP, 7)
    used = [path.split(">")[1] for path in one.flows["predicted_path"]]
    assert [used.count(f"spine{i}") * 0.1125 for i in range(1, 9)] == pytest.approx(
        uplinks(one, "leaf1")
    )
    assert len(set(one.flows["qpn"])) == 64
    assert sum(one.flows["rate_bps"]) == pytest.approx(8 * 0.9 * HOLBROOK.topology.link_rate)


def test_even_spraying_loads_all_uplinks_alike():
    one = forecast(HOLBROOK, Scheme.named("mrc"), 7)
    assert uplinks(one, "leaf1") == pytest.approx([0.9] * 8)
    assert one.summary["efficiency"] == 1
    assert one.flows["paths"] == [8] * 64


def test_random_spraying_loads_all_uplinks_nearly_alike():
    one = forecast(HOLBROOK, Scheme.named("mrc-random"), 7)
    loads = np.array(uplinks(one, "leaf1"))
    assert loads.sum() == pytest.approx(7.2)
    # All 16,384 source ports of 8 pairs of hosts on 8 uplinks: of 131,072 equal parts an uplink
    # gets an eighth, with a deviation of sqrt(7 / 131072) = 0.73 % of it; five of these.
    assert np.abs(loads / 0.9 - 1).max() < 0.037


@pytest.mark.parametrize("entropy", ["random", "even"])
def test_spraying_is_no_use_where_switches_ignore_the_source_port(entropy):
    scheme = Scheme(name="x", nic=Nic(entropy=entropy), switch=Switch(hash_policy=0))
    one = forecast(scenario(), scheme, 1)
    assert one.flows["paths"] == [1] * 8
    assert sorted(uplinks(one, "leaf1"))[:2] == [0, 0]


def test_overload_thins_streams_on_their_way():
    topology = scenario("title: x\ntopology: {leaves: 2, spines: 1, hosts_per_leaf: 2}").topology
    numbering = Numbering(topology)
    # Both hosts of leaf 1 send at the rate of a link over one uplink to one host.
    choices = np.zeros((2, 4), np.int64)
    stages = numbering.path_ports(0, np.array([0, 1]), np.array([2, 2]), choices)
    loads = link_loads(stages, np.array([1e8, 5e7]), numbering.rates_bps())
    assert loads.offered[0, stages[:, 0]].tolist() == [1.0, 0.5]
    assert loads.offered[0, stages[0, 1]] == 1.5
    assert loads.carried[0, stages[0, 1]] == 1.0
    assert loads.offered[0, stages[0, 5]] == pytest.approx(1.0)
    assert loads.delivered == pytest.approx([1 / 1.5] * 2)


def test_one_seed_everywhere_leaves_the_diagonal():
    polarisation = load_scenario(SCENARIOS / "polarisation.yaml")
    found = {
        scheme.name: forecast(polarisation, scheme, 1).summary for scheme in polarisation.schemes
    }
    assert found["ecmp"]["paths"] == {"used": 16, "possible": 16}
    for name in ("one-seed", "one-seed-sprayed"):
        assert found[name]["hash_seeds"] == "same"
        assert found[name]["paths"] == {"used": 4, "possible": 16}
        assert found[name]["worst_uplink_load"] >= 1.2
        # 4.8 links' worth on 4 uplinks.
        assert found[name]["efficiency"] == pytest.approx(4 / 4.8, abs=0.01)
        used = [
            entry["super_spine"]
            for spine in range(1, 5)
            for entry in found[name]["uplinks"][f"spine{spine}"]
            if entry["offered"] > 0
        ]
        assert used == ["super1", "super6", "super11", "super16"]


@pytest.mark.parametrize(
    ("leaf_uplinks", "spine_uplinks", "paths"),
    [(4, 4, 4), (8, 8, 8), (2, 4, 4), (3, 2, 4), (4, 6, 8)],
)
def test_paths_left_by_one_seed(leaf_uplinks, spine_uplinks, paths):
    assert polarised_paths(leaf_uplinks, spine_uplinks) == paths
    one = scenario(
        THREE_TIERS,
        f"topology.spines={leaf_uplinks}",
        f"topology.super_spines={leaf_uplinks * spine_uplinks}",
        "topology.leaves=1",
        "topology.hosts_per_leaf=1",
        "workload.pattern=pairs",
        "workload.flows_per_host=4096",
        "hash_seeds=same",
    )
    # Of 4,096 flows none meets the smallest region, 1/12 of the hash space, with P = e^-356.
    assert forecast(one, ECMP, 1).summary["paths"]["used"] == paths


@pytest.mark.parametrize("scheme", ["ecmp", "ecmp-4qp"])
@pytest.mark.parametrize("text", [SMALL, THREE_TIERS])
def test_a_spread_is_what_forecasts_of_its_seeds_say(text, scheme):
    described = scenario(text, "topology.planes=2", "topology.ip=both", "workload.load=1.8")
    scheme = Scheme.named(scheme)
    seen = spread(described, scheme, range(5, 15))
    for i, seed in enumerate(range(5, 15)):
        one = forecast(described, scheme, seed).summary
        assert seen.worst[i] == pytest.approx(one["worst_uplink_load"])
        leaves = [name for name in one["uplinks"] if name.startswith("leaf")]
        assert seen.leaf_worst[i] == pytest.approx(
            [max(u["offered"] for u in one["uplinks"][leaf]) for leaf in leaves]
        )
        sending = seen.leaf_streams[i] > 0
        expected = np.array([one["imbalance"][leaf]["max_over_mean"] for leaf in leaves])
        assert seen.leaf_imbalance[i][sending] == pytest.approx(expected[sending])


@pytest.mark.parametrize("text", [SMALL, THREE_TIERS])
def test_a_run_too_large_to_place_at_once_is_placed_alike(text):
    # Nothing is overloaded, so that what spines are asked for is the same either way.
    described = scenario(
        text, "topology.planes=2", "topology.ip=both", "workload.flows_per_host=24",
        "workload.load=0.2",
    )  # fmt: skip
    scheme = Scheme.named("ecmp-4qp")
    whole = spread(described, scheme, [3, 4])
    parts = spread(described, scheme, [3, 4], at_once=50)
    assert parts.worst == pytest.approx(whole.worst)
    assert parts.leaf_worst == pytest.approx(whole.leaf_worst)
    assert parts.leaf_mean == pytest.approx(whole.leaf_mean)
    assert (parts.leaf_streams == whole.leaf_streams).all()


def test_over_seeds_the_worst_uplink_follows_the_law():
    seen = spread(HOLBROOK, ECMP, range(1, 2001))
    law, reason = law_of(HOLBROOK, ECMP, seen)
    assert law is not None
    assert (reason, law.streams, law.links, law.leaves) == ("", 64, 8, 1)
    assert law.leaf_mean == law.fabric_mean == pytest.approx(1.5294, abs=5e-5)
    checked = fit(law, seen)
    assert checked.consistent
    # sqrt(ln 2000 / 4000)
    assert checked.allowed == pytest.approx(0.0436, abs=1e-4)
    # The fullest of 8 uplinks deviates by 1.7 flows of 8: over 2,000 seeds the mean by 0.005.
    assert checked.mean == pytest.approx(1.5294, abs=5 * 0.005)


def test_a_hash_that_is_not_even_does_not_follow_the_law():
    # Half as many uplinks as the law is told: maxima are too high.
    seen = spread(HOLBROOK, ECMP, range(1, 201))
    assert not fit(Law.of(64, 16, 1), seen).consistent


@pytest.mark.parametrize(
    ("changes", "scheme", "reason"),
    [
        ([], Scheme.named("mrc"), "sprayed"),
        ([], Scheme(name="x", switch=Switch(hash_policy=0)), "source port"),
        (["topology.tiers=1", "topology.leaves=1", "topology.spines=0"], ECMP, "no uplinks"),
        (["workload.pattern=permutation", "workload.shift=1", "topology.leaves=1"], ECMP, "leaves"),
        (
            [
                "workload.pattern=flows",
                "workload.flows=[{source: h1, destination: h3, rate: 1mbit},"
                " {source: h2, destination: h3, rate: 2mbit}]",
            ],
            ECMP,
            "rates",
        ),
    ],
)
def test_where_the_law_does_not_apply_it_says_why(changes, scheme, reason):
    described = scenario(SMALL, *changes)
    law, why = law_of(described, scheme, spread(described, scheme, [1, 2]))
    assert law is None
    assert reason in why


@pytest.mark.parametrize(("flows", "links"), [(1, 4), (8, 8), (64, 8), (1000, 16), (5000, 64)])
def test_the_law_by_transform_is_the_exact_one(flows, links):
    assert np.allclose(
        max_load_cdf_by_transform(flows, links), max_load_cdf(flows, links), rtol=0, atol=1e-12
    )


def test_a_seed_is_found_for_a_wanted_load():
    found = find_seed(HOLBROOK, ECMP, 1.40)
    # Loads are multiples of 11.25 %: 135 % is nearer than 146.25 %.
    assert found.worst == pytest.approx(1.35)
    assert found.off == pytest.approx(-0.05)
    assert found.searched == 1000
    assert forecast(HOLBROOK, ECMP, found.seed).summary["worst_uplink_load"] == pytest.approx(1.35)
    first = spread(HOLBROOK, ECMP, range(1, found.seed + 1)).worst
    assert not any(math.isclose(load, 1.35) for load in first[:-1])
    assert find_seed(HOLBROOK, ECMP, 1.40) == found
    assert find_seed(HOLBROOK, ECMP, 1.80).worst == pytest.approx(1.80)


def test_rare_loads_take_more_seeds():
    few = find_seed(HOLBROOK, ECMP, 0.9, range(1, 11))
    many = find_seed(HOLBROOK, ECMP, 0.9, range(1, 3001))
    assert many.off < few.off
