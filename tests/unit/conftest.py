"""Results of a run, made up, for the tests of what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.topology import Topology
from fabric_emu.results.run import RunResult

ECMP = (0.675, 1.0125, 1.6875, 1.0125, 0.7875, 0.9, 0.675, 0.45)
"""Offered loads of eight uplinks: 64 flows of 11.25 % hashed with some seed."""

SPRAYED = (0.9,) * 8


@pytest.fixture
def hashed_loads() -> tuple[float, ...]:
    """Give offered loads as ECMP makes them: the worst of eight uplinks has 168.75 %."""
    return ECMP


def described(text: str) -> Scenario:
    """Return a scenario like the headline one, with these lines added to it."""
    return parse_scenario(
        "title: Eight flows per server\n"
        "topology: {leaves: 2, spines: 8, hosts_per_leaf: 8}\n"
        "workload: {pattern: pairs, flows_per_host: 8}\n"
        f"seed: 7\n{text}",
        "made-up.yaml",
    )


def summary(
    name: str, offered: tuple[float, ...] = SPRAYED, *, seed: int = 7, **changes: Any
) -> dict[str, Any]:
    """Return the summary of a scheme whose first leaf sends and whose second receives."""
    worst, mean = max(offered), sum(offered) / len(offered)
    worst_link = f"leaf1-spine{offered.index(worst) + 1}"
    carried = sum(min(load, 1.0) for load in offered)
    dropped = round(10_000 * (1 - carried / sum(offered)))
    return {
        "name": name,
        "seed": seed,
        "verdict": {"trustworthy": True, "reasons": [], "checks": []},
        "worst_uplink_load": worst,
        "worst_uplink": worst_link,
        "worst_link_load": worst,
        "worst_link": worst_link,
        "uplinks": {"leaf1": uplinks("leaf1", offered), "leaf2": uplinks("leaf2", (0.0,) * 8)},
        "imbalance": {
            "leaf1": {
                "max_over_mean": worst / mean,
                "range_over_mean": (worst - min(offered)) / mean,
                "jain": 1.0,
            }
        },
        "efficiency": carried / sum(offered),
        "reordering": {"ratio": 0.0, "max_extent": 0, "received": 10_000 - dropped},
        "delay": {"p50": 310e-6, "p99": 352e-6, "max": 0.0021},
        "packets": {
            "scheduled": 10_000,
            "sent": 10_000,
            "delivered": 10_000 - dropped,
            "dropped": {"queue_limit": dropped} if dropped else {},
            "trimmed": 0,
            "queued": 0,
        },
        "paths": {"agree": True, "used": 8},
        "prediction": {"offered": name != "mrc", "checked": 64, "matched": 64, "reason": ""},
        "lag": {"p50": 1e-5, "p99": 1e-4, "max": 1e-3},
        **changes,
    }


def uplinks(switch: str, offered: tuple[float, ...]) -> list[dict[str, Any]]:
    """Return the uplinks of a switch with these offered loads."""
    return [
        {
            "spine": f"spine{i}",
            "link": f"{switch}-spine{i}",
            "offered": load,
            "carried": min(load, 1.0),
        }
        for i, load in enumerate(offered, 1)
    ]


@dataclass(frozen=True)
class Result:
    """What a scheme's run returns, with two queue pairs and one port."""

    summary: dict[str, Any]
    flows: dict[str, list[Any]] = field(
        default_factory=lambda: {"qpn": [256, 257], "source": ["h1", "h2"], "load": [0.5, None]}
    )
    ports: dict[str, list[Any]] = field(
        default_factory=lambda: {"port": ["leaf1-spine1"], "enqueued": [10_000]}
    )
    series: dict[str, NDArray[Any]] = field(
        default_factory=lambda: {"time_s": np.array([0.0, 0.5, 1.0])}
    )
    reordering: dict[str, NDArray[Any]] = field(default_factory=dict)
    messages: dict[str, NDArray[Any]] = field(default_factory=dict)


@pytest.fixture
def summary_of() -> Callable[..., dict[str, Any]]:
    """Give a function that makes the summary of a scheme up: name, offered loads, changes."""
    return summary


@pytest.fixture
def result_of() -> Callable[..., Result]:
    """Give a function that makes the result of a scheme up, from its summary."""
    return Result


