"""The drawing of the fabric, and numbers over time for it and for plots."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabric_emu.results.entries import entries_of
from fabric_emu.results.fabric_map import bucket, map_svg, standalone_svg
from fabric_emu.results.plots.plot import numbers
from fabric_emu.results.run import RunResult

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]


@pytest.fixture
def run(whole_run_of: Run, summary_of: Summary, hashed_loads: tuple[float, ...]) -> RunResult:
    return whole_run_of(summary_of("ecmp", hashed_loads), summary_of("mrc"))


def test_drawing_has_every_half_link_once(run: RunResult) -> None:
    entry = entries_of([run])[0]
    svg = ET.fromstring(map_svg(entry))
    lines = [line.attrib for line in svg.iter() if "load" in line.get("class", "").split()]
    assert sorted(int(line["data-port"]) for line in lines) == list(range(64))
    port = entry.port_names.index("leaf1 → spine3")
    (worst,) = (line["class"] for line in lines if line["data-port"] == str(port))
    assert worst == "load load13"  # 168.75 %
    names = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"leaf1", "spine8", "h16"} <= names
    assert ET.fromstring(standalone_svg(entry)).tag.endswith("svg")


@pytest.mark.parametrize(
    ("load", "number"),
    [
        (0, 0), (float("nan"), 0), (1e-6, 1), (0.1, 1), (0.11, 2), (0.9, 9), (1, 10),
        (1.0001, 11), (1.25, 11), (1.3, 12), (1.6, 13),
    ],
)  # fmt: skip
def test_bucket(load: float, number: int) -> None:
    assert bucket(load) == number


def test_numbers_are_rounded_and_ready_for_json() -> None:
    values = np.array([0.0, 1.0, 1.23456, -98765.4, 1e-7, np.nan, np.inf])
    assert numbers(values) == [0, 1, 1.235, -98770, 1e-7, None, None]
    assert json.dumps(numbers(values[:2])) == "[0, 1]"


def test_counters_are_spread_over_bins_without_loss(run: RunResult) -> None:
    entry = entries_of([run])[0]
    series = entry.saved.series
    edges = np.array([0.0, 0.013, 0.5, 0.77, 2.0])
    grown = entry.counted("offered_bytes", edges)
    assert grown.sum(axis=0) == pytest.approx(series["offered_bytes"][-1].astype(float))
    # Nothing grows after the last sample, at 1 s.
    assert entry.counted("offered_bytes", np.array([1.0, 2.0])).max() == 0
