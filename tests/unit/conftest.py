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
