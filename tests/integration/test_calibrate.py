"""``rate: auto`` for real: a run that calibrates first, and what it keeps and uses of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fabric_emu.calibration.cache import load
from fabric_emu.measure.ideal import Framing, IdealFabric
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import Scenario

COMMAND = [sys.executable, "-c", "from fabric_emu.cli import main; main()"]

SMALL = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 1, link_rate: 8mbit, rate: auto}
workload: {kind: messages, collective: permutation, size: 250KB, duration: 10s}
"""


@pytest.mark.root
def test_rate_auto_calibrates_first_and_the_ideal_counts_the_delay_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "small.yaml").write_text(SMALL)
    ended = subprocess.run(
        [*COMMAND, "run", "small.yaml", "--json", "run.json"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "control run: 0 reordered" in ended.stderr
    assert "rate: auto: links at " in ended.stderr
    run = json.loads((tmp_path / "run.json").read_text())
    found, scenario = run["machine"]["calibration"], Scenario.model_validate(run["scenario"])
    topology = scenario.topology
    # Never above what is asked; another load on the machine may make it less.
    assert topology.link_rate == found["link_rate_bps"] == int(8e6 * found["factor"]) <= 8e6
    assert topology.rate == "exact"  # so that the saved scenario means this rate
    assert found["base_delay_s"] == found["delay_floor_s"] / 2 > 0  # two links of four
    assert isinstance(scenario.workload, Messages)
    graph = scenario.workload.graph(topology, scenario.seed)
    ideal = IdealFabric(topology, Framing.rocev2(4096, 4), found["base_delay_s"])
    assert np.isclose(run["schemes"][0]["messages"]["ideal"], ideal.message_s(graph).mean())
    (kept,) = (tmp_path / "cache" / "fabric-emu").iterdir()
    again = load(kept.stem.removeprefix("calibration-"))
    assert again is not None
    assert again.document()["calibration"] == found
