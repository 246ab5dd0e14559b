"""NSCC, the network-signalled congestion control of Ultra Ethernet and MRC: a window in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.batches import distinct
from fabric_emu.nic.congestion.nscc_settings import NsccSettings

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rows of the state.
_WINDOW = 0
_AVERAGE_DELAY = 1
_UNPAID = 2  # increases to come, times the window
_RECEIVED = 3  # bytes since increases were paid out
_PAID_AT = 4
_DECREASED_AT = 5
_FAST = 6  # bytes acknowledged without delay; infinite once fast increase has begun
_PERIOD_END = 7  # of quick adapt
_ACHIEVED = 8  # bytes in the period
_LOST = 9  # bytes since the last quick adapt
_IGNORED = 10  # bytes acknowledged or lost since then
_TO_IGNORE = 11  # as many do not count when they are marked
_FIELDS = 12


class Nscc:
    """One congestion window per queue pair, moved by marks and delay in four quadrants.

    Unmarked and below the target delay: grow in proportion to what is missing, or fast when
    there is no delay at all for a window; unmarked and above: grow by the fair increase; marked
    and below: hold, the entropy value moves away; marked and above: shrink, once per round trip.
    Quick adapt: when a period of a round trip and a target delay ends in heavy congestion, the
    window becomes what the period delivered.

    A batch is one moment. With one acknowledgement per queue pair in it this is the algorithm of
    the specification step by step. Several of one queue pair are taken together and their order
    does not matter: increases add up as one by one; the average delay moves to their mean;
    quick adapt, decrease, the state of the fast increase and the paying out of increases are
    decided once, after all of them; marks of a queue pair that ignores marks are ignored.

    Source:
        Ultra Ethernet Specification 1.0, NSCC; ``updateCwndOnAck_NSCC`` in ``sim/uec.cpp`` of
        uet-htsim; the same algorithm is MRC's ``uet-1.0-nscc``.

    Fidelity:
        An emulated round trip holds 5 to 10 packets, a real one about 100. All constants follow
        the bandwidth-delay product and the base RTT; the time constants that the specification
        states for a network of 12 µs (the b factor, the delay that counts as none) take the
        emulated base RTT for those 12 µs. The average delay, whose gain is per acknowledgement,
        gets a gain that keeps its memory as long in round trips as on the reference network.
        The penalty that a receiver may put on a window is left out.

    Attributes:
        window_bytes: (queue pairs,).
        average_delay_s: (queue pairs,) smoothed queueing delay.
        decreases, quick_adapts, losses: how often windows shrank, and why.
    """

    def __init__(self, queue_pairs: int, settings: NsccSettings) -> None:
        self.settings = settings
        self.decreases = self.quick_adapts = self.losses = 0
        # One array, so that a batch reads and writes the state of its queue pairs at one go.
        self._state = np.zeros((_FIELDS, queue_pairs))
        self.window_bytes = self._state[_WINDOW]
        self.average_delay_s = self._state[_AVERAGE_DELAY]
        self.window_bytes[:] = settings.max_window_bytes
        self._state[_PAID_AT] = self._state[_DECREASED_AT] = -np.inf
        self._state[_PERIOD_END] = np.nan

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints | Floats,
        delay_s: Floats,
        marked: Bools,
        in_flight_bytes: Floats | None = None,
    ) -> None:
        """Take acknowledgements; rows may repeat.

        Args:
            rows: (n,) queue pairs.
            now_s: the time.
            bytes_: (n,) newly acknowledged.
            delay_s: (n,) round trip beyond the base RTT; NaN when unknown, as after a
                retransmission.
            marked: (n,) congestion experienced.
            in_flight_bytes: (queue pairs,) sent and not acknowledged: marks on these are not
                counted again after quick adapt. The window when not given.
        """
        if not len(rows):
            return
        s = self.settings
        batch = distinct(rows, len(self.window_bytes))
        u, at, k = batch.rows, batch.at, len(batch.rows)
        known = ~np.isnan(delay_s)
        delay = np.where(known, np.maximum(delay_s, 0), self.average_delay_s[rows])
        late = delay >= s.target_delay_s
        near = ~(marked | late)
        none = near & (delay < s.fast_delay_s)
        # A delay without a mark is no congestion of the fabric: it counts as a short one.
        sample = np.where(marked | (delay <= s.target_delay_s), delay, s.base_rtt_s / 4)
        gain = np.where(near, s.alpha * (s.target_delay_s - delay), s.fi_bytes) * bytes_
        (
            samples,
            delays,
            marks,
            heavy,
            shrink,
            slow,
            all_bytes,
            marked_bytes,
            none_bytes,
            none_gain,
            other_gain,
        ) = _sums(
            at,
            k,
            (
                known,
                known * sample,
                marked,
                delay > s.qa_threshold_s,
                marked & late,
                near ^ none,
                bytes_,
                marked * bytes_,
                none * bytes_,
                none * gain,
                ~(marked | none) * gain,
            ),
        )
        m = self._state[:, u]
        self._average(m, samples, delays)
        m[_ACHIEVED] += all_bytes
        m[_IGNORED] += all_bytes
        deaf = (marks > 0) & (m[_IGNORED] < m[_TO_IGNORE])
        cut = self._quick_adapt(m, now_s, heavy > 0, deaf, _of(u, in_flight_bytes))
        quiet = cut | deaf
        if np.count_nonzero(quiet):
            # Nothing of a queue pair just cut counts, nor marked packets of one that is deaf.
            m[_UNPAID][quiet] = m[_RECEIVED][quiet] = 0
            all_bytes[deaf] -= marked_bytes[deaf]
            shrink[deaf] = 0
            slow[cut] = shrink[cut] = all_bytes[cut] = 0
            none_bytes[cut] = none_gain[cut] = other_gain[cut] = 0

        # Fast increase: all of a window acknowledged without any delay.
        m[_FAST] += none_bytes
        m[_FAST][slow + shrink > 0] = 0
        fast = (m[_FAST] > m[_WINDOW]) & (none_bytes > 0)
        if np.count_nonzero(fast):
            m[_FAST][fast] = np.inf  # until stopped
            m[_WINDOW][fast] += none_bytes[fast] * s.fi_scale
            none_gain[fast] = 0
        m[_UNPAID] += none_gain + other_gain
        m[_RECEIVED] += all_bytes
        self._decrease(m, now_s, shrink > 0)
        self._clamp(m)
        self._pay_out(m, now_s, ~quiet)
        self._state[:, u] = m

    def on_loss(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints | Floats,
        in_flight_bytes: Floats | None = None,
    ) -> None:
        """Take packets trimmed or lost, as NACKs or inference tell; rows may repeat.

        Args:
            rows: (n,) queue pairs.
            now_s: the time.
            bytes_: (n,) size of each packet.
            in_flight_bytes: as for acknowledgements.
        """
        if not len(rows):
            return
        batch = distinct(rows, len(self.window_bytes))
        u, events = batch.rows, batch.events
        lost = np.bincount(batch.at, bytes_, len(u))
        m = self._state[:, u]
        # A queue that drops or trims is taken for one a base RTT long.
        self._average(m, events, events * self.settings.base_rtt_s)
        m[_IGNORED] += lost
        m[_LOST] += lost
        deaf = m[_IGNORED] < m[_TO_IGNORE]
        heavy = np.ones(len(u), bool)
        cut = self._quick_adapt(m, now_s, heavy, deaf, _of(u, in_flight_bytes))
        quiet = cut | deaf
        m[_WINDOW] -= np.where(quiet, 0, lost)
        m[_UNPAID][quiet] = m[_RECEIVED][quiet] = 0
        self._clamp(m)
        self._state[:, u] = m
        self.losses += len(rows)

    def _average(self, m: Floats, samples: NDArray[Any], delays: NDArray[Any]) -> None:
        keep = (1 - self.settings.delay_gain) ** samples
        mean = delays / np.maximum(samples, 1)
        m[_AVERAGE_DELAY] = keep * m[_AVERAGE_DELAY] + (1 - keep) * mean

    def _quick_adapt(
        self, m: Floats, now_s: float, heavy: Bools, deaf: Bools, held: Floats | None
    ) -> Bools:
        """End the periods that are over; return whose windows were adapted."""
        s = self.settings
        over: Bools = ~(deaf | (now_s <= m[_PERIOD_END]))  # also when none has begun yet
        if not np.count_nonzero(over):
            return over
        begun = ~np.isnan(m[_PERIOD_END])
        scant = m[_ACHIEVED] < s.max_window_bytes / 2**s.qa_gate
        cut: Bools = over & begun & scant & (heavy | (m[_LOST] > 0))
        if np.count_nonzero(cut):
            window = m[_WINDOW][cut]
            m[_TO_IGNORE][cut] = window if held is None else held[cut]
            m[_IGNORED][cut] = m[_LOST][cut] = 0
            achieved = np.maximum(m[_ACHIEVED][cut], s.min_window_bytes)
            m[_WINDOW][cut] = np.minimum(window, achieved)
            self.quick_adapts += len(window)
        m[_ACHIEVED][over] = 0
        m[_PERIOD_END][over] = now_s + s.base_rtt_s + s.target_delay_s
        return cut

    def _decrease(self, m: Floats, now_s: float, shrink: Bools) -> None:
        s = self.settings
        if not np.count_nonzero(shrink):
            return
        shrink = shrink & (m[_AVERAGE_DELAY] > s.target_delay_s)
        shrink &= now_s - m[_DECREASED_AT] > s.base_rtt_s
        average = m[_AVERAGE_DELAY][shrink]
        left = 1 - s.gamma * (average - s.target_delay_s) / average
        m[_WINDOW][shrink] *= np.maximum(left, s.max_md_jump)
        m[_DECREASED_AT][shrink] = now_s
        self.decreases += len(left)

    def _pay_out(self, m: Floats, now_s: float, may: Bools) -> None:
        s = self.settings
        waited = now_s - m[_PAID_AT]
        due = may & ((m[_RECEIVED] > s.adjust_bytes) | (waited > s.adjust_period_s))
        if not np.count_nonzero(due):
            return
        passed = due & (waited >= s.adjust_period_s)
        m[_WINDOW][due] += m[_UNPAID][due] / m[_WINDOW][due]
        m[_WINDOW][passed] += s.eta_bytes
        m[_PAID_AT][passed] = now_s
        m[_UNPAID][due] = m[_RECEIVED][due] = 0
        self._clamp(m)

    def _clamp(self, m: Floats) -> None:
        s = self.settings
        np.minimum(m[_WINDOW], s.max_window_bytes, out=m[_WINDOW])
        np.maximum(m[_WINDOW], s.min_window_bytes, out=m[_WINDOW])


def _of(rows: Ints, column: Floats | None) -> Floats | None:
    return None if column is None else column[rows]


def _sums(at: Ints, groups: int, columns: tuple[NDArray[Any], ...]) -> Floats:
    """Return (columns, groups) the sum of each column by group."""
    many = len(columns)
    weights = np.concatenate(columns)
    key = (np.arange(many)[:, None] * groups + at).ravel()
    sums = np.bincount(key, weights, many * groups).astype(np.float64, copy=False)
    return sums.reshape(many, groups)
