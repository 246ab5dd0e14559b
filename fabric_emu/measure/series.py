"""Port counters over time, sampled while the hosts send."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.switch.ports import DropReason, offered_bytes

SAMPLES = 250
"""How many samples a run gives, to twice as many."""

FIRST_INTERVAL_S = 0.005

SAMPLES_MAX_BYTES = 1 << 28
"""With an interval of the user's choice: what the samples may take before they are thinned."""


class Sampler:
    """Copies the port table every now and then; costs microseconds, no system call.

    It begins with short intervals; whenever there are twice ``SAMPLES``, every other one goes and
    the interval doubles, so that short and long runs have as many. With an interval that was asked
    for, that happens only when memory asks for it.

    Args:
        ports: (ports,) the live port table.
        every_s: the interval; None: as above.
    """

    def __init__(self, ports: NDArray[np.void], every_s: float | None = None) -> None:
        self._ports = ports
        self._interval_s = every_s or FIRST_INTERVAL_S
        self._limit = 2 * SAMPLES
        if every_s is not None:
            self._limit = max(self._limit, SAMPLES_MAX_BYTES // ports.nbytes)
        self._next_s = 0.0
        self._times: list[float] = []
        self._samples: list[NDArray[np.void]] = []

    def next_s(self) -> float:
        """Return when the next sample is due, seconds after the start."""
        return self._next_s

    def sample(self, elapsed_s: float) -> None:
        """Take a sample if one is due."""
        if elapsed_s < self._next_s:
            return
        self._times.append(elapsed_s)
        self._samples.append(self._ports.copy())
        if len(self._times) >= self._limit:
            self._times, self._samples = self._times[::2], self._samples[::2]
            self._interval_s *= 2
        self._next_s = max(self._next_s + self._interval_s, elapsed_s)

    def series(self) -> dict[str, NDArray[Any]]:
        """Return what was sampled.

        Keys: ``time_s`` (samples,), seconds after the start; cumulative counters (samples, ports)
        uint64: ``offered_bytes`` (asked of the port, before any drop), ``enqueued_bytes``,
        ``departed_bytes``, ``dropped_bytes``, ``dropped_packets``, ``marked_packets``,
        ``trimmed_packets``; and ``depth_bytes`` (samples, ports) int64.
        """
        if not self._samples:
            return {"time_s": np.empty(0)}
        table = np.array(self._samples)
        dropped = table["dropped_bytes"].sum(axis=2)
        # What a dead link's queue lost had been enqueued before.
        from_queue = table["dropped_bytes"][:, :, DropReason.LINK_DOWN]
        gone = table["departed_bytes"] + from_queue
        # Read one after the other while others count: a depth may come out just below nothing.
        depth = (table["enqueued_bytes"] - gone).astype(np.int64)
        return {
            "time_s": np.array(self._times),
            "offered_bytes": offered_bytes(table),
            "enqueued_bytes": table["enqueued_bytes"],
            "departed_bytes": table["departed_bytes"],
            "dropped_bytes": dropped,
            "dropped_packets": table["dropped_packets"].sum(axis=2),
            "marked_packets": table["marked_packets"],
            "trimmed_packets": table["trimmed_packets"],
            "depth_bytes": np.maximum(depth, 0),
        }


def service(
    series: dict[str, NDArray[Any]], rates_bps: NDArray[np.int64], begin_s: float, end_s: float
) -> NDArray[np.float64]:
    """Return (ports,) the share of its rate at which each port sent between two times.

    NaN when the series has no two samples between them.
    """
    time = series["time_s"]
    first, last = np.searchsorted(time, begin_s), np.searchsorted(time, end_s, side="right") - 1
    if last <= first:
        return np.full(len(rates_bps), np.nan)
    sent = series["departed_bytes"][last] - series["departed_bytes"][first]
    share: NDArray[np.float64] = sent * 8 / (rates_bps * (time[last] - time[first]))
    return share