def measured(one: dict[str, Any], topology: Topology, messages: int = 0) -> Result:
    """Return a whole result of a scheme with this summary: as many arrays as a real one.

    Ports carry the offered loads of the summary's uplinks, evenly over a second; flow i goes
    whole by path i; messages take 0.1, 0.2 ... s, and ideally half of that.
    """
    ports = 2 * len(topology.links)
    offered = np.zeros(ports)
    for found in one["uplinks"].values():
        names = {uplink["link"]: uplink["offered"] for uplink in found}
        for link in topology.links:
            offered[link.up_port] = names.get(link.name, offered[link.up_port])
    time_s = np.linspace(0.01, 1.0, 50)
    rate = np.repeat([link.rate_bps for link in topology.links], 2)
    asked = (np.outer(time_s, offered * rate / 8)).astype(np.uint64)
    departed = (np.outer(time_s, np.minimum(offered, 1) * rate / 8)).astype(np.uint64)
    lost = (asked - departed) // 2
    series = {
        "time_s": time_s,
        "offered_bytes": asked,
        "enqueued_bytes": asked - lost,
        "departed_bytes": departed,
        "dropped_bytes": lost,
        "dropped_packets": lost // 1000,
        "marked_packets": np.zeros_like(asked),
        "trimmed_packets": np.zeros_like(asked),
        "depth_bytes": (asked - lost - departed).astype(np.int64),
    }
    ends = [(link.lower.name, link.upper.name) for link in topology.links]
    port_columns: dict[str, list[Any]] = {
        "port": list(range(ports)),
        "from": [name for lower, upper in ends for name in (lower, upper)],
        "to": [name for lower, upper in ends for name in (upper, lower)],
        "offered": offered.tolist(),
        "carried": np.minimum(offered, 1).tolist(),
        "dropped_queue_limit": (lost[-1] // 1000).tolist(),
        "high_water_bytes": series["depth_bytes"].max(axis=0).tolist(),
    }
    flows: dict[str, list[Any]] = {
        "flow": [0, 1, 2, 0, 1, 2],
        "carries": ["data"] * 3 + ["answers"] * 3,
        "source": ["h1", "h2", "h3", "h9", "h10", "h11"],
        "destination": ["h9", "h10", "h11", "h1", "h2", "h3"],
    }
    for path in range(1, 4):
        flows[f"delivered_bytes_path_{path}"] = [
            1_000_000 * (i == path - 1) + 64 * (i >= 3) for i in range(6)
        ]
    reordering = {
        "displacement": np.array([-1, 0, 2]),
        "displacement_share": np.array([0.2, 0.7, 0.1]),
        "waiting_packets": np.array([0, 1]),
        "waiting_share": np.array([0.8, 0.2]),
    }
    return Result(one, flows, port_columns, series, reordering, _messages(messages))


def _messages(count: int) -> dict[str, NDArray[Any]]:
    if not count:
        return {}
    taken = np.arange(1, count + 1) / 10
    row = np.arange(count)
    return {
        "message": row,
        "source": row % 8,
        "destination": row % 8 + 8,
        "size_bytes": np.full(count, 65536),
        "step": row,
        "iteration": row % 2,
        "occurrence": row % 2,
        "start_s": np.zeros(count),
        "taken_s": taken,
        "ideal_s": taken / 2,
        "collective_name": np.array(["permutation", "permutation"]),
        "collective_iteration": np.array([0, 1]),
        "collective_begin_s": np.zeros(2),
        "collective_taken_s": taken[-2:],
        "collective_ideal_s": taken[-2:] / 2,
        "goodput_edges_s": np.array([0.0, 1.0, 2.0]),
        "goodput_bps": np.array([4e6, 1e6]),
    }


@pytest.fixture
def measured_of() -> Callable[..., Result]:
    """Give a function that makes a whole result up: summary, topology, number of messages."""
    return measured


@pytest.fixture
def run_of() -> Callable[..., RunResult]:
    """Give a function that makes a complete run up, from summaries."""

    def run(
        *summaries: dict[str, Any],
        seeds: tuple[int, ...] = (7,),
        text: str = "schemes: [ecmp, mrc]\n",
    ) -> RunResult:
        made = RunResult.begin("holbrook", described(text), seeds, {"kernel": "6.12"})
        for one in summaries:
            made = made.with_scheme(Result(one))
        return made.ended("complete")

    return run


@pytest.fixture
def whole_run_of() -> Callable[..., RunResult]:
    """Give a function that makes a run with all its arrays up: summaries, scenario, messages."""

    def run(*summaries: dict[str, Any], text: str = "", messages: int = 0) -> RunResult:
        scenario = described(text or "schemes: [ecmp, mrc]\n")
        made = RunResult.begin("holbrook", scenario, (7,), {"kernel": "6.12"})
        for one in summaries:
            made = made.with_scheme(measured(one, scenario.topology, messages))
        return made.ended("complete")

    return run


def finished(seconds: float | None, *, ideal: float = 0.2, unfinished: int = 0) -> dict[str, Any]:
    """Return what a workload of messages adds to a summary: its slowest collective's time."""
    over = None if seconds is None else seconds / ideal
    completion = {
        "p50": seconds, "p99": seconds, "max": seconds, "ideal": ideal, "over_ideal": over,
        "over_ideal_p50": over, "over_ideal_p99": over, "count": 1, "unfinished": unfinished,
    }  # fmt: skip
    return {
        "completion": completion,
        "messages": {**completion, "count": 20},
        "algbw": 8e6 if seconds else 0.0,
        "busbw": 14e6 if seconds else 0.0,
        "retransmitted": 3,
        "queue_pairs_failed": 0,
    }


@pytest.fixture
def finished_in() -> Callable[..., dict[str, Any]]:
    """Give a function that makes up what messages add to a summary."""
    return finished
