"""What faults cost, in a clause."""

from __future__ import annotations

from typing import Any

from fabric_emu.results.columns import Summary
from fabric_emu.results.describe import plural
from fabric_emu.results.figures import duration, gpu_time


def recovery_clause(summary: Summary) -> str:
    """Return how long flows stood still; empty for runs without faults."""
    recovery: dict[str, Any] | None = summary.get("recovery")
    if not recovery:
        return ""
    if (last := recovery["last_loss"]) is None:
        return "faults took no packet"
    text = f"faults took packets for {duration(last, ascii_only=False)}"
    if (silent := recovery["all_running"]) is None:
        return f"{text}, and not all flows ran again"
    if not recovery["flows_hit"]:
        return f"{text}, none of them data"
    still = duration(silent, ascii_only=False)
    return f"{text}, and flows that lost some stood still for {still} at most"


def training_clause(summary: Summary) -> str:
    """Return what a training job lost; empty for other workloads and runs without faults."""
    training: dict[str, Any] | None = summary.get("training")
    if not training:
        return ""
    lost = f"{gpu_time(training['gpu_time_lost'])} of {plural(training['gpus'], 'GPU')} are lost"
    if training["rolled_back"]:
        redone = duration(training["redone"], ascii_only=False)
        return (
            f"the job stalled in iteration {training['stalled_in'] + 1} and went back to its "
            f"checkpoint, {redone} of work before: {lost}"
        )
    longest, before = training["longest"], training["before"]
    if longest is None or before is None:
        return lost
    times = [duration(time, ascii_only=False) for time in (longest, before)]
    return f"an iteration took {times[0]} instead of {times[1]}: {lost}"
