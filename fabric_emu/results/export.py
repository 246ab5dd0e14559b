"""Results in the formats of other tools: nccl-tests' table, Prometheus' text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabric_emu.errors import ScenarioError
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.figures import printable
from fabric_emu.results.run import RunResult
from fabric_emu.results.summaries import figure_of
from fabric_emu.units import format_rate

_FLOAT_BYTES = 4
_REDUCING = ("ring-all-reduce", "ring-reduce-scatter")


def nccl_tests(run: RunResult) -> str:
    """Return a block like that of nccl-tests for every scheme and seed.

    Times and bandwidths are those of the real thing when the scenario says what its links stand
    for, else the emulated ones; the comment above each block says which. There is no in-place
    variant, and nothing is computed that could be wrong: those columns say N/A.

    Raises:
        ScenarioError: the run was no collective.

    Source: github.com/NVIDIA/nccl-tests, src/common.cu and doc/PERFORMANCE.md.
    """
    scenario = Scenario.model_validate(run.scenario)
    workload = scenario.workload
    if not isinstance(workload, Messages):
        raise ScenarioError("--format", "nccl-tests", "a run of a collective (kind: messages)")
    lines = [line for row in run.schemes for line in _block(run, scenario, workload, row)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _block(
    run: RunResult, scenario: Scenario, workload: Messages, summary: Mapping[str, Any]
) -> Iterator[str]:
    topology = scenario.topology
    ranks = len(workload.place(topology, int(summary["seed"])))
    links = f"{format_rate(topology.link_rate)} links"
    scale = topology.scale
    if topology.stands_for:
        links = f"{format_rate(topology.stands_for)} links, emulated {scale:,.0f} times slower"
    trusted = "trustworthy" if summary["verdict"]["trustworthy"] else "doubtful, see run.json"
    yield f"# {printable(run.name)}: {workload.collective}, {ranks} ranks, {links}"
    yield f"# scheme {summary['name']}, seed {summary['seed']}; verdict: {trusted}"
    yield "#"
    yield f"# {'':58}{'out-of-place':^33}{'in-place':^33}"
    yield (
        f"# {'size':>12}{'count':>14}{'type':>10}{'redop':>8}{'root':>8}"
        f"{'time':>12}{'algbw':>8}{'busbw':>8} {'#wrong':>6}"
        f"{'time':>12}{'algbw':>8}{'busbw':>8} {'#wrong':>6}"
    )
    yield (
        f"# {'(B)':>12}{'(elements)':>14}{'':26}"
        f"{'(us)':>12}{'(GB/s)':>8}{'(GB/s)':>8} {'':6}{'(us)':>12}{'(GB/s)':>8}{'(GB/s)':>8}"
    )
    algbw, busbw = (figure_of(summary, name) or 0.0 for name in ("algbw", "busbw"))
    # nccl-tests: algbw is the size over the mean time.
    time_us = workload.size * 8 / algbw / scale * 1e6 if algbw else math.inf
    operation = "sum" if workload.collective in _REDUCING else "none"
    root = 0 if workload.collective in ("broadcast", "incast") else -1
    yield (
        f"  {workload.size:>12}{workload.size // _FLOAT_BYTES:>14}{'float':>10}{operation:>8}"
        f"{root:>8}{_fixed(time_us):>12}{_gigabytes(algbw * scale):>8}"
        f"{_gigabytes(busbw * scale):>8} {'N/A':>6}{'N/A':>12}{'N/A':>8}{'N/A':>8} {'N/A':>6}"
    )
    yield f"# Avg bus bandwidth    : {busbw * scale / 8e9:.6g}"
    yield ""


def _fixed(time_us: float) -> str:
    if math.isinf(time_us):
        return "never"
    return f"{time_us:.2f}" if time_us < 1e7 else f"{time_us:.0f}"


def _gigabytes(rate_bps: float) -> str:
    """Return GB/s, with three digits also of what emulated links alone make."""
    value = rate_bps / 8e9
    return f"{value:.2f}" if value >= 1 or not value else f"{value:.2g}"


_FIGURES = {
    "worst_uplink_load_ratio": ("worst_uplink_load", "Load offered to the busiest uplink."),
    "worst_link_load_ratio": ("worst_link_load", "Load offered to the busiest link."),
    "efficiency_ratio": ("efficiency", "Packets delivered over offered; needed over sent."),
    "reordered_ratio": ("reordering.ratio", "Packets that came behind a later one (RFC 4737)."),
    "reordering_extent_packets": ("reordering.max_extent", "Largest reordering extent."),
    "reorder_buffer_bytes": ("reordering.buffer_bytes", "Reorder buffer that a flow needs."),
    "completion_seconds": ("completion.max", "Time of the slowest collective."),
    "completion_over_ideal_ratio": ("completion.over_ideal", "That time over the ideal, at most."),
    "collectives_unfinished": ("completion.unfinished", "Collectives that never finished."),
    "algbw_bits_per_second": ("algbw", "Algorithm bandwidth, as nccl-tests count it."),
    "busbw_bits_per_second": ("busbw", "Bus bandwidth, as nccl-tests count it."),
    "retransmitted_packets": ("retransmitted", "Packets sent again."),
    "timeouts": ("timeouts", "Retransmission timeouts."),
    "queue_pairs_failed": ("queue_pairs_failed", "Queue pairs that gave up."),
    "packets_lost_by_faults": ("recovery.lost", "Packets that faults took."),
    "last_loss_seconds": ("recovery.last_loss", "From the first fault to the last packet it took."),
    "flows_hit": ("recovery.flows_hit", "Queue pairs that lost packets."),
    "all_running_seconds": (
        "recovery.all_running",
        "The longest time after the first fault that a flow hit got nothing.",
    ),
    "routes_settled_seconds": (
        "recovery.routes_settled",
        "From the loss of the first link until no switch sent towards a lost link.",
    ),
    "iteration_before_seconds": ("training.before", "Median iteration before the first fault."),
    "iteration_longest_seconds": ("training.longest", "Longest iteration after it."),
    "iteration_after_seconds": ("training.after", "Last iteration after it."),
    "rolled_back": ("training.rolled_back", "1 when the job goes back to its last checkpoint."),
    "gpu_time_lost_seconds": ("training.gpu_time_lost", "Time lost over all GPUs."),
    "ecn_marked_packets": ("ecn_marked", "Packets marked by a filling queue."),
    "trimmed_packets": ("packets.trimmed", "Packets cut to their headers."),
    "sent_packets": ("packets.sent", "Packets handed to the kernel."),
    "delivered_packets": ("packets.delivered", "Packets received."),
}

Sample = tuple[dict[str, str], float]


def prometheus(run: RunResult) -> str:
    """Return every scheme's figures as gauges in Prometheus' text format, in emulated units.

    Source: prometheus.io, exposition formats, text-based format 0.0.4.
    """
    families: list[tuple[str, str, list[Sample]]] = []
    rows = [(_labels(run, summary), summary) for summary in run.schemes]
    for name, (figure, meaning) in _FIGURES.items():
        samples = [(labels, figure_of(summary, figure)) for labels, summary in rows]
        known = [(labels, value) for labels, value in samples if value is not None]
        families.append((name, meaning, known))
    trusted = [(labels, float(summary["verdict"]["trustworthy"])) for labels, summary in rows]
    delays = [
        ({**labels, "quantile": quantile}, value)
        for labels, summary in rows
        for quantile, key in (("0.5", "p50"), ("0.99", "p99"), ("1", "max"))
        if (value := figure_of(summary, f"delay.{key}")) is not None
    ]
    drops = [
        ({**labels, "reason": str(reason)}, float(count))
        for labels, summary in rows
        for reason, count in summary["packets"]["dropped"].items()
    ]
    uplinks = [
        ({**labels, "switch": switch, "link": uplink["link"]}, float(uplink["offered"]))
        for labels, summary in rows
        for switch, found in summary["uplinks"].items()
        for uplink in found
    ]
    families += [
        ("trustworthy", "1 when the fidelity verdict is trustworthy.", trusted),
        ("delay_seconds", "One-way delay of packets.", delays),
        ("dropped_packets", "Packets lost, by reason.", drops),
        ("uplink_offered_ratio", "Load offered to each uplink.", uplinks),
    ]
    return "".join(_family(name, meaning, samples) for name, meaning, samples in families)


def _labels(run: RunResult, summary: Mapping[str, Any]) -> dict[str, str]:
    return {"run": run.name, "scheme": str(summary["name"]), "seed": str(summary["seed"])}


def _family(name: str, meaning: str, samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    full = f"fabric_emu_{name}"
    lines = [f"# HELP {full} {meaning}", f"# TYPE {full} gauge"]
    for labels, value in samples:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{full}{{{pairs}}} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
