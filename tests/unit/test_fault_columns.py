"""What people are shown of recovery from faults: table, sentences, CSV, Prometheus, the picture."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabric_emu.commands.terminal import terminal
from fabric_emu.model.topology import Topology
from fabric_emu.results.csv_table import csv_of
from fabric_emu.results.entries import entries_of
from fabric_emu.results.export import prometheus
from fabric_emu.results.fault_columns import fault_columns
from fabric_emu.results.figures import gpu_time
from fabric_emu.results.plots.iterations import iterations
from fabric_emu.results.report import report_page
from fabric_emu.results.run import RunResult
from fabric_emu.results.sentences import sentence
from fabric_emu.results.table import print_run

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]

FABRIC = Topology(leaves=2, spines=8, hosts_per_leaf=8)
SCENARIO = """\
schemes: [ecmp, mrc]
faults: [{at: 1500ms, link: leaf1-spine1, action: blackhole}]
"""


@pytest.fixture
def stalled(summary_of: Summary, finished_in: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Give the summary of a job that never went on."""
    recovery = {"lost": 1256, "last_loss": 4.3, "flows_hit": 1, "all_running": None}
    training = {
        "before": 0.41, "longest": None, "after": None, "unfinished": 5, "rolled_back": True,
        "stalled_in": 3, "stalled": 5.0, "redone": 1.23, "gpus": 4096, "gpu_time_lost": 25518.0,
    }  # fmt: skip
    done = finished_in(None, unfinished=5) | {"queue_pairs_failed": 1}
    return summary_of("ecmp", recovery=recovery, training=training, **done)


