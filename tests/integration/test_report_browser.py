"""The report in a headless Chromium: all plots are drawn, without an error, without a network.

Screenshots are kept in ``$CI_ARTIFACTS/screenshots``, or in ``results/screenshots``.
"""

from __future__ import annotations

import json
import os
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.errors import HostUnfit
from fabric_emu.experiment import machine, run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.results.browser import Browser, chromium
from fabric_emu.results.report import report_page
from fabric_emu.results.run import RunResult
from fabric_emu.results.slides import HEIGHT, WIDTH, draw_slides

pytestmark = pytest.mark.root

CHECKOUT = Path(__file__).resolve().parents[2]
SCREENSHOTS = Path(os.environ.get("CI_ARTIFACTS") or CHECKOUT / "results") / "screenshots"

#: What must come out is of no matter here: small, slow links, so that any machine keeps up.
SCENARIOS = {
    "collective": """
        title: Four ranks in a ring
        topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 10mbit, stands_for: 400gbit}
        workload:
          {kind: messages, collective: ring-all-reduce, size: 200KB, placement: across-leaves,
           iterations: 2}
        schemes: [ecmp, mrc]
    """,
    "overload": """
        title: One leaf sends more than its hashed uplinks carry
        claim: An uplink that two flows of 70 % share is asked for 140 %.
        topology: {leaves: 2, spines: 4, hosts_per_leaf: 4, link_rate: 10mbit}
        workload: {pattern: pairs, flows_per_host: 2, load: 0.9, duration: 1s}
        schemes: [ecmp, mrc]
    """,
    "three-tiers": """
        title: Sixty-four hosts in three tiers
        topology:
          {tiers: 3, pods: 4, leaves: 4, spines: 4, super_spines: 8, hosts_per_leaf: 4,
           link_rate: 4mbit}
        workload: {pattern: permutation, shift: 21, flows_per_host: 2, load: 0.5, duration: 1s}
        schemes: [ecmp, mrc]
    """,
}

LOOKS = [(1280, False), (390, True)]
"""Width of the window, and whether the system prefers dark pages, when the page is opened."""

CHARTS = """[...document.querySelectorAll(".chart")].map((chart) => ({
  plot: chart.closest("[data-plot]").dataset.plot,
  drawn: chart.querySelectorAll(".trace path[d], .hm image, .boxlayer path[d]").length,
  inside: chart.getBoundingClientRect().right <= window.innerWidth + 1,
}))"""

#: What a reader does with every choice that a plot offers.
CHOOSE = """(async (number) => {
  let more = false;
  for (const select of document.querySelectorAll("[data-plot] select")) {
    if (number >= select.options.length) continue;
    more = true;
    select.selectedIndex = number;
    select.dispatchEvent(new Event("change"));
  }
  await new Promise((done) => setTimeout(done, 0));
  return more;
})"""
THEMES = {False: "light", True: "dark"}
TEXT_COLOUR = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
READY = "document.documentElement.dataset.ready === 'yes'"
ALL_DRAWN = f"{CHARTS}.every((chart) => chart.drawn)"


@pytest.fixture(scope="module")
def runs() -> dict[str, RunResult]:
    found = {}
    for name, text in SCENARIOS.items():
        scenario = parse_scenario(text, f"{name}.yaml")
        run = RunResult.begin(name, scenario, [scenario.seed], machine())
        for scheme in scenario.schemes:
            run = run.with_scheme(run_scheme(scenario, scheme, scenario.seed))
        found[name] = run.ended("complete")
    return found


@pytest.fixture
def browser() -> Iterator[Browser]:
    try:
        chromium()
    except HostUnfit as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with Browser() as one:
        yield one


def keep(browser: Browser, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"{name}.png").write_bytes(browser.screenshot())


def show(browser: Browser, page: str, folder: Path) -> None:
    file = folder / "report.html"
    file.write_text(page)
    browser.open(file)
    browser.wait_for(READY)


