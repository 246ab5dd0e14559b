"""Results for other tools: nccl-tests' table and Prometheus' text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.results.csv_table import csv_of
from fabric_emu.results.export import nccl_tests, prometheus
from fabric_emu.results.run import RunResult

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]

#: Prometheus, exposition formats: a sample of text format 0.0.4.
SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-z_]+=\"(?:[^\"\\\n]|\\[\\n\"])*\",?)*)\} ([-+0-9.einf]+)"
)


@pytest.fixture
def collective(
    run_of: Run, summary_of: Summary, finished_in: Callable[..., dict[str, Any]]
) -> RunResult:
    run = run_of(
        summary_of("ecmp", **finished_in(None, unfinished=1)), summary_of("mrc", **finished_in(0.5))
    )
    scenario = {
        **run.scenario,
        "topology": {**run.scenario["topology"], "stands_for": 400_000_000_000},
        "workload": {"kind": "messages", "collective": "ring-all-reduce", "size": 4_000_000},
    }
    return replace(run, scenario=scenario)


def test_nccl_tests_in_units_of_the_real_thing(collective: RunResult) -> None:
    blocks = nccl_tests(collective).split("\n\n")
    assert blocks[1].splitlines()[:2] == [
        "# holbrook: ring-all-reduce, 16 ranks, 400 Gbit/s links, emulated 4,000 times slower",
        "# scheme mrc, seed 7; verdict: trustworthy",
    ]
    rows = [line.split() for text in blocks for line in text.splitlines() if line[:1] == " "]
    # 4 MB at 8 Mbit/s take 4 s, in the real thing 1 ms; 8 Mbit/s are 1 MB/s, there 4 GB/s.
    assert rows[1] == [
        "4000000", "1000000", "float", "sum", "-1", "1000.00", "4.00", "7.00",
        "N/A", "N/A", "N/A", "N/A", "N/A",
    ]  # fmt: skip
    assert rows[0][5:8] == ["never", "0.00", "0.00"]
    header = next(line for line in blocks[1].splitlines() if "redop" in line)
    assert len(header.lstrip("#").split()) == len(rows[1])


def test_nccl_tests_of_flows_is_refused(run_of: Run, summary_of: Summary) -> None:
    with pytest.raises(ScenarioError, match="expected a run of a collective"):
        nccl_tests(run_of(summary_of("ecmp")))


def test_prometheus_text_is_well_formed(collective: RunResult) -> None:
    text = prometheus(replace(collective, name='a "b"\\\n'))
    declared: set[str] = set()
    samples: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in declared
            declared.add(name)
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] in declared
            assert (match[1], match[2]) not in samples
            samples[match[1], match[2]] = float(match[3])
    labels = 'run="a \\"b\\"\\\\\\n",scheme="mrc",seed="7"'
    assert samples["fabric_emu_completion_seconds", labels] == 0.5
    assert samples["fabric_emu_delay_seconds", f'{labels},quantile="0.99"'] == 352e-6
    uplink = f'{labels},switch="leaf1",link="leaf1-spine3"'
    assert samples["fabric_emu_uplink_offered_ratio", uplink] == 0.9
    # What never finished has no time, and says so.
    never = labels.replace("mrc", "ecmp")
    assert ("fabric_emu_completion_seconds", never) not in samples
    assert samples["fabric_emu_collectives_unfinished", never] == 1


def test_csv_is_unrounded_and_worst_first(
    run_of: Run, summary_of: Summary, hashed_loads: tuple[float, ...]
) -> None:
    run = run_of(summary_of("mrc"), summary_of("ecmp", hashed_loads))
    header, worst, best = (line.split(",") for line in csv_of(run).splitlines())
    assert header[:3] == ["scheme", "seed", "worst_uplink_load"]
    assert worst[:3] == ["ecmp", "7", "1.6875"]
    assert worst[header.index("efficiency")] == repr(run.schemes[1]["efficiency"])
    assert best[0] == "mrc"
    assert best[-1] == "true"
