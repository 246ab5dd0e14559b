"""A scenario slowed down: every rate in it by one factor, so that all loads stay what they are."""

from __future__ import annotations

from typing import Any

from fabric_emu.model.scenario import Scenario

RATE_MIN_BPS = 1_000_000
"""No link of a calibrated fabric is slower."""


def slowest_factor(scenario: Scenario) -> float:
    """Return the factor that brings the slowest kind of link to ``RATE_MIN_BPS``; 1 at most."""
    topology = scenario.topology
    return min(1.0, RATE_MIN_BPS / min(topology.link_rate, topology.host_rate_bps))


def slowed(scenario: Scenario, factor: float) -> Scenario:
    """Return the scenario with its rates times ``factor``, rounded down, and ``rate: exact``.

    Rates are those of links, of what a fault leaves of them, and of flows that name theirs. Times
    and sizes stay as they are: those that stand for hardware's follow the link rate by themselves.

    Args:
        scenario: what is asked.
        factor: over 0; over 1 makes it faster.
    """
    data = scenario.model_dump(by_alias=True)

    def slow(section: dict[str, Any], *keys: str) -> None:
        for key in keys:
            if section.get(key) is not None:
                section[key] = max(int(section[key] * factor), 1)

    data["topology"]["rate"] = "exact"
    slow(data["topology"], "link_rate", "host_rate")
    rates = data["topology"]["spine_rates"]
    data["topology"]["spine_rates"] = [max(int(rate * factor), 1) for rate in rates]
    for fault in data["faults"]:
        slow(fault, "rate")
    flows = data["workload"].get("flows", ())
    for flow in flows:
        slow(flow, "rate")
    # Validated anew: a copy would keep what was derived from the former rates.
    return Scenario.model_validate(data)
