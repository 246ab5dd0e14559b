"""A training job over a link that goes dark: a connection on it stalls, spraying goes on."""

from pathlib import Path

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import load_scenario

pytestmark = pytest.mark.root

SCENARIO = Path(__file__).parents[2] / "scenarios" / "training-with-failure.yaml"
# Iterations of 0.41 s, the third of which is hit. A quarter of the scenario in length.
SHORT = ["workload.iterations=4", "workload.duration=4s", "workload.timeout=1500ms"]


def test_what_a_dark_link_costs():
    scenario = load_scenario(SCENARIO, [*SHORT, "faults.0.at=1s"])
    schemes = {scheme.name: scheme for scheme in scenario.schemes}
    static, mrc = (
        run_scheme(scenario, schemes[name], scenario.seed).summary for name in ("rc-static", "mrc")
    )

    for summary in (static, mrc):
        packets = summary["packets"]
        gone = packets["delivered"] + sum(packets["dropped"].values()) + packets["trimmed"]
        assert packets["sent"] == gone + packets["queued"]
        assert summary["recovery"]["lost"] > 0

    lost = static["training"]
    assert static["recovery"]["all_running"] is None
    assert lost["rolled_back"]
    assert lost["stalled"] == 1.5  # the timeout
    assert lost["stalled_in"] == 4 - lost["unfinished"] > 0
    assert lost["redone"] == pytest.approx(lost["stalled_in"] * lost["before"])
    assert lost["gpu_time_lost"] == pytest.approx(4096 * (1.5 + lost["redone"]))

    kept = mrc["training"]
    assert mrc["completion"]["unfinished"] == mrc["queue_pairs_failed"] == 0
    assert not kept["rolled_back"]
    assert kept["gpu_time_lost"] < lost["gpu_time_lost"]
