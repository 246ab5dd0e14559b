"""DCQCN and the pacer that keeps its rates: values worked out by hand, and a scalar reading."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.congestion.dcqcn import CnpGate, Dcqcn, DcqcnSettings
from fabric_emu.nic.congestion.pacer import Pacer

LINE = 50e6
SCALE = 8000  # 400 Gbit/s at 50 Mbit/s


def column(*values):
    return np.array(values, np.int64)


def dcqcn(queue_pairs=1):
    return Dcqcn(queue_pairs, LINE, DcqcnSettings.scaled(LINE, SCALE))


def test_dcqcn_constants_scale_times_and_keep_bytes():
    settings = DcqcnSettings.scaled(LINE, SCALE)
    assert settings.cnp_interval_s == pytest.approx(0.4)
    assert settings.period_s == pytest.approx(0.44)
    assert settings.counter_bytes == 10_000_000
    assert settings.additive_bps == 2.5e6
    assert settings.hyper_bps == 5e6


def test_dcqcn_by_hand():
    control = dcqcn()
    period = control.settings.period_s
    control.on_cnp(column(0), 0.0)
    assert control.rate_bps[0] == LINE / 2  # alpha 1 takes half
    assert control.alpha[0] == 1
    control.on_cnp(column(0), 0.1)
    assert control.rate_bps[0] == LINE / 4
    assert control.target_bps[0] == LINE / 2

    control.advance(0.1 + 1.5 * period)
    assert control.alpha[0] == 255 / 256
    assert control.rate_bps[0] == pytest.approx(LINE * 3 / 8)  # half way to the target
    # Five recoveries leave a 2^-5 of the gap of 1/4; the sixth step is additive, 1/20.
    control.advance(0.1 + 5.5 * period)
    assert control.rate_bps[0] == pytest.approx(LINE * (1 / 2 - 1 / 4 / 2**5))
    control.advance(0.1 + 6.5 * period)
    assert control.target_bps[0] == pytest.approx(LINE * 11 / 20)
    rate = (11 / 20 + 1 / 2 - 1 / 4 / 2**5) / 2
    assert control.rate_bps[0] == pytest.approx(LINE * rate)
    # With five laps of the byte counter behind it, the sixth increases by the hyper step.
    control.on_sent(column(0, 0), column(59_999_999, 1))
    assert control.target_bps[0] == pytest.approx(LINE * (11 / 20 + 5 / 20 + 1 / 10))
    assert control.cuts == 2


def test_dcqcn_without_cnp_stays_at_line_rate():
    control = dcqcn()
    control.on_sent(column(0), column(10**9))
    control.advance(1e6)
    assert control.rate_bps[0] == LINE
    assert control.alpha[0] == 1


class ScalarDcqcn:
    """One queue pair, period by period."""

    def __init__(self, settings):
        self.s = settings
        self.rate = self.target = LINE
        self.alpha, self.t, self.b, self.bytes, self.timer = 1.0, 0, 0, 0, None

    def increase(self):
        if self.rate >= LINE:
            return
        if max(self.t, self.b) > 5:
            beyond = min(self.t, self.b) - 5
            self.target += beyond * self.s.hyper_bps if beyond > 0 else self.s.additive_bps
        self.rate = min((self.rate + self.target) / 2, LINE)

    def cnp(self, now):
        self.target = self.rate
        self.rate = max(self.rate * (1 - self.alpha / 2), self.s.minimum_bps)
        self.alpha = (1 - self.s.gain) * self.alpha + self.s.gain
        self.t = self.b = self.bytes = 0
        self.timer = now

    def sent(self, n):
        if self.timer is None:
            return
        self.bytes += n
        while self.bytes >= self.s.counter_bytes:
            self.bytes -= self.s.counter_bytes
            self.b += 1
            self.increase()

    def advance(self, now):
        while self.timer is not None and self.timer <= now - self.s.period_s:
            self.timer += self.s.period_s
            self.alpha *= 1 - self.s.gain
            self.t += 1
            self.increase()


@pytest.mark.parametrize("seed", range(6))
def test_dcqcn_as_one_queue_pair_at_a_time(seed):
    # Times in sixteenths of a second and a period of 1/4 s: exact in binary, so that both
    # readings see a timer run out in the same step.
    constants = DcqcnSettings.scaled(LINE, 0.25 / 55e-6)
    draw = np.random.default_rng(seed)
    control = Dcqcn(4, LINE, constants)
    scalars = [ScalarDcqcn(constants) for _ in range(4)]
    now = 0.0
    for _ in range(150):
        now += int(draw.choice([0, 1, 3, 4, 9, 200], p=[0.2, 0.2, 0.2, 0.2, 0.19, 0.01])) / 16
        cnps = draw.integers(0, 4, draw.choice([0, 1, 4], p=[0.8, 0.1, 0.1]))
        senders = draw.integers(0, 4, draw.integers(0, 5))
        sent = draw.integers(0, 15_000_000, len(senders))
        control.advance(now)
        control.on_cnp(cnps, now)
        control.on_sent(senders, sent)
        for scalar in scalars:
            scalar.advance(now)
        for row in cnps:
            scalars[row].cnp(now)
        for row, n in zip(senders, sent, strict=True):
            scalars[row].sent(n)
        np.testing.assert_allclose(control.rate_bps, [s.rate for s in scalars])
        np.testing.assert_allclose(control.alpha, [s.alpha for s in scalars])
        assert (control.rate_bps >= constants.minimum_bps).all()
        assert (control.rate_bps <= LINE).all()


def test_cnp_gate_passes_one_per_queue_pair_and_interval():
    gate = CnpGate(3, 0.4)
    assert gate.pass_(column(2, 0, 2, 0, 0), 1.0).tolist() == [True, True, False, False, False]
    assert gate.pass_(column(0, 1), 1.3).tolist() == [False, True]
    assert gate.pass_(column(0, 1), 1.5).tolist() == [True, False]
    assert (gate.passed, gate.held) == (4, 5)


def test_pacer_by_hand():
    pacer = Pacer(2, burst_bytes=2000)
    pacer.spend(column(0, 0, 1), column(1000, 1000, 500))
    assert pacer.allowance_packets(1000).tolist() == [0, 1]
    rate = np.array([8000.0, 80.0])  # 1000 and 10 bytes per second
    assert pacer.ready_s(rate, 1000).tolist() == [1.0, 0.0]
    pacer.refill(rate, 1.0)
    assert pacer.allowance_packets(1000).tolist() == [1, 1]
    pacer.refill(rate, 100.0)
    assert pacer.tokens_bytes.tolist() == [2000, 2000]  # no more than a bucket full


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_pacer_keeps_to_the_rate(waits_ms):
    pacer = Pacer(1, burst_bytes=8192)
    sent, now = 0, 0.0
    for wait in waits_ms:
        now += wait / 1000
        pacer.refill(1e6, now)
        count = int(pacer.allowance_packets(4096)[0])
        pacer.spend(column(*[0] * count), column(*[4096] * count))
        sent += 4096 * count
        assert sent <= 8192 + now * 1e6 / 8 + 1
    # Two packets a bucket, one each 33 ms: only a bucket that was full lost anything.
    if max(waits_ms) <= 32:
        assert sent >= now * 1e6 / 8 - 4096
