"""Figures and pictures of the gallery, out of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fabric_emu.errors import FabricError
from fabric_emu.results.gallery import figures_block, update_gallery
from fabric_emu.results.run import RunResult
from fabric_emu.results.small_bars import link_bars_svg

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]
Loads = tuple[float, ...]

README = """\
# Gallery

A sentence of somebody's.

<!-- one -->
old figures
<!-- end -->

<!-- one two -->
both
<!-- end -->
"""


def test_figures_replace_the_old_ones_and_nothing_else(
    tmp_path: Path, run_of: Run, summary_of: Summary, hashed_loads: Loads
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(README)
    (tmp_path / "pictures").mkdir()
    one = replace(run_of(summary_of("ecmp", hashed_loads), summary_of("mrc")), name="one")
    update_gallery(readme, [one])

    text = readme.read_text()
    assert "somebody's" in text
    assert "both" in text
    assert "old figures" not in text
    assert "| ecmp | 168.8 % |" in text
    assert "![one](pictures/one.svg)" in text
    assert (tmp_path / "pictures" / "one.svg").read_text().startswith("<svg")

    update_gallery(readme, [one, replace(one, name="two")])
    text = readme.read_text()
    assert "both" not in text
    assert "| one ecmp | 168.8 % |" in text
    assert "| two mrc | 90.0 % |" in text


def test_a_run_without_a_place_is_a_mistake(
    tmp_path: Path, run_of: Run, summary_of: Summary
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(README)
    with pytest.raises(FabricError, match=r"README.md: expected <!-- other --> \.\.\. <!-- end"):
        update_gallery(readme, [replace(run_of(summary_of("ecmp")), name="other")])
    assert readme.read_text() == README


def test_what_is_not_as_expected_is_said(run_of: Run, summary_of: Summary) -> None:
    doubtful = summary_of("mrc", verdict={"trustworthy": False, "reasons": ["too busy"]})
    text = 'schemes: [ecmp, mrc]\nexpect: {mrc: {efficiency: "< 0.9"}}\n'
    block = figures_block(run_of(doubtful, text=text))
    assert "mrc: too busy" in block
    assert "efficiency: expected < 0.9, measured 1" in block


def test_bars_are_as_long_as_loads(summary_of: Summary, hashed_loads: Loads) -> None:
    svg = ElementTree.fromstring(link_bars_svg([summary_of("ecmp", hashed_loads)]))
    name = "{http://www.w3.org/2000/svg}rect"
    bars = list(svg.iter(name))[1:]  # the first is the background
    over = [load for load in hashed_loads if load > 1]
    assert len(bars) == len(hashed_loads) + len(over)
    total = sum(float(bar.get("height", "nan")) for bar in bars)
    full = max(float(bar.get("height", "nan")) for bar in bars)  # 100 %
    assert total / full == pytest.approx(sum(hashed_loads), rel=0.01)


def test_without_uplinks_there_are_no_bars(summary_of: Summary) -> None:
    assert link_bars_svg([summary_of("ecmp", uplinks={})]) == ""


def test_of_a_slow_link_down_what_it_could_carry_counts(summary_of: Summary) -> None:
    links = [{"offered": 0.7, "room": 0.5}, {"offered": 0.7, "room": 1.0}]
    slow = summary_of("dlb", downlinks={"leaf2": links}, worst_downlink_load=1.4)
    assert "dlb, down to leaf2: 140 %" in link_bars_svg([slow], downlinks=True)
