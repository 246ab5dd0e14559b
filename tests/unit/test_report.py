"""The report's page: its numbers are those of run.json, and nothing in it is obeyed or fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabric_emu.model.topology import Topology
from fabric_emu.results.columns import columns
from fabric_emu.results.entries import entries_of
from fabric_emu.results.read import load_run
from fabric_emu.results.report import report_page
from fabric_emu.results.run import RunResult

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]
Loads = tuple[float, ...]

HOSTILE = "</script><script>alert(1)</script>\"'><b onload=x>&amp;<!--"


class Page(HTMLParser):
    """What a browser would find in the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[1])


@pytest.fixture
def run(whole_run_of: Run, summary_of: Summary, hashed_loads: Loads) -> RunResult:
    return whole_run_of(summary_of("ecmp", hashed_loads), summary_of("mrc"))


def test_figures_of_the_table_are_those_of_run_json(run: RunResult) -> None:
    page = Page(report_page([run]))
    document = json.loads(run.to_json())
    cells = [cell for cell in page.all("td") if "data-figure" in cell]
    shown = columns(document["schemes"], ascii_only=False)
    # The worst scheme first: ecmp, whose worst uplink is asked for 168.75 %.
    expected = [
        (column.key, repr(column.figure(summary)))
        for summary in document["schemes"]
        for column in shown
    ]
    assert [(cell["data-figure"], cell["data-value"]) for cell in cells] == expected
    assert ("worst_uplink_load", "1.6875") in expected
    assert [cell["data-figure"] for cell in cells if cell.get("class") == "worst"] == [
        "worst_uplink_load"
    ]
    assert "The busiest uplink, leaf1-spine3, was asked for 168.8 %" in page.text.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_links_carry_the_loads_of_run_json(run: RunResult) -> None:
    page = Page(report_page([run]))
    ecmp = page.data["frames"]["schemes"][0]
    uplinks = {uplink["link"]: uplink["offered"] for uplink in run.schemes[0]["uplinks"]["leaf1"]}
    found = dict(zip(ecmp["ports"]["name"], ecmp["ports"]["offered"], strict=True))
    assert {f"leaf1 → {link.partition('-')[2]}": load for link, load in uplinks.items()} == {
        name: load for name, load in found.items() if name.startswith("leaf1 → spine")
    }
    # In every frame alike, for that is how the series is made up.
    port = ecmp["ports"]["name"].index("leaf1 → spine3")
    assert ecmp["load"][str(port)] == pytest.approx([1.6875] * 49, rel=2e-3)


def test_plots_show_what_there_is(whole_run_of: Run, run: RunResult, summary_of: Summary) -> None:
    open_loop = Page(report_page([run])).data["plots"]
    assert list(open_loop) == ["uplink-load", "queue-depth", "losses", "reordering", "paths"]
    messages = Page(report_page([whole_run_of(summary_of("mrc"), messages=20)])).data["plots"]
    assert "completion" in messages
    assert "losses" not in messages  # 90 % of every uplink: nothing is lost
    traces = messages["completion"]["variants"]["each message"][0]["figure"]["data"]
    # 20 messages of 0.1, 0.2 ... 2 s; ideally half of that.
    assert traces[0]["x"][1:] == pytest.approx([i / 10 for i in range(1, 21)])
    assert traces[0]["y"][1:] == pytest.approx([i / 20 for i in range(1, 21)])
    assert traces[1]["name"] == "ideal"
    assert traces[1]["x"][-1] == pytest.approx(1.0)
    (trace,) = messages["goodput"]["variants"][""][0]["figure"]["data"]
    assert (trace["x0"], trace["dx"], trace["y"]) == (0.5, 1, [4_000_000, 1_000_000])


def test_bytes_by_path_leave_answers_out(run: RunResult) -> None:
    plot = Page(report_page([run])).data["plots"]["paths"]["variants"]
    bars = plot["all flows"][0]["figure"]["data"][0]
    assert bars["x"] == ["spine1", "spine2", "spine3"]
    assert bars["y"] == [1, 1, 1]
    cells = plot["flow by flow"][0]["figure"]["data"][0]
    assert cells["y"] == ["0: h1 → h9", "1: h2 → h10", "2: h3 → h11"]
    assert cells["z"] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_one_colour_per_scheme_and_the_usual_one(run: RunResult) -> None:
    colours = {entry.label: entry.colour for entry in entries_of([run, replace(run, name="two")])}
    assert list(colours) == ["holbrook: ecmp", "holbrook: mrc", "two: ecmp", "two: mrc"]
    assert len(set(colours.values())) == 4
    alone = {entry.label: entry.colour for entry in entries_of([run])}
    assert alone["mrc"] == colours["holbrook: mrc"]
    page = Page(report_page([run]))
    queue = page.data["plots"]["queue-depth"]["variants"]["whole fabric"][0]["figure"]["data"]
    assert {trace["name"]: trace["line"]["color"] for trace in queue} == alone


def test_nothing_of_what_is_written_is_obeyed(run: RunResult) -> None:
    scheme = {
        **run.schemes[0],
        "name": HOSTILE,
        "verdict": {
            "trustworthy": False,
            "reasons": [HOSTILE],
            "checks": [{"name": HOSTILE, "measured": 1, "limit": 0, "ok": False}],
        },
    }
    hostile = replace(
        run,
        name=HOSTILE,
        error=HOSTILE,
        status="failed",
        machine={HOSTILE: HOSTILE, "versions": {HOSTILE: HOSTILE}},
        schemes=(scheme, run.schemes[1]),
        scenario={**run.scenario, "title": HOSTILE, "claim": HOSTILE, "source": HOSTILE},
    )
    for runs in ([hostile], [hostile, run]):
        page = Page(report_page(runs))
        assert len(page.scripts) == 4
        assert "alert(1)" not in "".join(page.scripts[i] for i in (0, 2, 3))
        assert not any("onload" in attributes for _, attributes in page.tags)
        assert "<b onload=x>" in page.text
        # Plotly takes some HTML in names.
        plots = json.dumps(page.data["plots"], ensure_ascii=False)
        assert "<script" not in plots
        assert "‹/script›" in plots


