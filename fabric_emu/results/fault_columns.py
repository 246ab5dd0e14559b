"""The columns of runs with faults: what recovery took, and what it cost a training job."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from fabric_emu.results.columns import Column, Summary
from fabric_emu.results.figures import NONE, count, duration, gpu_time
from fabric_emu.results.summaries import figure_of


def fault_columns(rows: Sequence[Summary], ascii_only: bool) -> list[Column]:
    """Return the columns that these summaries have something for; none for runs without faults.

    Args:
        rows: summaries of a run, or of several.
        ascii_only: whether to write "us" for microseconds.
    """

    def time(value: float | None) -> str:
        return "never" if value == math.inf else duration(value, ascii_only)

    found = []
    if any("recovery" in row for row in rows):
        found += _recovery(time)
        if any(figure_of(row, "recovery.routes_settled") is not None for row in rows):
            found.append(_routes_settled(time))
        if any("queue_pairs_failed" in row for row in rows):
            found.append(_queue_pairs_failed())
    if any("training" in row for row in rows):
        found += _training(time)
    return found


def _recovery(time: Callable[[float | None], str]) -> list[Column]:
    return [
        Column(
            "recovery.lost",
            "packets\nlost",
            "packets of all kinds that links which were down, dark or lossy took, or switches "
            "without a route; probes of dead paths too",
            lambda row: figure_of(row, "recovery.lost"),
            count,
            5,
        ),
        Column(
            "recovery.last_loss",
            "last lost\nafter",
            "from the first fault until a fault took the last packet",
            lambda row: figure_of(row, "recovery.last_loss"),
            time,
            3,
            "last\nlost",
        ),
        Column(
            "recovery.flows_hit",
            "flows\nhit",
            "queue pairs with data that lost packets",
            lambda row: figure_of(row, "recovery.flows_hit"),
            count,
            6,
        ),
        Column(
            "recovery.all_running",
            "all flows\nrun after",
            "the longest time from the first fault on that a flow which lost packets got none; "
            "never: some messages did not arrive",
            _all_running,
            time,
            0,
            "all\nrun",
        ),
    ]


def _routes_settled(time: Callable[[float | None], str]) -> Column:
    return Column(
        "recovery.routes_settled",
        "routes\nsettled",
        "from the loss of the first link until no switch's kernel sent towards a lost link",
        lambda row: figure_of(row, "recovery.routes_settled"),
        time,
        7,
    )


def _queue_pairs_failed() -> Column:
    return Column(
        "queue_pairs_failed",
        "QPs\nfailed",
        "queue pairs that gave up after too many retries",
        lambda row: figure_of(row, "queue_pairs_failed"),
        count,
        1,
    )


def _training(time: Callable[[float | None], str]) -> list[Column]:
    iterations = (
        ("before", "iteration\nbefore", "iter.\nbefore", 4, "median iteration before the fault"),
        ("longest", "\nlongest", "long-\nest", 2, "longest iteration that ended after the fault"),
        ("after", "\nlast", "", 4, "last iteration; never: the job did not get that far"),
    )
    return [
        *(
            Column(
                f"training.{key}",
                header,
                meaning,
                functools.partial(_iteration, key),
                time,
                rank,
                narrow,
            )
            for key, header, narrow, rank, meaning in iterations
        ),
        Column(
            "training.rolled_back",
            "rolled\nback",
            "whether the job would have gone back to its last checkpoint: an iteration took longer "
            "than the timeout, or a queue pair of it failed",
            lambda row: figure_of(row, "training.rolled_back"),
            lambda value: NONE if value is None else "yes" if value else "no",
            1,
        ),
        Column(
            "training.gpu_time_lost",
            "GPU time\nlost",
            "what iterations took longer than usual, or the stall up to the timeout and the "
            "iterations since the checkpoint, times the GPUs that wait",
            lambda row: figure_of(row, "training.gpu_time_lost"),
            gpu_time,
            0,
            "GPU\ntime",
        ),
    ]


def _all_running(row: Summary) -> float | None:
    value = figure_of(row, "recovery.all_running")
    return math.inf if value is None and "recovery" in row else value


def _iteration(key: str, row: Summary) -> float | None:
    value = figure_of(row, f"training.{key}")
    missed = key != "before" and figure_of(row, "training.unfinished")
    return math.inf if missed and (value is None or key == "after") else value
