"""DCQCN: rates cut by congestion notification packets (CNP), recovered by timer and bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.batches import distinct, first_of_each

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DcqcnSettings:
    """Constants of DCQCN.

    Attributes:
        cnp_interval_s: the receiver sends at most one CNP per queue pair in this time.
        period_s: of the timer that lowers alpha and raises the rate.
        gain: g, weight of the newest sample in alpha.
        counter_bytes: B, bytes sent between two increases that the time does not bring.
        recovery_stages: F, increases of each kind before the target rate itself is raised.
        additive_bps, hyper_bps: steps of the target rate.
        minimum_bps: no cut goes below.
    """

    cnp_interval_s: float
    period_s: float
    gain: float
    counter_bytes: int
    recovery_stages: int
    additive_bps: float
    hyper_bps: float
    minimum_bps: float

    @classmethod
    def scaled(cls, line_rate_bps: float, scale: float) -> DcqcnSettings:
        """Return the constants for an emulated link.

        Args:
            line_rate_bps: of the emulated link.
            scale: how many times slower it is than the link it stands for. Times grow by it,
                rates are shares of the line rate, bytes stay.

        Source:
            ``sim/dcqcn.cpp`` of uet-htsim. The lowest rate, a thousandth of the line, is the
            100 Mbit/s at 100 Gbit/s of the HPCC authors' ns-3 model.
        """
        return cls(
            cnp_interval_s=50e-6 * scale,
            period_s=55e-6 * scale,
            gain=1 / 256,
            counter_bytes=10_000_000,
            recovery_stages=5,
            additive_bps=line_rate_bps / 20,
            hyper_bps=line_rate_bps / 10,
            minimum_bps=line_rate_bps / 1000,
        )


class Dcqcn:
    """The reaction point: one sending rate per queue pair.

    A queue pair is not limited before its first CNP: it sends at line rate and its alpha is 1.

    Source:
        Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
        section 3; ``sim/dcqcn.cpp`` of uet-htsim.

    Fidelity:
        Bytes sent count from the last increase they brought, without loss of the remainder.
        As in the simulator the target rate may pass the line rate, so that the rate reaches it.
        Vendors' extra knobs (rate reduce period, largest cut, clamped target) are left out.

    Attributes:
        rate_bps: (queue pairs,) current rate, between the minimum and the line.
        target_bps: (queue pairs,) rate that recovery heads for.
        alpha: (queue pairs,) estimate of congestion, 0 to 1.
        cuts: CNPs acted upon.
    """

    def __init__(self, queue_pairs: int, line_rate_bps: float, settings: DcqcnSettings) -> None:
        self.settings = settings
        self.line_rate_bps = float(line_rate_bps)
        self.rate_bps = np.full(queue_pairs, self.line_rate_bps)
        self.target_bps = self.rate_bps.copy()
        self.alpha = np.ones(queue_pairs)
        self.cuts = 0
        self._expiries = np.zeros(queue_pairs, np.int64)
        self._laps = np.zeros(queue_pairs, np.int64)
        self._bytes = np.zeros(queue_pairs)
        # Infinite until the first CNP: no timer runs.
        self._timer_s = np.full(queue_pairs, np.inf)

    def on_cnp(self, rows: Ints, now_s: float) -> None:
        """Cut the rates of queue pairs that got a CNP; one that occurs twice is cut twice."""
        if not len(rows):
            return
        self.advance(now_s)
        batch = distinct(rows, len(self.rate_bps))
        g = self.settings.gain
        for turn in range(int(batch.events.max())):
            hit = batch.rows[batch.events > turn]
            self.target_bps[hit] = self.rate_bps[hit]
            cut = self.rate_bps[hit] * (1 - self.alpha[hit] / 2)
            self.rate_bps[hit] = np.maximum(cut, self.settings.minimum_bps)
            self.alpha[hit] = (1 - g) * self.alpha[hit] + g
        self._expiries[batch.rows] = 0
        self._laps[batch.rows] = 0
        self._bytes[batch.rows] = 0
        self._timer_s[batch.rows] = now_s
        self.cuts += len(rows)

    def on_sent(self, rows: Ints, bytes_: Ints) -> None:
        """Count bytes sent; rows may repeat."""
        limited = self._timer_s < np.inf
        if not limited.any():
            return
        sent = np.bincount(rows, bytes_, len(self.rate_bps))
        self._bytes += np.where(limited, sent, 0)
        while len(full := np.flatnonzero(self._bytes >= self.settings.counter_bytes)):
            self._bytes[full] -= self.settings.counter_bytes
            self._laps[full] += 1
            self._increase(full)

    def advance(self, now_s: float) -> None:
        """Let the timers catch up: all periods that have ended since the last time."""
        due = np.flatnonzero(self._timer_s <= now_s - self.settings.period_s)
        if not len(due):
            return
        elapsed = now_s - self._timer_s[due]
        periods = np.maximum(np.floor(elapsed / self.settings.period_s), 1).astype(np.int64)
        self._timer_s[due] += periods * self.settings.period_s
        self.alpha[due] *= (1 - self.settings.gain) ** periods
        # At line rate nothing more can come of an increase, so a long sleep ends early.
        while len(due):
            self._expiries[due] += 1
            self._increase(due)
            periods -= 1
            more = (periods > 0) & (self.rate_bps[due] < self.line_rate_bps)
            due, periods = due[more], periods[more]

    def _increase(self, rows: Ints) -> None:
        rows = rows[self.rate_bps[rows] < self.line_rate_bps]
        stages = self.settings.recovery_stages
        by_time, by_bytes = self._expiries[rows], self._laps[rows]
        beyond = np.minimum(by_time, by_bytes) - stages
        additive = (np.maximum(by_time, by_bytes) > stages) & (beyond <= 0)
        step = np.where(additive, self.settings.additive_bps, 0.0)
        step += self.settings.hyper_bps * np.maximum(beyond, 0)
        self.target_bps[rows] += step
        middle = (self.target_bps[rows] + self.rate_bps[rows]) / 2
        self.rate_bps[rows] = np.minimum(middle, self.line_rate_bps)


class CnpGate:
    """The notification point: which marked packets make the receiver send a CNP.

    Source:
        Zhu et al., SIGCOMM 2015, section 3.1: at most one CNP per flow and interval.

    Fidelity:
        A marked packet within the interval is forgotten; no CNP follows at the interval's end.

    Attributes:
        passed, held: marked packets answered, and not.
    """

    def __init__(self, queue_pairs: int, interval_s: float) -> None:
        self.interval_s = interval_s
        self.passed = 0
        self.held = 0
        self._last_s = np.full(queue_pairs, -np.inf)
        self._scratch = np.zeros(queue_pairs, np.int32)

    def pass_(self, rows: Ints, now_s: float) -> NDArray[np.bool_]:
        """Return (n,) which of the marked packets, one row each, are answered by a CNP."""
        due = now_s - self._last_s[rows] >= self.interval_s
        due &= first_of_each(rows, self._scratch)
        self._last_s[rows[due]] = now_s
        count = int(np.count_nonzero(due))
        self.passed += count
        self.held += len(rows) - count
        return due