def test_nothing_is_fetched_and_no_other_script_runs(run: RunResult) -> None:
    page = Page(report_page([run]))
    fetching = {"src", "href", "srcset", "action", "data", "poster", "background"}
    assert [tag for tag, attributes in page.tags if fetching & set(attributes)] == []
    (policy,) = (
        meta["content"] or ""
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src ")
    hashes = set(re.findall(r"'sha256-([^']+)'", policy))
    assert hashes == {
        base64.b64encode(hashlib.sha256(page.scripts[i].encode()).digest()).decode()
        for i in (0, 2, 3)
    }
    assert "http" not in policy.replace("http-equiv", "")


def test_seeds_are_compared_and_the_median_is_drawn(
    run_of: Run, summary_of: Summary, hashed_loads: Loads
) -> None:
    summaries = [
        summary_of("ecmp", tuple(share * load for load in hashed_loads), seed=seed)
        for seed, share in ((7, 0.8), (8, 1.0), (9, 0.6))
    ]
    run = run_of(*summaries, seeds=(7, 8, 9), text="schemes: [ecmp]\n")
    page = Page(report_page([run]))
    (box,) = page.data["plots"]["seeds"]["variants"][""][0]["figure"]["data"]
    assert dict(zip(box["text"], box["y"], strict=True)) == pytest.approx(
        {"seed 7": 1.35, "seed 8": 1.6875, "seed 9": 1.0125}
    )
    assert "seed 7, the median one for ecmp" in page.text
    assert "Over 3 seeds the busiest uplink was asked for" in page.text


def test_faults_are_told_and_marked(whole_run_of: Run, summary_of: Summary) -> None:
    text = (
        "schemes: [ecmp, ecmp-4qp]\n"
        "faults:\n"
        "  - {at: 200ms, for: 300ms, link: leaf1-spine2, action: slow, rate: 10mbit}\n"
        "  - {at: 600ms, link: leaf1-spine3, action: down}\n"
    )
    page = Page(report_page([whole_run_of(summary_of("ecmp"), text=text)]))
    told = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "leaf1-spine2 slow, 10 Mbit/s, from 200 ms for 300 ms" in told
    assert "leaf1-spine3 down, from 600 ms on" in told
    assert "{nic: {queue_pairs: 4}}" in told
    for key in ("uplink-load", "queue-depth"):
        plot = page.data["plots"][key]
        layout = plot["variants"][plot["default"]][0]["figure"]["layout"]
        assert [mark["x0"] for mark in layout["shapes"]] == [0.2, 0.5, 0.6]
        assert [mark["text"] for mark in layout["annotations"]] == [
            "leaf1-spine2 slow",
            "leaf1-spine2 mended",
            "leaf1-spine3 down",
        ]


@pytest.mark.parametrize("status", ["partial", "failed"])
def test_run_without_results_has_a_page(run_of: Run, status: Any) -> None:
    text = Page(report_page([run_of().ended(status, "worker 1 died")])).text
    assert ("worker 1 died" if status == "failed" else "was interrupted") in text


def test_run_without_arrays_has_a_page(run_of: Run, summary_of: Summary) -> None:
    data = Page(report_page([run_of(summary_of("ecmp"))])).data
    assert data["plots"] == {}
    assert data["frames"]["edges"] == []


def test_report_is_drawn_from_disk_alike(tmp_path: Path, run: RunResult) -> None:
    folder = run.save(tmp_path)
    report = run.save_report(folder)
    assert report == folder / "report.html"
    assert report_page([load_run(folder)]) == report.read_text()


def test_three_tiers_of_64_hosts_stay_under_10_megabytes(
    measured_of: Callable[..., Any], summary_of: Summary, whole_run_of: Run
) -> None:
    topology = Topology(tiers=3, pods=4, leaves=4, spines=4, super_spines=16, hosts_per_leaf=4)
    run = whole_run_of()
    scenario = {**run.scenario, "topology": topology.model_dump(mode="json")}
    run = replace(run, scenario=scenario)
    random = np.random.default_rng(1)
    for name in ("ecmp", "dlb", "mrc"):
        uplinks = {
            switch.name: [
                {"link": link.name, "offered": random.random() * 1.5, "carried": 1.0}
                for link in topology.uplinks[switch.name]
            ]
            for switch in topology.switches
            if topology.uplinks[switch.name]
        }
        measured = measured_of(summary_of(name, uplinks=uplinks), topology)
        series = {
            "time_s": np.linspace(0, 4, 400),
            **{
                counter: np.cumsum(
                    random.integers(0, 20_000, (400, len(measured.ports["port"]))), 0
                )
                for counter in measured.series
                if counter != "time_s"
            },
        }
        run = run.with_scheme(replace(measured, series=series))
    html = report_page([run])
    assert len(html.encode()) < 10_000_000
    plots = Page(html).data["plots"]
    # Thinned, not left out: all 16 leaves and 16 spines have uplinks.
    assert len(plots["uplink-load"]["variants"]) == 32
