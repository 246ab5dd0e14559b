"""NSCC: values worked out by hand, a scalar reading, and what must never happen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.congestion.nscc import Nscc
from fabric_emu.nic.congestion.nscc_settings import NsccSettings

LINE = 50e6


def column(*values):
    return np.array(values, np.int64)


RTT, MTU = 5e-3, 4096
BDP = LINE * RTT / 8  # 31,250 bytes


def test_nscc_constants_by_hand():
    s = NsccSettings.of(12e-6, 400e9, 4096, trimming=True)
    # 400 Gbit/s over 12 µs: 600,000 bytes, four times the reference.
    assert s.max_window_bytes == pytest.approx(900_000)
    assert s.min_window_bytes == 4096
    assert s.target_delay_s == pytest.approx(9e-6)
    assert s.alpha == pytest.approx(4 * 4096 * 4 * 0.75 / 9e-6)
    assert s.fi_bytes == pytest.approx(5 * 4096 * 4)
    assert s.eta_bytes == pytest.approx(0.15 * 4096 * 4)
    assert s.fi_scale == pytest.approx(1.0)
    assert s.fast_delay_s == pytest.approx(1e-6)
    assert s.qa_threshold_s == pytest.approx(36e-6)
    assert s.adjust_period_s == 12e-6
    assert s.adjust_bytes == 8 * 4096
    assert s.delay_gain == pytest.approx(0.0125)
    assert (s.gamma, s.max_md_jump, s.qa_gate) == (0.8, 0.5, 3)
    assert NsccSettings.of(12e-6, 400e9, 4096, trimming=False).target_delay_s == 12e-6


def test_nscc_emulated_round_trip_stands_for_the_reference():
    s = NsccSettings.of(RTT, LINE, MTU, trimming=True)
    a = BDP / 150_000
    # Per acknowledged byte and window the largest proportional increase is 4 MTU a b.
    assert s.alpha * s.target_delay_s == pytest.approx(4 * MTU * a * 0.75)
    assert s.fast_delay_s == pytest.approx(RTT / 12)
    # 80 acknowledgements of the reference's 36.6 packets per round trip; here it has 7.6.
    assert s.delay_gain == pytest.approx(0.0125 / a)
    literal = NsccSettings.of(RTT, LINE, MTU, trimming=True, reference_rtt_s=12e-6)
    assert literal.alpha == pytest.approx(s.alpha * RTT / 12e-6)


def nscc(queue_pairs=1, trimming=True):
    return Nscc(queue_pairs, NsccSettings.of(RTT, LINE, MTU, trimming))


def ack(control, now, *events):
    """Take (row, delay in target delays, marked) events of one packet each."""
    rows, delay, marked = zip(*events, strict=True)
    control.on_ack(
        column(*rows),
        now,
        np.full(len(rows), MTU),
        np.array(delay, float) * control.settings.target_delay_s,
        np.array(marked, bool),
    )


def test_nscc_quadrants_by_hand():
    control = nscc(4)
    s = control.settings
    control.window_bytes[:] = start = 20_000.0
    # All pay out at the first acknowledgement, with eta: a period has long passed.
    ack(control, 1.0, (0, 0.5, False), (1, 1.0, False), (2, 0.5, True), (3, 1.0, True))
    grown = control.window_bytes - start - s.eta_bytes
    assert grown[0] == pytest.approx(s.alpha * s.target_delay_s / 2 * MTU / start)
    assert grown[1] == pytest.approx(s.fi_bytes * MTU / start)
    assert grown[2] == pytest.approx(0)
    assert grown[3] == pytest.approx(0)  # the average is still below the target
    assert control.decreases == 0


def test_nscc_decrease_once_per_round_trip():
    control = nscc()
    s = control.settings
    control.average_delay_s[:] = 2 * s.target_delay_s
    control.window_bytes[:] = 20_000
    ack(control, 1.0, (0, 2.0, True))
    # A delay of twice the target: 1 - 0.8 · 1/2.
    after = 20_000 * 0.6 + s.eta_bytes
    assert control.window_bytes[0] == pytest.approx(after)
    ack(control, 1.0 + RTT / 2, (0, 2.0, True))
    assert control.window_bytes[0] == pytest.approx(after)
    ack(control, 1.0 + RTT * 1.1, (0, 2.0, True))
    assert control.window_bytes[0] == pytest.approx(after * 0.6 + s.eta_bytes)
    control.average_delay_s[:] = 1000 * s.target_delay_s
    control.window_bytes[:] = 20_000
    ack(control, 2.0, (0, 2.0, True))
    # 0.2 of it would be left: no decrease takes more than half.
    assert control.window_bytes[0] == pytest.approx(10_000 + s.eta_bytes)


def test_nscc_fast_increase_after_a_window_without_delay():
    # Other increases are paid out only once, at the start.
    s = replace(nscc().settings, adjust_bytes=math.inf)
    control = Nscc(1, s)
    control.window_bytes[:] = 10_000
    ack(control, 1.0, (0, 0.0, False))
    control.window_bytes[:] = 10_000
    for now in (1.0001, 1.0002):  # with the first 12,288 bytes: more than a window
        ack(control, now, (0, 0.0, False))
    assert control.window_bytes[0] == pytest.approx(10_000 + MTU * s.fi_scale)
    # Delay ends it, and so does congestion; then it takes a whole window again.
    for now, delay, marked in ((1.0003, 0.9, False), (1.0006, 1.0, True)):
        before = control.window_bytes[0]
        ack(control, now, (0, delay, marked))
        ack(control, now + 1e-4, (0, 0.0, False))
        assert control.window_bytes[0] == before
        for more in (2e-4, 2.5e-4):
            ack(control, now + more, (0, 0.0, False))
        assert control.window_bytes[0] == pytest.approx(before + MTU * s.fi_scale)


def test_nscc_quick_adapt_takes_what_was_delivered():
    control = nscc()
    s = control.settings
    ack(control, 1.0, (0, 1.0, True))  # begins the first period
    period = s.base_rtt_s + s.target_delay_s
    ack(control, 1.0 + period * 1.01, (0, 4.5, True))  # beyond four targets; 4096 bytes came
    assert control.window_bytes[0] == MTU
    assert control.quick_adapts == 1
    # Marks on what was in flight then, a window, are not counted again.
    ack(control, 1.0 + period * 3, (0, 4.5, True))
    assert control.quick_adapts == 1


def test_nscc_loss_takes_the_packet():
    control = nscc()
    start = control.window_bytes[0]
    control.on_loss(column(0, 0), 1.0, column(MTU, MTU))
    assert control.window_bytes[0] == pytest.approx(start - 2 * MTU)
    control.on_loss(column(*[0] * 50), 1.001, column(*[MTU] * 50))
    assert control.window_bytes[0] == MTU
    assert control.losses == 52


def test_nscc_unknown_delay_leaves_the_average():
    control = nscc(2)
    control.average_delay_s[:] = 0.4 * control.settings.target_delay_s
    ack(control, 1.0, (0, math.nan, False), (1, 0.4, False))
    assert control.average_delay_s[0] == pytest.approx(control.average_delay_s[1])
    assert control.window_bytes[0] == control.window_bytes[1]


class ScalarNscc:
    """One queue pair, one event at a time, as the simulator reads."""

    def __init__(self, settings):
        self.s = settings
        self.window = settings.max_window_bytes
        self.average = self.unpaid = self.received = self.fast_bytes = 0.0
        self.fast = self.lost = False
        self.paid = self.decreased = -math.inf
        self.period_end = None
        self.achieved = self.ignored = self.to_ignore = 0.0

    def learn(self, delay, marked):
        s = self.s
        if not marked and delay > s.target_delay_s:
            delay = s.base_rtt_s / 4
        self.average += s.delay_gain * (delay - self.average)

    def clamp(self):
        self.window = min(max(self.window, self.s.min_window_bytes), self.s.max_window_bytes)

    def quick_adapt(self, now, heavy, marked):
        s, quiet = self.s, False
        if marked and self.ignored < self.to_ignore:
            quiet = True
        elif self.period_end is None or now > self.period_end:
            scant = self.achieved < s.max_window_bytes / 8
            if self.period_end is not None and (heavy or self.lost) and scant:
                self.to_ignore, self.ignored = self.window, 0.0
                self.window = min(self.window, max(self.achieved, s.min_window_bytes))
                self.lost = False
                quiet = True
            self.achieved = 0.0
            self.period_end = now + s.base_rtt_s + s.target_delay_s
        if quiet:
            self.unpaid = self.received = 0.0
        return quiet

    def ack(self, now, size, delay, marked):
        s = self.s
        self.learn(delay, marked)
        self.achieved += size
        self.received += size
        self.ignored += size
        if self.quick_adapt(now, delay > s.qa_threshold_s, marked):
            return
        if marked:
            if delay >= s.target_delay_s:
                self.fast, self.fast_bytes = False, 0.0
                late = self.average - s.target_delay_s
                if late > 0 and now - self.decreased > s.base_rtt_s:
                    self.window *= max(1 - s.gamma * late / self.average, s.max_md_jump)
                    self.decreased = now
        elif delay >= s.target_delay_s:
            self.unpaid += s.fi_bytes * size
        else:
            self.fast_bytes = self.fast_bytes + size if delay < s.fast_delay_s else 0.0
            self.fast = self.fast_bytes > 0 and (self.fast or self.fast_bytes > self.window)
            if self.fast:
                self.window += size * s.fi_scale
            else:
                self.unpaid += s.alpha * size * (s.target_delay_s - delay)
        self.clamp()
        waited = now - self.paid
        if self.received > s.adjust_bytes or waited > s.adjust_period_s:
            self.window += self.unpaid / self.window
            if waited >= s.adjust_period_s:
                self.window += s.eta_bytes
                self.paid = now
            self.unpaid = self.received = 0.0
        self.clamp()

    def loss(self, now, size):
        self.ignored += size
        self.learn(self.s.base_rtt_s, True)
        self.lost = True
        if not self.quick_adapt(now, True, True):
            self.window -= size
        self.clamp()


DELAYS = (0.0, 0.05, 0.3, 0.7, 1.0, 1.4, 3.0, 5.0)  # in target delays
# How the network is doing for a while: weights of the delays, share of marks, of losses.
WEATHER = (
    ((20, 1, 0, 0, 0, 0, 0, 0), 0.0, 0.0),
    ((2, 2, 4, 4, 1, 0, 0, 0), 0.05, 0.0),
    ((0, 0, 1, 4, 4, 4, 0, 0), 0.1, 0.02),
    ((0, 0, 0, 1, 4, 4, 4, 0), 0.7, 0.1),
    ((0, 0, 0, 0, 0, 1, 4, 4), 0.9, 0.3),
)


def weather(draw):
    """Return packets under one of the weathers: rows, which repeat, delays, marks and losses."""
    weights, marks, losses = WEATHER[draw.integers(len(WEATHER))]
    share = np.array(weights) / sum(weights)
    while True:
        n = draw.integers(0, 9)
        delay = draw.choice(DELAYS, n, p=share)
        yield draw.integers(0, 4, n), delay, draw.random(n) < marks, draw.random(n) < losses


@pytest.mark.parametrize("trimming", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_nscc_as_one_acknowledgement_at_a_time(seed, trimming):
    control = nscc(4, trimming)
    s = control.settings
    scalars = [ScalarNscc(s) for _ in range(4)]
    draw = np.random.default_rng(seed)
    now = 0.0
    for _ in range(8):
        wait = RTT * draw.choice([0.02, 0.1, 0.5, 1.3])
        for _, (rows, delay, marked, lost) in zip(range(60), weather(draw), strict=False):
            now += wait * draw.choice([0.5, 1, 1.5])
            events = list(zip(rows, delay, marked, strict=True))
            if events:
                ack(control, now, *events)
            for row, late, mark in events:
                scalars[row].ack(now, MTU, late * s.target_delay_s, mark)
            control.on_loss(rows[lost], now, np.full(lost.sum(), MTU))
            for row in rows[lost]:
                scalars[row].loss(now, MTU)
            np.testing.assert_allclose(control.window_bytes, [x.window for x in scalars])
            averages = [x.average for x in scalars]
            np.testing.assert_allclose(control.average_delay_s, averages, atol=1e-12)
            assert (control.window_bytes >= MTU).all()
            assert (control.window_bytes <= s.max_window_bytes).all()


delays = st.sampled_from(DELAYS)
ack_events = st.lists(st.tuples(st.integers(0, 2), delays, st.booleans()), min_size=1, max_size=30)


@given(st.lists(st.tuples(st.floats(0.01, 3), ack_events), max_size=15))
def test_nscc_batches_are_one_at_a_time_and_stay_in_bounds(batches):
    one, other = nscc(3), nscc(3)
    now = 0.0
    for wait, events in batches:
        now += wait * RTT
        ack(one, now, *events)
        for event in events:
            ack(other, now, event)
        assert one.window_bytes.tolist() == other.window_bytes.tolist()
        assert (one.window_bytes >= MTU).all()
        assert (one.window_bytes <= one.settings.max_window_bytes).all()


@given(st.lists(st.sampled_from([0.2, 0.5, 0.9, 1.0, 2.0]), min_size=1, max_size=24))
def test_nscc_increases_add_up_whenever_they_are_paid(batch_delays):
    control = nscc()
    s = control.settings
    control.window_bytes[:] = 10_000
    ack(control, 1.0, (0, 1.0, True))  # no effect, but eta is paid
    start = control.window_bytes[0]
    ack(control, 1.0 + 0.5 * RTT, *((0, delay, False) for delay in batch_delays))
    # At the end of the period everything due is paid.
    ack(control, 1.0 + 1.5 * RTT, (0, 0.5, True))
    gains = [
        s.fi_bytes if delay >= 1 else s.alpha * s.target_delay_s * (1 - delay)
        for delay in batch_delays
    ]
    paid = sum(gains) * MTU
    # A payment is divided by the window before it. All in one is the most, paid / w; the more
    # and smaller payments, the less, down to the solution of dw = dpaid / w.
    grown = control.window_bytes[0] - start - s.eta_bytes
    least = min(math.sqrt(start**2 + 2 * paid) - start, s.max_window_bytes - start - s.eta_bytes)
    assert least * (1 - 1e-9) <= grown <= paid / start * (1 + 1e-9)
