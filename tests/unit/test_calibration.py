"""Calibration without a fabric: the search, slowing down, the control run, what is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.calibration import trials
from fabric_emu.calibration.cache import Calibration, cache_file, keep, key_of, load
from fabric_emu.calibration.control import base_delay_s, control_links, control_scenario
from fabric_emu.calibration.search import MARGIN, RESOLUTION, best_of_three, highest
from fabric_emu.calibration.slower import RATE_MIN_BPS, slowed, slowest_factor
from fabric_emu.errors import FabricError
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme

TEXT = """
title: two leaves
topology:
  {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 80mbit, host_rate: 40mbit, rate: auto}
workload: {pattern: flows, flows: [{source: h1, destination: h3, rate: 20mbit}], duration: 3s}
faults: [{at: 1s, for: 1s, link: leaf1-spine1, action: slow, rate: 10mbit}]
"""
FOUND = Calibration(0.5, 40_000_000, 80e-6, 40e-6)


def scenario_of(*overrides: str) -> Scenario:
    return parse_scenario(TEXT, "text", overrides)


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("limit", [1.0, 0.9, 0.37, 0.011])
def test_the_search_finds_the_highest_factor_within_its_resolution(limit: float) -> None:
    tried: list[float] = []

    def carries(factor: float) -> bool:
        tried.append(factor)
        return factor <= limit

    found = highest(carries, 0.01)
    assert found is not None
    assert limit / RESOLUTION <= found <= limit
    # log2 of (ln 100 / ln RESOLUTION) = 4.7 halvings, the first trial and the lowest.
    assert len(tried) <= 7


def test_nothing_is_found_where_nothing_is_carried() -> None:
    assert highest(lambda factor: False, 0.01) is None
    assert highest(lambda factor: False, 1.0) is None
    assert highest(lambda factor: factor <= 0.01, 0.01) == 0.01


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([True], True),
        ([False, True, True], True),
        ([False, True, False], False),
        ([False] * 2, False),
    ],
)
def test_a_doubt_is_settled_by_the_best_of_three(outcomes: list[bool], said: bool) -> None:
    trials = iter(outcomes)
    assert best_of_three(lambda: next(trials)) is said
    assert next(trials, None) is None


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.99, 1.1, 1.26, 40.0])
def test_a_share_of_what_is_carried_is_left_free(
    limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that carries links up to a limit, of what is asked."""
    asked = scenario_of("topology.rate=auto")
    tried: list[float] = []

    def run(scenario: Scenario, scheme: Scheme) -> dict[str, Any]:
        share = scenario.topology.link_rate / asked.topology.link_rate
        tried.append(share)
        verdict = {"trustworthy": share <= limit, "reasons": ["slow"] * (share > limit)}
        return {"verdict": verdict, "reordering": {"reordered": 0}, "delay": {"min": 1e-4}}

    monkeypatch.setattr(trials, "_run", run)
    found = trials.calibrate_scenario(asked)
    most = min(1.0, MARGIN * limit)
    assert most / RESOLUTION * (1 - 1e-6) <= found.factor <= most
    assert max(tried) == pytest.approx(1 / MARGIN)
    assert (found.factor == 1) is (limit > 1 / MARGIN)


def test_slowing_down_lowers_every_rate_alike_and_keeps_the_loads() -> None:
    asked = scenario_of()
    assert len(asked.topology.links) == 8  # derived before, as in a run
    slow = slowed(asked, 0.25)
    assert (slow.topology.link_rate, slow.topology.host_rate_bps) == (20_000_000, 10_000_000)
    assert {link.rate_bps for link in slow.topology.links} == {20_000_000, 10_000_000}
    assert slow.faults[0].rate == 2_500_000
    assert slow.workload.table(slow.topology, 1).rate_bps.tolist() == [5_000_000]
    assert slow.topology.rate == "exact"
    assert slowed(asked, 1.0) == scenario_of("topology.rate=exact")


def test_no_link_gets_slower_than_the_least_rate() -> None:
    slow = slowed(scenario_of(), slowest_factor(scenario_of()))
    assert slow.topology.host_rate_bps == RATE_MIN_BPS
    assert slowest_factor(scenario_of("topology.host_rate=1kbit")) == 1


@pytest.mark.parametrize(
    ("shape", "links"),
    [
        ("{tiers: 1, leaves: 1, spines: 0, hosts_per_leaf: 5}", 2),
        ("{leaves: 5, spines: 2, hosts_per_leaf: 3, planes: 2}", 4),
        ("{tiers: 3, pods: 4, leaves: 2, spines: 2, super_spines: 4, hosts_per_leaf: 2}", 6),
    ],
)
def test_flows_of_the_control_run_can_share_no_link(shape: str, links: int) -> None:
    overrides = [f"topology={shape}", "workload={pattern: ring}", "faults=[]"]
    control = control_scenario(scenario_of(*overrides), 1.0)
    topology = control.topology
    table = control.workload.table(topology, 1)
    hosts = [*table.source, *table.destination]
    # By leaf, and by pod where there are several, each one has one flow of a plane at most.
    group = {2: 1, 4: topology.hosts_per_leaf, 6: topology.leaves * topology.hosts_per_leaf}[links]
    used = [(host // group, plane) for host, plane in zip(hosts, [*table.plane] * 2, strict=True)]
    assert len(used) == len(set(used)) >= 4
    assert control_links(topology) == links
    assert base_delay_s(topology, 120e-6) == pytest.approx(240e-6 / links)
    # Over the slowest link a packet takes half of the time to the next one.
    assert max(table.rate_bps) <= topology.link_rate / 2


def test_what_is_kept_is_found_again(cache_home: Path) -> None:
    key = key_of(scenario_of())
    assert load(key) is None
    keep(key, FOUND)
    assert load(key) == FOUND
    assert [file.parent.parent for file in (cache_file(key),)] == [cache_home]


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("title=other", True),
        ("seed=7", True),
        ("workload.duration=1s", True),
        ("topology.rate=exact", True),
        ("topology.link_rate=90mbit", False),
        ("workload.payload=1024", False),
        ("schemes=[mrc]", False),
    ],
)
def test_a_calibration_holds_for_what_loads_the_machine(override: str, same: bool) -> None:
    assert (key_of(scenario_of(override)) == key_of(scenario_of())) is same


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 4000, '{"factor": 0.5}']
    + [
        f'{{"factor": {factor}, "link_rate_bps": {rate}, "delay_floor_s": 1e-4, '
        f'"base_delay_s": {base}}}'
        for factor, rate, base in [
            (2, 1, 0), (0, 1, 0), ("NaN", 1, 0), (1, "Infinity", 0), (1, 1, 1), (1, 1, -1),
        ]
    ],
)  # fmt: skip
def test_a_broken_file_is_as_none(text: str) -> None:
    file = cache_file("broken")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert load("broken") is None


def test_no_link_is_followed(tmp_path: Path) -> None:
    file, victim = cache_file("linked"), tmp_path / "victim"
    keep("good", FOUND)
    os.replace(cache_file("good"), victim)
    file.symlink_to(victim)
    assert load("linked") is None
    before = victim.read_bytes()
    with pytest.raises(FabricError, match="is a link to"):
        keep("linked", FOUND)
    assert victim.read_bytes() == before