def nothing_went_wrong(browser: Browser) -> None:
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.dataset.errors ?? ''") == ""
    foreign = [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert foreign == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_plot_is_drawn(
    runs: dict[str, RunResult], browser: Browser, tmp_path: Path, name: str
) -> None:
    page = report_page([runs[name]])
    assert len(page.encode()) < 10_000_000
    for width, dark in LOOKS:
        browser.look(dark=dark, width=width)
        show(browser, page, tmp_path)
        has_theme(browser, dark)
        everything_is_drawn_and_fits(browser)
        keep(browser, f"{name}-{width}-{THEMES[dark]}")
        # The system may change its mind while the page is open.
        browser.look(dark=not dark, width=width)
        browser.wait_for(f"{TEXT_COLOUR} === getComputedStyle(document.body).color")
        has_theme(browser, not dark)
        everything_is_drawn_and_fits(browser)
        keep(browser, f"{name}-{width}-{THEMES[not dark]}")
    seen: set[str] = set()
    number = 0
    while browser.evaluate(f"{CHOOSE}({number})") and number < 4:
        seen |= everything_is_drawn_and_fits(browser)
        number += 1
    expected = {"uplink-load", "queue-depth", "reordering", "paths"}
    assert expected | ({"completion"} if name == "collective" else set()) <= seen
    nothing_went_wrong(browser)


def has_theme(browser: Browser, dark: bool) -> None:
    assert browser.evaluate("document.documentElement.dataset.theme") == THEMES[dark]


def everything_is_drawn_and_fits(browser: Browser) -> set[str]:
    """Return the plots that were drawn."""
    browser.wait_for(ALL_DRAWN)
    charts = browser.evaluate(CHARTS)
    assert all(chart["inside"] for chart in charts)
    # Nothing sticks out to the side, for which a reader would have to scroll.
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    return {chart["plot"] for chart in charts}


def test_links_are_coloured_and_labelled_with_the_runs_numbers(
    runs: dict[str, RunResult], browser: Browser, tmp_path: Path
) -> None:
    run = runs["overload"]
    show(browser, report_page([run]), tmp_path)
    ports = run.columns(run.schemes[0], "ports")
    worst = max(range(len(ports["port"])), key=lambda port: ports["offered"][port])
    offered = ports["offered"][worst]
    line = f"""document.querySelector('.fabric .load[data-port="{worst}"]')"""
    colours = [
        browser.evaluate(f"getComputedStyle({selector}).stroke")
        for selector in (line, "document.querySelector('.fabric .load0')")
    ]
    assert colours[0] != colours[1]
    browser.point_at(f"""document.querySelector('.fabric .hit[data-port="{worst}"]')""")
    told = browser.evaluate("document.getElementById('tip').textContent")
    assert told.splitlines()[0] == f"{ports['from'][worst]} → {ports['to'][worst]}"
    assert f"asked for {100 * offered:.1f} % of 10 Mbit/s" in told
    nothing_went_wrong(browser)


def test_slider_and_play_show_the_run_over_time(
    runs: dict[str, RunResult], browser: Browser, tmp_path: Path
) -> None:
    show(browser, report_page([runs["overload"]]), tmp_path)
    frames = browser.evaluate(
        "JSON.parse(document.getElementById('report-data').textContent).frames"
    )
    assert frames["edges"][0] == 0
    frame = len(frames["edges"]) // 2
    browser.evaluate(
        f"{{const s = document.getElementById('time'); s.value = {frame};"
        "s.dispatchEvent(new Event('input'))}"
    )
    drawn = browser.evaluate(
        "[...document.querySelector('.fabric').querySelectorAll('.load')]"
        ".map((line) => [line.dataset.port, Number(line.classList[1].slice(4))])"
    )
    busy = {port for port, number in drawn if number}
    loads = frames["schemes"][0]["load"]
    assert busy == {port for port, values in loads.items() if values[frame - 1] > 0}
    assert browser.evaluate("document.getElementById('moment').textContent") != "whole run"
    browser.evaluate("document.getElementById('play').click()")
    browser.wait_for(f"Number(document.getElementById('time').value) > {frame}")
    browser.evaluate("document.getElementById('play').click()")
    assert "Play" in browser.evaluate("document.getElementById('play').textContent")
    nothing_went_wrong(browser)


def test_light_and_dark_can_be_switched(
    runs: dict[str, RunResult], browser: Browser, tmp_path: Path
) -> None:
    show(browser, report_page([runs["collective"]]), tmp_path)
    before = browser.evaluate(TEXT_COLOUR)
    browser.evaluate("document.getElementById('theme').click()")
    browser.wait_for(f"{ALL_DRAWN} && {TEXT_COLOUR} !== {json.dumps(before)}")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    nothing_went_wrong(browser)


def test_runs_are_compared(runs: dict[str, RunResult], browser: Browser, tmp_path: Path) -> None:
    show(browser, report_page([runs["collective"], runs["overload"]]), tmp_path)
    keep(browser, "compared-1280-light")
    browser.wait_for(ALL_DRAWN)
    names: list[Any] = browser.evaluate(
        "[...document.querySelectorAll('[data-plot=queue-depth] .legendtext')]"
        ".map((one) => one.textContent)"
    )
    assert sorted(names) == [
        "collective: ecmp",
        "collective: mrc",
        "overload: ecmp",
        "overload: mrc",
    ]
    nothing_went_wrong(browser)


def test_pictures_for_slides(runs: dict[str, RunResult], browser: Browser, tmp_path: Path) -> None:
    files = draw_slides([runs["collective"]], tmp_path / "slides")
    stems = {file.stem for file in files}
    assert {"completion", "queue-depth", "paths", "fabric-ecmp", "fabric-mrc"} <= stems
    assert {file.suffix for file in files} == {".svg", ".png"}
    for file in files:
        if file.suffix == ".svg":
            assert ET.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            # The size stands in the header of a PNG.
            size = struct.unpack(">II", file.read_bytes()[16:24])
            assert size[0] == 2 * WIDTH
            if not file.stem.startswith("fabric-"):
                assert size[1] == 2 * HEIGHT
