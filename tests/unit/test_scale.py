"""Large fabrics: distributions over leaves, several processes, figures for JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.model.load import load_scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.model.workload import MAX_FLOWS, OpenLoop
from fabric_emu.predict.distribution import fit, law_of
from fabric_emu.predict.scale import is_large, spreads, summarise_spread
from fabric_emu.predict.spread import spread

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ZONE = load_scenario(SCENARIOS / "zone-4000.yaml")
PERMUTATION = load_scenario(SCENARIOS / "zone-4000.yaml", ["workload.pattern=permutation"])


def test_shipped_zones_are_large_and_the_headline_scenario_is_not():
    assert ZONE.topology.total_hosts == 4000
    assert ZONE.topology.oversubscription == 1
    largest = load_scenario(SCENARIOS / "zone-131072.yaml")
    assert largest.topology.total_hosts == 131_072
    assert is_large(ZONE.topology)
    assert not is_large(load_scenario(SCENARIOS / "holbrook.yaml").topology)


@pytest.mark.parametrize("queue_pairs", [1, 4, 16])
def test_leaves_of_a_zone_follow_the_law(queue_pairs):
    scheme = Scheme.named(f"ecmp-{queue_pairs}qp")
    seen = spread(PERMUTATION, scheme, range(1, 5))
    law, _ = law_of(PERMUTATION, scheme, seen)
    assert law is not None
    assert (law.streams, law.links, law.leaves) == (32 * queue_pairs, 32, 125)
    checked = fit(law, seen)
    assert checked.samples == 4 * 125
    assert checked.consistent
    # Every leaf sends all its hosts do, 0.9 of what its uplinks carry.
    assert np.allclose(seen.leaf_mean, 0.9)


def test_more_queue_pairs_help_and_spraying_cures():
    schemes = [Scheme.named(name) for name in ("ecmp", "ecmp-4qp", "ecmp-16qp", "mrc")]
    seen = spreads(ZONE, schemes, range(1, 4))
    worst = [seen[scheme.name].worst.mean() for scheme in schemes]
    assert worst == sorted(worst, reverse=True)
    assert worst[0] > 4
    assert worst[-1] == pytest.approx(0.9)


def test_random_spraying_deviates_as_packets_at_random_do():
    # 32 hosts at 360 Gbit/s for a millisecond: 32 x 45 MB in frames of 4170 bytes, 345,000
    # packets on 32 uplinks, each with a deviation of 1 % of its mean.
    scheme = Scheme.named("mrc-random")
    imbalance = spread(PERMUTATION, scheme, [1]).leaf_imbalance
    assert 1.01 < imbalance.mean() < 1.03
    longer = PERMUTATION.model_copy(
        update={"workload": PERMUTATION.workload.model_copy(update={"duration": 0.1})}
    )
    # A hundred times as many packets: a tenth of the deviation.
    excess = spread(longer, scheme, [1]).leaf_imbalance.mean() - 1
    assert excess == pytest.approx((imbalance.mean() - 1) / 10, rel=0.2)


def test_several_processes_find_what_one_finds():
    schemes = [Scheme.named("ecmp"), Scheme.named("mrc-random")]
    told: list[float] = []
    alone = spreads(ZONE, schemes, range(1, 4), processes=1)
    together = spreads(ZONE, schemes, range(1, 4), processes=2, told=told.append)
    for scheme in schemes:
        one, two = alone[scheme.name], together[scheme.name]
        assert (one.seeds == two.seeds).all()
        assert (one.leaf_worst == two.leaf_worst).all()
    assert told[-1] == 1.0


def test_planes_are_fabrics_of_their_own():
    changes = ["topology.planes=4", "workload.flows_per_host=4", "workload.pattern=permutation"]
    planes = load_scenario(SCENARIOS / "zone-4000.yaml", changes)
    seen = spread(planes, Scheme.named("ecmp"), [1])
    assert seen.leaf_worst.shape == (1, 4 * 125)
    assert (seen.leaf_streams == 32).all()
    # Seeds differ from plane to plane, and so do loads.
    by_plane = seen.leaf_worst.reshape(4, 125)
    assert all((by_plane[0] != by_plane[k]).any() for k in (1, 2, 3))


def test_a_ring_in_order_leaves_a_leaf_once_and_all_to_all_always():
    topology = Topology(leaves=3, spines=2, hosts_per_leaf=4)
    ring = OpenLoop(pattern="ring").table(topology, 1)
    assert (ring.destination == (ring.source + 1) % 12).all()
    assert (ring.source // 4 != ring.destination // 4).sum() == 3
    every = OpenLoop(pattern="all-to-all", load=1.1).table(topology, 1)
    assert len(every) == 12 * 11
    assert (every.source != every.destination).all()
    assert len({*zip(every.source.tolist(), every.destination.tolist(), strict=True)}) == 12 * 11
    assert np.bincount(every.source, every.rate_bps) == pytest.approx([1.1 * 1e8] * 12)
    some = OpenLoop(pattern="all-to-all", peers=5, flows_per_host=2).table(topology, 1)
    assert np.bincount(some.source).tolist() == np.bincount(some.destination).tolist() == [10] * 12
    other = OpenLoop(pattern="all-to-all", peers=5, flows_per_host=2).table(topology, 2)
    assert (some.destination != other.destination).any()


@pytest.mark.parametrize(
    ("workload", "path"),
    [
        (OpenLoop(pattern="all-to-all", peers=4000), "workload.peers"),
        (OpenLoop(pattern="all-to-all", flows_per_host=2), "workload.flows_per_host"),
        (OpenLoop(pattern="ring", shift=8000), "workload.shift"),
    ],
)
def test_workloads_that_do_not_fit_a_zone_are_refused_by_name(workload, path):
    assert 4000 * 3999 <= MAX_FLOWS < 2 * 4000 * 3999
    with pytest.raises(ScenarioError, match=path):
        workload.check(ZONE.topology)


def test_figures_of_a_spread_are_ready_for_json():
    for name in ("ecmp", "mrc"):
        scheme = Scheme.named(name)
        found = summarise_spread(ZONE, scheme, spread(ZONE, scheme, [7, 8]))
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        load = found["worst_uplink_load"]
        assert load["min"] <= load["p50"] <= load["p99"] <= load["max"]
        assert found["law"]["applies"] == (name == "ecmp")
    # Where ranks are anywhere, leaves send different numbers of flows: no law of the worst leaf.
    scheme = Scheme.named("ecmp")
    found = summarise_spread(ZONE, scheme, spread(ZONE, scheme, [7, 8]))
    assert found["law"]["fabric_imbalance"] is None
    assert found["law"]["streams"] in (31, 32)


def test_a_fabric_without_uplinks_has_no_load_on_them():
    chassis = load_scenario(
        SCENARIOS / "holbrook.yaml",
        ["topology.tiers=1", "topology.leaves=1", "topology.spines=0"],
    )
    found = summarise_spread(
        chassis, Scheme.named("ecmp"), spread(chassis, Scheme.named("ecmp"), [1, 2])
    )
    assert found["worst_uplink_load"]["max"] == 0
    assert found["leaf_imbalance"] is None