@pytest.fixture
def went_on(summary_of: Summary, finished_in: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Give the summary of a job that was held up once."""
    recovery = {"lost": 208, "last_loss": 1.8442, "flows_hit": 2, "all_running": 0.11139}
    training = {
        "before": 0.41, "longest": 0.4494, "after": 0.4122, "unfinished": 0, "rolled_back": False,
        "stalled_in": None, "stalled": 0.044, "redone": 0.0, "gpus": 4096, "gpu_time_lost": 180.2,
    }  # fmt: skip
    return summary_of("mrc", recovery=recovery, training=training, **finished_in(0.5))


@pytest.fixture
def job(run_of: Run, stalled: dict[str, Any], went_on: dict[str, Any]) -> RunResult:
    return run_of(went_on, stalled, text=SCENARIO)


def test_table_of_a_job_at_80_columns(job: RunResult) -> None:
    file = io.StringIO()
    print_run(terminal(file), job)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    begin = text.index("Fault:")
    assert text[begin : text.index("Load offered")] == (
        """\
Fault: leaf1-spine1 blackhole, from 1.5 s on

       packets   last flows    all    QPs  iter.  long-        rolled      GPU
scheme    lost   lost   hit    run failed before    est   last   back     time
------------------------------------------------------------------------------
ecmp     1,256  4.3 s     1  never      1 410 ms  never  never    yes   7.09 h
mrc        208 1.84 s     2 111 ms      0 410 ms 449 ms 412 ms     no 3.00 min

"""
    )


def test_nothing_without_faults(run_of: Run, summary_of: Summary) -> None:
    run = run_of(summary_of("ecmp"))
    assert fault_columns(run.schemes, ascii_only=True) == []
    file = io.StringIO()
    print_run(terminal(file), run)
    assert "Fault" not in file.getvalue()
    assert "What the faults cost" not in report_page([run])


def test_open_loops_have_recovery_and_no_job(summary_of: Summary) -> None:
    recovery = {"lost": 5, "last_loss": 0.5, "flows_hit": 1, "all_running": 0.5}
    shown = fault_columns([summary_of("ecmp", recovery=recovery)], ascii_only=True)
    assert [column.key for column in shown] == [f"recovery.{key}" for key in recovery]


def test_when_routes_settled_is_shown_where_it_is_known(summary_of: Summary) -> None:
    recovery = {"lost": 5, "last_loss": 0.5, "flows_hit": 1, "all_running": 0.5}
    rows = [
        summary_of("ecmp", recovery={**recovery, "routes_settled": settled})
        for settled in (0.125, None)
    ]
    column = fault_columns(rows, ascii_only=True)[-1]
    assert [column.write(column.figure(row)) for row in rows] == ["125 ms", "-"]
    assert fault_columns(rows[1:], ascii_only=True)[-1].key == "recovery.all_running"


def test_page_has_the_same_figures_each_explained(job: RunResult) -> None:
    page = report_page([job])
    assert "What the faults cost" in page
    assert 'data-figure="training.gpu_time_lost" data-value="25518.0">7.09 h<' in page
    assert 'data-figure="recovery.all_running" data-value="0.11139">111 ms<' in page
    assert "GPU time is that of 4,096 GPUs" in page
    for column in fault_columns(job.schemes, ascii_only=False):
        assert f'title="{column.meaning}"' in page


def test_runs_without_faults_have_no_row_beside_one_with(
    job: RunResult, run_of: Run, summary_of: Summary
) -> None:
    page = report_page([job, run_of(summary_of("glb"), text="schemes: [glb]\n")])
    table = page[page.index("What the faults cost") :]
    table = table[: table.index("</table>")]
    assert "mrc" in table
    assert "glb" not in table


def test_csv_and_prometheus_have_them_unrounded(job: RunResult) -> None:
    header, worst, best = (line.split(",") for line in csv_of(job).splitlines())
    assert len(header) == len(set(header)) == len(best)
    stalled, went_on = dict(zip(header, worst, strict=True)), dict(zip(header, best, strict=True))
    assert stalled["training.rolled_back"] == "1"
    assert stalled["recovery.all_running"] == repr(math.inf)
    assert went_on["recovery.last_loss"] == "1.8442"
    text = prometheus(job)
    assert 'fabric_emu_gpu_time_lost_seconds{run="holbrook",scheme="mrc",seed="7"} 180.2' in text
    assert 'fabric_emu_rolled_back{run="holbrook",scheme="ecmp",seed="7"} 1.0' in text
    assert "all_running_seconds{" in text
    assert 'all_running_seconds{run="holbrook",scheme="ecmp"' not in text  # never


def test_sentences_say_what_it_cost(stalled: dict[str, Any], went_on: dict[str, Any]) -> None:
    assert sentence(stalled, FABRIC, "ring-all-reduce").endswith(
        "faults took packets for 4.3 s, and not all flows ran again; the job stalled in iteration "
        "4 and went back to its checkpoint, 1.23 s of work before: 7.09 h of 4,096 GPUs are lost."
    )
    assert sentence(went_on, FABRIC, "ring-all-reduce").endswith(
        "faults took packets for 1.84 s, and flows that lost some stood still for 111 ms at most; "
        "an iteration took 449 ms instead of 410 ms: 3.00 min of 4,096 GPUs are lost."
    )


def test_sentence_of_a_fault_that_hit_nothing(summary_of: Summary) -> None:
    recovery = {"lost": 0, "last_loss": None, "flows_hit": 0, "all_running": 0.0}
    assert "faults took no packet" in sentence(summary_of("mrc", recovery=recovery), FABRIC)


def test_iterations_are_drawn_as_far_as_they_got(whole_run_of: Run, summary_of: Summary) -> None:
    run = whole_run_of(summary_of("ecmp"), messages=4)
    entries = entries_of([run])
    columns = entries[0].saved.messages
    # Four iterations of two collectives each; the last one of them never ended.
    columns["collective_iteration"] = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    columns["collective_begin_s"] = np.array([0.0, 0.1, 0.5, 0.6, 1.0, 1.1, 1.5, 1.6])
    columns["collective_taken_s"] = np.array([0.3, 0.4, 0.3, 0.4, 0.3, 0.9, 0.3, np.nan])
    plot = iterations(entries)
    assert plot
    (trace,) = plot.variants[""][0].figure["data"]
    assert trace["x"] == [1, 2, 3, 4]
    assert trace["y"] == [0.5, 0.5, 1.0, None]
    assert trace["marker"]["symbol"] == ["circle", "circle", "x", "circle"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (12.5, "12.5 s"), (960, "16.0 min"), (25518, "7.09 h")],
)
def test_gpu_time(seconds: float | None, text: str) -> None:
    assert gpu_time(seconds) == text
