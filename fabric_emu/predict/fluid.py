"""Loads of all ports when flows are streams that overloaded ports thin out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.numbering import MAX_HOPS


@dataclass(frozen=True)
class Loads:
    """Loads over port rate.

    Attributes:
        offered: (runs, ports) asked of each port, before it drops.
        carried: (runs, ports) what is left of it, at most 1.
        delivered: (streams,) share of each stream's rate that arrives.
    """

    offered: NDArray[np.float64]
    carried: NDArray[np.float64]
    delivered: NDArray[np.float64]


def link_loads(
    stages: NDArray[np.int64],
    rate_bps: NDArray[np.float64],
    port_rates_bps: NDArray[np.float64],
    run: NDArray[np.int64] | None = None,
    runs: int = 1,
) -> Loads:
    """Return the loads that streams on given paths cause.

    A port asked for more than its rate drops the same share of every stream. Paths go up and then
    down, and no port belongs to two stages, so one pass over the stages is exact.

    Args:
        stages: (streams, MAX_HOPS) from ``Placement.stages``.
        rate_bps: (streams,).
        port_rates_bps: (ports,).
        run: (streams,) which run each stream is of: runs do not share links. None: all the first.
        runs: how many.

    Fidelity: no queues. Bursts that overflow a port under 100 % lose nothing here, and what waits
    in queues at the end of a run counts as lost.
    """
    ports = len(port_rates_bps)
    room = np.tile(port_rates_bps, runs)
    offered = np.zeros(runs * ports)
    left = np.array(rate_bps, np.float64)
    for stage in range(MAX_HOPS):
        there = np.flatnonzero(stages[:, stage] >= 0)
        port = stages[there, stage]
        if run is not None:
            port = port + run[there] * ports
        asked = np.bincount(port, left[there], runs * ports) / room
        left[there] /= np.maximum(asked, 1)[port]
        offered += asked
    by_run = offered.reshape(runs, ports)
    return Loads(by_run, np.minimum(by_run, 1), left / rate_bps)
