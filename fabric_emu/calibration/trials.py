"""Calibrating: short runs of every scheme at falling rates, then the control run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric_emu.calibration.cache import Calibration
from fabric_emu.calibration.control import base_delay_s, control_scenario
from fabric_emu.calibration.search import MARGIN, best_of_three, highest
from fabric_emu.calibration.slower import slowed, slowest_factor
from fabric_emu.errors import HostUnfit
from fabric_emu.experiment import run_scheme
from fabric_emu.measure.fidelity import SERVICE_TOLERANCE
from fabric_emu.model.scale import data_frame_bytes
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.workload import OpenLoop
from fabric_emu.units import format_rate

TRIAL_S = 0.75
"""How long the hosts send in a trial, unless links are slow or very fast."""

_SERVED_SHARE = 0.65
"""Of the sending time the service of ports is measured, so much of it and no more."""

_PACKETS_MAX = 500_000
"""Packets of a trial: one at a rate far beyond the machine must not take its memory."""

Tell = Callable[[str], None]


def calibrate_scenario(scenario: Scenario, tell: Tell = lambda _: None) -> Calibration:
    """Find the highest rates, never above those asked, at which every scheme is trustworthy.

    Trials are run at more than the rates they are for: ``MARGIN`` of a trial's.

    Args:
        scenario: what is asked.
        tell: told of every trial, in a line.

    Raises:
        HostUnfit: the machine carries the scenario at no rate, or reorders without a reason.
        FabricError: a trial broke.
    """
    factor, lowest = 1.0, slowest_factor(scenario)
    for scheme in scenario.schemes:
        found = highest(_carries(scenario, scheme, tell), lowest, factor)
        if found is None:
            rate = format_rate(scenario.topology.link_rate * lowest / MARGIN)
            raise HostUnfit(
                f"scheme {scheme.name} is doubtful here even at {rate}",
                "end what else runs here, or a smaller fabric",
            )
        factor = found
    taken = slowed(scenario, factor)
    floor = _control(taken, tell)
    base = base_delay_s(taken.topology, floor)
    return Calibration(factor, taken.topology.link_rate, floor, base)


def _carries(scenario: Scenario, scheme: Scheme, tell: Tell) -> Callable[[float], bool]:
    def carries(factor: float) -> bool:
        trial = shortened(slowed(scenario, factor / MARGIN))
        rate = format_rate(trial.topology.link_rate)

        def once() -> bool:
            verdict = _run(trial, scheme)["verdict"]
            tell(f"{scheme.name} at {rate}: {(verdict['reasons'] or ['trustworthy'])[0]}")
            return bool(verdict["trustworthy"])

        return best_of_three(once)

    return carries


def shortened(scenario: Scenario) -> Scenario:
    """Return a scenario that sends for no longer than a verdict needs."""
    workload = scenario.workload
    duration = min(workload.duration, trial_s(scenario))
    return scenario.model_copy(
        update={"workload": workload.model_copy(update={"duration": duration})}
    )


def trial_s(scenario: Scenario) -> float:
    """Return how long a trial sends.

    Long enough that a packet more or less at both ends of the steady part is within the tolerance
    of a port's service; short enough for memory.
    """
    topology = scenario.topology
    slowest = min(topology.link_rate, topology.host_rate_bps)
    frame_s = data_frame_bytes(topology, scenario.workload.payload) * 8 / slowest
    seconds = max(TRIAL_S, 2 * frame_s / SERVICE_TOLERANCE / _SERVED_SHARE)
    if isinstance(scenario.workload, OpenLoop):
        offered = scenario.workload.table(topology, scenario.seed).rate_bps.sum()
        seconds = min(seconds, _PACKETS_MAX * scenario.workload.payload * 8 / max(offered, 1))
    return float(seconds)


def _control(scenario: Scenario, tell: Tell) -> float:
    """Run the control run until it is trustworthy and return the least delay in it."""
    control = control_scenario(scenario, trial_s(scenario))
    for _ in range(3):
        summary = _run(control, control.schemes[0])
        reordered, floor = summary["reordering"]["reordered"], summary["delay"]["min"]
        tell(f"control run: {reordered} reordered, delay floor {floor * 1e6:.0f} us")
        if reordered:
            raise HostUnfit(
                f"the control run, one path for every flow, had {reordered} packets reordered",
                "fabric-emu doctor",
            )
        if summary["verdict"]["trustworthy"]:
            return float(floor)
    reasons = "; ".join(summary["verdict"]["reasons"])
    raise HostUnfit(f"the control run is doubtful: {reasons}", "end what else runs here")


def _run(scenario: Scenario, scheme: Scheme) -> dict[str, Any]:
    return run_scheme(scenario, scheme, scenario.seed).summary
