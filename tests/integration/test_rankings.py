"""A permutation under ECMP takes as many times its ideal as there are flows on the fullest link."""

from typing import Any

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.predict.forecast import forecast

pytestmark = pytest.mark.root

HOSTS_PER_LEAF = 4
PACKETS = 100
PERMUTATION = f"""
title: host i to host i + 4
topology: {{leaves: 4, spines: 4, hosts_per_leaf: {HOSTS_PER_LEAF}, link_rate: 20mbit}}
workload:
  {{kind: messages, collective: permutation, size: {PACKETS * 4096}, duration: 20s}}
"""


def flows_on_fullest_uplink(summary: dict[str, Any]) -> int:
    """Return the flows of the fullest link from a leaf: all flows are alike."""
    shares = [link["share"] for links in summary["uplinks"].values() for link in links]
    return round(HOSTS_PER_LEAF * max(shares))


@pytest.fixture(scope="module")
def seeds():
    """Return a seed for each number of flows on the fullest uplink, found by prediction."""
    scenario = parse_scenario(PERMUTATION, "made-up.yaml")
    found: dict[int, int] = {}
    for seed in range(1, 200):
        flows = flows_on_fullest_uplink(forecast(scenario, Scheme.named("ecmp"), seed).summary)
        found.setdefault(flows, seed)
        if found.keys() >= {2, 3, 4}:
            break
    return found


@pytest.mark.parametrize("flows", [2, 3, 4])
def test_time_over_ideal_is_the_fullest_uplinks_flows(flows, seeds):
    scenario = parse_scenario(PERMUTATION, "made-up.yaml")
    result = run_scheme(scenario, Scheme.named("ecmp"), seeds[flows]).summary
    if not result["prediction"]["offered"]:
        pytest.skip(result["prediction"]["reason"])
    assert flows_on_fullest_uplink(result) == flows
    # Flows that share a link may take turns unfairly, but the last ends when all have crossed.
    # Less the shaper's burst and three frames of store and forward that the ideal counts once; more
    # for the windows' first round trip, and an answer or two that comes late.
    spare = 10 / PACKETS
    assert result["completion"]["over_ideal"] == pytest.approx(flows, abs=flows * spare)
