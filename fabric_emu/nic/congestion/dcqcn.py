"""DCQCN: rates cut by congestion notification packets (CNP), recovered by timer and bytes."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled


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


_CONSTANTS = np.dtype([(field.name, np.float64) for field in fields(DcqcnSettings)])
_Constants = Annotated[NDArray[np.void], _CONSTANTS]
_PAIR = np.dtype(
    [
        ("target_bps", np.float64),
        ("alpha", np.float64),
        ("expiries", np.int64),  # of the timer, since the last cut
        ("laps", np.int64),  # of the byte counter
        ("bytes", np.int64),  # of this lap
        ("timer_s", np.float64),  # infinite until the first CNP: no timer runs
    ]
)
_Pairs = Annotated[NDArray[np.void], _PAIR]


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
        self.cuts = 0
        self._constants = np.array([astuple(settings)], _CONSTANTS)
        self._pairs = np.zeros(queue_pairs, _PAIR)
        self.target_bps: Floats = self._pairs["target_bps"]
        self.alpha: Floats = self._pairs["alpha"]
        self.target_bps[:] = self.line_rate_bps
        self.alpha[:] = 1
        self._pairs["timer_s"] = np.inf

    def on_cnp(self, rows: Ints, now_s: float) -> None:
        """Cut the rates of queue pairs that got a CNP; one that occurs twice is cut twice."""
        if not len(rows):
            return
        self.advance(now_s)
        _cut(self._pairs, self.rate_bps, self._constants, np.ascontiguousarray(rows), now_s)
        self.cuts += len(rows)

    def on_sent(self, rows: Ints, bytes_: Ints) -> None:
        """Count bytes sent; rows may repeat."""
        if len(rows) and self.cuts:
            _count(self._pairs, self.rate_bps, self._constants, self.line_rate_bps, rows, bytes_)

    def advance(self, now_s: float) -> None:
        """Let the timers catch up: all periods that have ended since the last time."""
        if self.cuts:
            _advance(self._pairs, self.rate_bps, self._constants, self.line_rate_bps, now_s)


@compiled
def _cut(pairs: _Pairs, rate: Floats, constants: _Constants, rows: Ints, now_s: float) -> None:
    c = constants[0]
    for row in rows:
        pair = pairs[row]
        pair.target_bps = rate[row]
        rate[row] = max(rate[row] * (1 - pair.alpha / 2), c.minimum_bps)
        pair.alpha = (1 - c.gain) * pair.alpha + c.gain
        pair.expiries = pair.laps = pair.bytes = 0
        pair.timer_s = now_s


@compiled
def _increase(
    pairs: _Pairs, rate: Floats, constants: _Constants, line_rate: float, row: int
) -> None:
    c, pair = constants[0], pairs[row]
    if rate[row] >= line_rate:
        return
    beyond = min(pair.expiries, pair.laps) - c.recovery_stages
    if beyond > 0:
        pair.target_bps += beyond * c.hyper_bps
    elif max(pair.expiries, pair.laps) > c.recovery_stages:
        pair.target_bps += c.additive_bps
    rate[row] = min((pair.target_bps + rate[row]) / 2, line_rate)


@compiled
def _count(
    pairs: _Pairs,
    rate: Floats,
    constants: _Constants,
    line_rate: float,
    rows: Ints,
    bytes_: Ints,
) -> None:
    lap = int(constants[0].counter_bytes)
    for i in range(len(rows)):
        pair = pairs[rows[i]]
        if pair.timer_s == np.inf:
            continue
        pair.bytes += bytes_[i]
        while pair.bytes >= lap:
            pair.bytes -= lap
            pair.laps += 1
            _increase(pairs, rate, constants, line_rate, rows[i])


@compiled
def _advance(
    pairs: _Pairs, rate: Floats, constants: _Constants, line_rate: float, now_s: float
) -> None:
    c = constants[0]
    for row in range(len(pairs)):
        pair = pairs[row]
        if pair.timer_s > now_s - c.period_s:
            continue
        periods = max(int((now_s - pair.timer_s) / c.period_s), 1)
        pair.timer_s += periods * c.period_s
        pair.alpha *= (1 - c.gain) ** periods
        for _ in range(periods):
            pair.expiries += 1
            _increase(pairs, rate, constants, line_rate, row)
            if rate[row] >= line_rate:
                break  # nothing more can come of an increase


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

    def pass_(self, rows: Ints, now_s: float) -> Bools:
        """Return (n,) which of the marked packets, one row each, are answered by a CNP."""
        due, passed = _pass(self._last_s, rows, now_s, self.interval_s)
        self.passed += passed
        self.held += len(rows) - passed
        return due


@compiled
def _pass(last_s: Floats, rows: Ints, now_s: float, interval_s: float) -> tuple[Bools, int]:
    due = np.zeros(len(rows), np.bool_)
    passed = 0
    for i in range(len(rows)):
        if now_s - last_s[rows[i]] >= interval_s:
            last_s[rows[i]] = now_s
            due[i] = True
            passed += 1
    return due, passed
