"""What came out, in sentences, and in the columns that workloads of messages add."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest

from fabric_emu.commands.terminal import terminal
from fabric_emu.model.topology import Topology
from fabric_emu.results.columns import by_scheme, columns
from fabric_emu.results.run import RunResult
from fabric_emu.results.sentences import sentence
from fabric_emu.results.table import print_run

Summary = Callable[..., dict[str, Any]]
Finished = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]

FABRIC = Topology(leaves=2, spines=8, hosts_per_leaf=8)
SLOWED = Topology(leaves=2, spines=8, hosts_per_leaf=8, link_rate="100mbit", stands_for="400gbit")


def test_overloaded_uplink(summary_of: Summary, hashed_loads: tuple[float, ...]) -> None:
    assert sentence(summary_of("ecmp", hashed_loads), FABRIC) == (
        "The busiest uplink, leaf1-spine3, was asked for 168.8 % of what it carries, 1.88 times "
        "the mean of leaf1's uplinks; 990 packets (9.90 %) were lost by full queues; nothing was "
        "reordered."
    )


def test_even_spread_that_reorders(summary_of: Summary) -> None:
    order = {"ratio": 0.25, "max_extent": 9, "buffer_bytes": 36864}
    assert sentence(summary_of("mrc", reordering=order), FABRIC) == (
        "The busiest uplink, leaf1-spine1, was asked for 90.0 % of what it carries, no more than "
        "its neighbours; no packet was lost; 25.00 % of packets came out of order, by 9 packets "
        "at most, for which a NIC holds back up to 36.86 kB."
    )


def test_collective_in_emulated_units_and_in_the_real_things(
    summary_of: Summary, finished_in: Finished
) -> None:
    text = sentence(summary_of("mrc", **finished_in(0.5)), SLOWED, "ring-all-reduce")
    assert text.startswith(
        "The ring-all-reduce took 500 ms (standing for 125 µs), 2.50 times the ideal, at a bus "
        "bandwidth of 14 Mbit/s (standing for 56 Gbit/s); the busiest uplink"
    )
    assert text.endswith("; 3 packets were sent again.")


def test_collective_that_never_finished(summary_of: Summary, finished_in: Finished) -> None:
    lost = summary_of("ecmp", **finished_in(None, unfinished=1))
    lost["messages"] = {"count": 20, "unfinished": 4}
    lost["queue_pairs_failed"] = 1
    text = sentence(lost, FABRIC, "permutation")
    assert text.startswith("The permutation never finished: 4 of 20 messages did not arrive; ")
    assert text.endswith("; 1 queue pair gave up.")


def test_reasons_of_losses_are_named(summary_of: Summary) -> None:
    packets = {"sent": 1000, "dropped": {"queue_limit": 5, "link_down": 5}, "trimmed": 7}
    assert (
        "10 packets (1.00 %) were lost by full queues and with a link that went down; 7 packets "
        "were trimmed to their headers" in sentence(summary_of("ecmp", packets=packets), FABRIC)
    )


def test_columns_appear_when_the_run_has_them(summary_of: Summary, finished_in: Finished) -> None:
    def keys(*rows: dict[str, Any]) -> list[str]:
        return [column.key for column in columns(rows, ascii_only=True)]

    usual = keys(summary_of("ecmp"))
    with_messages = keys(summary_of("ecmp"), summary_of("mrc", **finished_in(0.5)))
    assert with_messages == ["completion.over_ideal", "busbw", *usual, "retransmitted"]
    repeated = finished_in(0.5)
    repeated["completion"]["count"] = 3
    assert keys(summary_of("mrc", **repeated))[:3] == [
        "completion.over_ideal_p50",
        "completion.over_ideal_p99",
        "completion.over_ideal",
    ]
    trimmed = {**summary_of("uec")["packets"], "trimmed": 7}
    assert keys(summary_of("uec", packets=trimmed, ecn_marked=3)) == [
        *usual,
        "packets.trimmed",
        "ecn_marked",
    ]


def test_what_never_finishes_is_worst(
    run_of: Run, summary_of: Summary, finished_in: Finished
) -> None:
    run = run_of(
        summary_of("mrc", **finished_in(0.5)),
        summary_of("dlb", **finished_in(0.9)),
        summary_of("ecmp", **finished_in(None, unfinished=1)),
    )
    assert list(by_scheme(run)) == ["ecmp", "dlb", "mrc"]
    figure = columns(run.schemes, ascii_only=True)[0].figure
    assert [figure(row) for row in run.schemes] == [2.5, 4.5, math.inf]


@pytest.mark.parametrize("columns_wide", [60, 80, 132])
def test_table_of_messages_fits(
    columns_wide: int,
    run_of: Run,
    summary_of: Summary,
    finished_in: Finished,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns_wide))
    run = run_of(
        summary_of("ecmp", **finished_in(None, unfinished=1)), summary_of("mrc", **finished_in(0.5))
    )
    file = io.StringIO()
    print_run(terminal(file), run)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= columns_wide
    assert lines[6].split()[:2] == ["ecmp", "*never"]
    assert lines[7].split()[:2] == ["mrc", "2.50"]
    header = " ".join(lines[3:5]).split()
    assert "busbw" in header  # at any width
    assert ("extent" in header) == (columns_wide == 132)
