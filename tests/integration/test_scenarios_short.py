"""Every scenario shipped, for a moment: it runs, no packet is lost count of, its figures exist.

Whether the expectations hold is for the full form (scripts/scenarios): a moment is too short.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import load_scenario
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import LIVE_NODES

pytestmark = pytest.mark.root

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
# Run, shorter than in full, by tests of their own; or alike but for a number.
ELSEWHERE = {
    *("dlb-flowlets", "dlb-greedy", "glb", "holbrook", "switch-spray", "switch-spray-rc"),
    *("bgp-clos", "training-with-failure"),
    *("small-packets-1k-ipv4", "small-packets-1k-ipv6", "small-packets-256-ipv6"),
    "small-packets-4k-ipv4",
}
MOMENT = {True: ["workload.size=16KB", "workload.duration=1s"], False: ["workload.duration=100ms"]}


@pytest.mark.parametrize(
    "path", [path for path in SCENARIOS if path.stem not in ELSEWHERE], ids=lambda path: path.stem
)
def test_a_scenario_runs_and_has_the_figures_it_speaks_of(path: Path) -> None:
    scenario = load_scenario(path)
    if scenario.topology.total_hosts > LIVE_NODES:
        pytest.skip("for predict")
    messages = isinstance(scenario.workload, Messages)
    scenario = load_scenario(path, MOMENT[messages])
    # The scheme that is told apart from what it is compared with: the last one spoken of.
    spoken_of = [s for s in scenario.schemes if s.name in scenario.expect]
    scheme = (spoken_of or list(scenario.schemes))[-1]
    summary = run_scheme(scenario, scheme, scenario.seed).summary

    packets = summary["packets"]
    gone = packets["delivered"] + sum(packets["dropped"].values())
    assert packets["sent"] == gone + packets["trimmed"] + packets["queued"] > 0
    assert summary["paths"]["agree"]
    for figure in scenario.expect.get(scheme.name, {}):
        if figure.startswith(("packets.dropped.", "loss_noticed.")):
            continue  # there only when something was lost
        value = summary
        for key in figure.split("."):
            value = value[key]
        assert isinstance(value, int | float), figure
