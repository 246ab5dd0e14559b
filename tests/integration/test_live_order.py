"""What NICs count of the packets' order during a run, against the run's own figures."""

import os
from contextlib import closing

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.nic.order import OrderCounts

pytestmark = pytest.mark.root

OPEN_LOOP = """
title: sprayed flows
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 20mbit}
workload: {pattern: pairs, load: 0.9, payload: 1024, duration: 600ms}
schemes: [switch-spray]
"""
MESSAGES = """
title: sprayed messages
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 20mbit}
workload: {kind: messages, collective: permutation, size: 512kB, payload: 1024, duration: 10s}
schemes: [mrc]
"""


@pytest.mark.parametrize("text", [OPEN_LOOP, MESSAGES], ids=["open loop", "messages"])
def test_order_shows_during_a_run_and_ends_as_the_run_says(text):
    scenario = parse_scenario(text, "made-up.yaml", ())
    seen = []
    with closing(OrderCounts(len(os.sched_getaffinity(0)))) as counts:
        result = run_scheme(
            scenario,
            scenario.schemes[0],
            1,
            observer=lambda elapsed_s, ports: seen.append(counts.totals()),
            order=counts,
        )
        received, late = counts.totals()
    figures = result.summary["reordering"]
    assert figures["reordered"] > 0
    # Not only at the end: the last look is when the queues have drained.
    assert any(0 < so_far < received for so_far, _ in seen[:-1])
    # Further copies count here and not there.
    assert received == figures["received"] + figures["duplicates"]
    assert figures["reordered"] <= late <= figures["reordered"] + figures["duplicates"]
