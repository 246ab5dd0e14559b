"""Weighted and resilient nexthop groups of a live fabric against what is predicted for them."""

import json
import subprocess

import numpy as np
import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.net.fabric import Fabric
from fabric_emu.predict.forecast import forecast
from fabric_emu.predict.multipath import rebalance_resilient, resilient_buckets

pytestmark = pytest.mark.root

WEIGHTS = [1, 1, 2, 4]
UNEQUAL = """
title: unequal links
topology:
  leaves: 2
  spines: 4
  hosts_per_leaf: 2
  link_rate: 40mbit
  spine_rates: [10mbit, 10mbit, 20mbit, 40mbit]
  ecmp: {weights: rates}
workload:
  {pattern: pairs, flows_per_host: 4, load: 0.5, payload: 1024, message_size: 1024, duration: 500ms}
"""
RESILIENT = ["topology.ecmp.resilient={buckets: 64, idle_timer: 60s}"]


@pytest.mark.parametrize("changes", [["topology.ip=4"], [*RESILIENT, "topology.ip=6"]])
def test_shares_and_paths_are_as_predicted(changes):
    scenario, scheme = parse_scenario(UNEQUAL, "made-up.yaml", changes), Scheme.named("ecmp-2qp")
    measured, predicted = run_scheme(scenario, scheme, 1), forecast(scenario, scheme, 1)
    prediction = measured.summary["prediction"]
    if not prediction["offered"]:
        pytest.skip(prediction["reason"])
    assert prediction["matched"] == prediction["checked"] == 16
    assert measured.flows["predicted_path"] == predicted.flows["predicted_path"]
    shares = [
        [link["share"] for link in summary["uplinks"]["leaf1"]]
        for summary in (measured.summary, predicted.summary)
    ]
    # 20 Mbit/s of each host, in frames of at most 1,124 bytes for half a second over 8 queue pairs:
    # 139 packets each, of which each sends one more or less, and its first up to one later.
    assert shares[0] == pytest.approx(shares[1], rel=4 / 137)


def test_shares_of_random_entropy_follow_the_weights():
    scenario = parse_scenario(UNEQUAL, "made-up.yaml", RESILIENT)
    measured = run_scheme(scenario, Scheme.named("mrc-random"), 1)
    shares = [link["share"] for link in measured.summary["uplinks"]["leaf1"]]
    packets = sum(measured.flows["sent"])
    expected = np.array(WEIGHTS) / sum(WEIGHTS)
    # Each packet draws its bucket: six standard deviations of a binomial share.
    slack = 6 * np.sqrt(expected * (1 - expected) / packets)
    assert packets > 2000
    assert (np.abs(shares - expected) < slack).all(), (shares, slack)


def test_a_resilient_group_loses_and_regains_a_member():
    topology = parse_scenario(UNEQUAL, "made-up.yaml", RESILIENT).topology
    with Fabric(topology, shaped=False) as fabric:
        uplinks = topology.uplinks["leaf1"]
        place = {4 * 10_000_000 + link.up_port: i for i, link in enumerate(uplinks)}

        def table():
            command = ["ip", "-n", fabric.namespace("leaf1"), "-json", "nexthop", "bucket", "show"]
            entries = json.loads(subprocess.check_output(command))
            return np.array([place[entry["bucket"]["nhid"]] for entry in entries])

        made = table()
        assert made.tolist() == resilient_buckets(WEIGHTS, 64).tolist()
        usable, idle = [True, True, True, False], np.ones(64, bool)  # no packet came
        lost = rebalance_resilient(made, WEIGHTS, usable, idle=idle)
        with fabric.link("leaf1", "spine4").down():
            assert table().tolist() == lost.tolist()
        # A member that comes back gets its share of buckets that nothing uses.
        assert np.bincount(table()).tolist() == [8, 8, 16, 32]
