"""What switches that balance are said to do, shown with the scenarios shipped, made shorter.

Every bound holds however busy the machine is: it is about packets and where they went.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import load_scenario

pytestmark = pytest.mark.root

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SHORT = "workload.duration=2s"


def run(name: str, *schemes: str, change: str = SHORT) -> list[dict[str, Any]]:
    """Run schemes of a shipped scenario; return their summaries in order."""
    scenario = load_scenario(SCENARIOS / f"{name}.yaml", [change])
    by_name = {scheme.name: scheme for scheme in scenario.schemes}
    found = [run_scheme(scenario, by_name[scheme], scenario.seed).summary for scheme in schemes]
    for summary in found:
        packets = summary["packets"]
        gone = packets["delivered"] + sum(packets["dropped"].values())
        assert packets["sent"] == gone + packets["queued"] > 0
        assert summary["paths"]["agree"]
    return found


def leaf_imbalance(summary: dict[str, Any]) -> float:
    """Return the largest load of leaf 1's uplinks over the mean."""
    return float(summary["imbalance"]["leaf1"]["max_over_mean"])


def chance(summary: dict[str, Any]) -> float:
    """Return how uneven packets are that choose uplinks at random, six standard deviations.

    A share of p = 1/m of n packets has sqrt(n p (1 - p)), over a mean of n p.
    """
    uplinks = len(summary["uplinks"]["leaf1"])
    return 1 + 6 * ((uplinks - 1) / summary["packets"]["sent"]) ** 0.5


def test_flowlet_gap_trades_balance_against_order() -> None:
    hashed, forever, between, none = run(
        "dlb-flowlets", "ecmp", "gap-5120ms", "gap-24ms", "gap-1us", change="workload.duration=4s"
    )
    sent = none["packets"]["sent"]
    # 81 flows, one placement each; every packet; and the packets of those that pause 44 ms.
    assert forever["switch"]["flowlets"] <= 81
    assert forever["switch"]["reassignments"] == 0
    assert none["switch"]["flowlets"] == sent
    assert 81 < between["switch"]["flowlets"] < sent

    # By hashing 0.5 % of all cases have no more than 10 of 80 flows of 0.0375 beside one of 0.6.
    assert hashed["worst_uplink_load"] > 1
    # A flow or more off even, 0.0375 of 0.9, but for 1 % at most.
    assert leaf_imbalance(forever) > 1.04
    # An uplink with a full queue is left to the flow that does not pause, of 0.6.
    assert between["worst_uplink_load"] < 1.02
    # At worst at random.
    assert leaf_imbalance(none) < chance(none)

    assert hashed["reordering"]["reordered"] == forever["reordering"]["reordered"] == 0
    # In four seconds 20 or so with no gap; with one longer than any queue none, were it not for
    # ports that a busy machine serves late.
    assert between["reordering"]["reordered"] < none["reordering"]["reordered"]


def test_a_greedy_leaf_is_even_and_overloads_a_slow_link_beyond() -> None:
    (summary,) = run("dlb-greedy", "dlb")
    assert leaf_imbalance(summary) < chance(summary)
    assert summary["worst_downlink"] == "leaf2-spine1"
    # 0.7 of a link on half of one, as uneven as chance makes it.
    load, unevenness = summary["worst_downlink_load"], chance(summary) - 1
    assert load == pytest.approx(1.4, rel=unevenness)
    slow = summary["downlinks"]["leaf2"][0]
    assert slow["room"] == pytest.approx(0.5)
    # What it was asked for over what it carried was lost: less its queue of 10 ms of 2 s, and more
    # when packets bunch up.
    assert summary["packets"]["dropped"].keys() == {"queue_limit"}
    assert slow["carried"] < 0.52


def test_adverts_bring_the_slow_link_halfway_back_to_even() -> None:
    greedy, told = run("glb", "dlb", "glb")
    # 2.8 links' worth on the 3.5 that there are.
    even = 2.8 / 3.5
    assert told["worst_downlink_load"] <= (greedy["worst_downlink_load"] + even) / 2
    assert told["efficiency"] > greedy["efficiency"]
    # The leaf is uneven so that the whole is not: the slow link's uplink has less than its share.
    loads = [uplink["offered"] for uplink in told["uplinks"]["leaf1"]]
    assert loads[0] < min(loads[1:])
    spread = [run["downlink_imbalance"]["leaf2"]["max_over_mean"] for run in (greedy, told)]
    assert spread[1] < spread[0]
    # Ethernet, IP, UDP, 8 bytes, and the quality of two leaves.
    switch = told["switch"]
    assert switch["adverts_bytes"] == switch["adverts_sent"] * 52 > 0
    assert switch["adverts_received"] == switch["adverts_sent"]


def test_spraying_switches_load_uplinks_alike() -> None:
    drawn, in_turn = run("switch-spray", "switch-spray", "switch-spray-rr")
    assert leaf_imbalance(drawn) < chance(drawn)
    assert drawn["reordering"]["reordered"] > 0
    # One packet of 1,079 on each of eight uplinks.
    assert in_turn["imbalance"]["leaf1"]["range_over_mean"] < 0.01


def test_sprayed_packets_ruin_rc_and_not_mrc() -> None:
    rc, mrc = run("switch-spray-rc", "switch-spray", "switch-spray-mrc", change="workload.size=1MB")
    for summary in (rc, mrc):
        assert summary["completion"]["unfinished"] == summary["queue_pairs_failed"] == 0
        assert summary["reordering"]["reordered"] > 0
    assert rc["packets"]["dropped"] == {}
    # Each overtaking costs two packets at least, and one in twenty is overtaken or more.
    assert rc["nak"] > 0
    assert rc["retransmitted"] > rc["nak"]
    assert rc["efficiency"] < 0.9
    # What was dropped, where chance filled a queue of eight, or was late by two round trips.
    assert mrc["nak"] == 0
    assert mrc["efficiency"] > rc["efficiency"]
    assert mrc["retransmitted"] <= 0.1 * rc["retransmitted"]
