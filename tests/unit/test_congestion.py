"""Congestion control: values worked out by hand, scalar readings, and what must never happen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.congestion import (
    CnpGate,
    CreditAccount,
    CreditScheduler,
    Dcqcn,
    DcqcnSettings,
    Nscc,
    NsccSettings,
    Pacer,
)

LINE = 50e6
SCALE = 8000  # 400 Gbit/s at 50 Mbit/s


def column(*values):
    return np.array(values, np.int64)


# --- DCQCN ---


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


# --- Pacer ---


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


# --- NSCC ---

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


# --- RCCC ---

PACKETS_PER_S = 1000.0
PACKET = LINE / 8 / PACKETS_PER_S


def scheduler(host_of_pair, **options):
    """Return a scheduler that grants 1000 packets a second."""
    return CreditScheduler(column(*host_of_pair), LINE, PACKET, utilisation=1.0, **options)


def hear(credit, rows, target):
    credit.hear(rows, target, np.zeros(len(rows), bool))


def test_credit_is_paced_and_never_more_than_wanted():
    credit = scheduler([0, 0])
    hear(credit, column(0, 1, 0), column(5, 6, 3))
    rows, packets = credit.grant(0.0)
    assert (rows.tolist(), packets.tolist()) == ([0], [4])  # one pull at once
    rows, packets = credit.grant(0.0039)
    assert len(rows) == 0
    rows, packets = credit.grant(0.004)
    assert (rows.tolist(), packets.tolist()) == ([1], [4])
    rows, packets = credit.grant(1.0)
    assert (rows.tolist(), packets.tolist()) == ([0, 1], [1, 2])
    assert credit.granted.tolist() == [5, 6]


def test_a_host_that_was_idle_saves_no_more_than_a_pull():
    credit = scheduler([0, 0], burst_packets=100)
    credit.grant(10.0)
    hear(credit, column(0, 1), column(50, 50))
    assert credit.grant(10.0)[1].sum() == 4
    assert credit.grant(10.02)[1].sum() == 20  # but a busy one makes up for a late turn


def test_a_host_that_was_idle_beside_a_busy_one_saves_no_more_than_a_pull():
    credit = scheduler([0, 1], burst_packets=100)
    hear(credit, column(0), column(10**6))
    for now in (0.0, 0.05):
        credit.grant(now)
    hear(credit, column(1), column(50))
    credit.grant(0.05)
    assert credit.granted[1] == 4


def test_utilisation_leaves_a_share_of_the_line():
    credit = CreditScheduler(column(0), LINE, PACKET, burst_packets=10**6)
    hear(credit, column(0), column(10**6))
    credit.grant(1.0)
    # 990 in a second, and the pull a host may grant at once; in whole pulls.
    assert credit.granted[0] == (990 + 4) // 4 * 4


def test_what_was_trimmed_takes_credit_once_more():
    credit = scheduler([0])
    credit.hear(column(0, 0, 0), column(0, 2, 1), np.array([False, True, True]))
    assert credit.wanted.tolist() == [4]
    credit.hear(column(0), column(0), np.array([True]))
    assert credit.wanted.tolist() == [5]


def test_pairs_of_other_workers_get_nothing():
    credit = scheduler([-1, 0, -1])
    hear(credit, column(0, 1, 2), column(9, 9, 9))
    credit.grant(0.0)
    credit.grant(100.0)
    assert credit.granted.tolist() == [0, 9, 0]


def test_a_repeated_grant_carries_no_new_credit():
    credit = scheduler([0])
    hear(credit, column(0), column(3))
    credit.grant(0.0)
    hear(credit, column(0, 0), column(3, 3))
    rows, packets = credit.grant(0.001)
    assert (rows.tolist(), packets.tolist()) == ([0], [0])
    assert len(credit.grant(0.002)[0]) == 0


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
)
def test_grants_are_fair_and_paced(host_of_pair, waits_ms):
    burst = 12
    credit = scheduler(host_of_pair, burst_packets=burst)
    everyone = np.arange(len(host_of_pair))
    hear(credit, everyone, np.full(len(everyone), 10**6))
    now = lost = 0.0
    for wait in waits_ms:
        now += wait / 1000
        lost += max(0, wait - 8)  # at most a burst, of which up to a pull is not yet granted
        rows, packets = credit.grant(now)
        assert (packets > 0).all()
        assert len(np.unique(rows)) == len(rows)
        for host in set(host_of_pair):
            mine = credit.granted[np.array(host_of_pair) == host]
            assert mine.max() - mine.min() <= 4  # a round robin of pulls of four
            assert mine.sum() <= 4 + now * PACKETS_PER_S + 1e-3
            assert mine.sum() >= now * PACKETS_PER_S - lost - 4


def test_account_by_hand():
    account = CreditAccount(2, speculative_packets=4)
    assert account.allowance.tolist() == [4, 4]
    assert account.target(column(10, 3)).tolist() == [6, 0]
    account.spend(column(0, 0, 0, 0))
    assert account.allowance.tolist() == [0, 4]
    assert account.target(column(6, 3)).tolist() == [6, 0]
    account.renew(column(0, 1))  # 0 waits for credit: nothing for it
    assert account.allowance.tolist() == [0, 4]
    account.add(column(0, 0), column(5, 2))  # an old total overtaken by a newer one
    assert account.allowance.tolist() == [5, 4]
    with pytest.raises(ValueError, match="beyond the credit"):
        account.spend(column(0), 6)


def test_account_renews_idle_senders_and_lets_stuck_ones_ask():
    account = CreditAccount(1, speculative_packets=4)
    account.spend(column(0), 4)
    account.target(column(0))  # nothing more to send
    account.renew(column(0, 0))
    assert account.allowance[0] == 4
    account.spend(column(0), 4)
    assert account.target(column(7))[0] == 7
    account.ask(column(0, 0))
    assert account.allowance[0] == 1
    assert account.target(column(7))[0] == 6  # the one that asks needs no credit
    account.ask(column(0))
    assert account.allowance[0] == 1


lossy_turns = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=60)


@given(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(0, 6), lossy_turns)
def test_credit_is_neither_minted_nor_lost(backlogs, speculative, losses):
    """Three senders to one host over a wire that loses data, grants, and answers."""
    credit = scheduler([0, 0, 0])
    account = CreditAccount(3, speculative)
    left = column(*backlogs)
    arrived, lost, asked = np.zeros((3, 3), np.int64)
    # Beyond the list the wire is clean. A pull each four turns, one sender in three, and a
    # packet lost in no more turns than the list has: 90 + 60 packets in 4 · 150 turns.
    for turn in range(800):
        lose_data, lose_grant, lose_answer = (
            losses[turn] if turn < len(losses) else (False, False, False)
        )
        now = turn / 1000
        stuck = (left > 0) & (account.allowance == 0) & (turn % 10 == 9)
        account.ask(np.flatnonzero(stuck))
        asked += stuck
        send = np.minimum(np.minimum(left, account.allowance), 1)
        rows = np.flatnonzero(send)
        account.spend(rows)
        target = account.target(left - send)
        assert (account.allowance >= 0).all()
        assert (account.spent <= account.speculative + credit.granted).all()
        assert (account.granted <= credit.granted).all()
        assert (credit.granted <= credit.wanted).all()
        if lose_data:
            lost += send
        else:
            left = left - send
            arrived += send
            hear(credit, rows, target[rows])
        told, _ = credit.grant(now)
        if not lose_grant:
            account.add(told, credit.granted[told])
        if not lose_answer:
            account.add(rows, credit.granted[rows])
        if not left.any() and turn >= len(losses):
            break
    assert arrived.tolist() == backlogs
    assert account.spent.tolist() == (arrived + lost).tolist()
    # Left over is what was asked for and then not needed: packets sent without credit.
    assert (account.allowance <= speculative + asked).all()
