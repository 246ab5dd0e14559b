"""NSCC, the network-signalled congestion control of Ultra Ethernet and MRC: a window in bytes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.nic.congestion.nscc_settings import Constants, NsccSettings

_PAIR = np.dtype(
    [
        ("window", np.float64),
        ("average_delay", np.float64),
        ("unpaid", np.float64),  # increases to come, times the window
        ("received", np.float64),  # bytes since increases were paid out
        ("paid_at", np.float64),
        ("decreased_at", np.float64),
        ("fast", np.float64),  # bytes acknowledged without delay; infinite in fast increase
        ("period_end", np.float64),  # of quick adapt
        ("achieved", np.float64),  # bytes in the period
        ("lost", np.float64),  # bytes since the last quick adapt
        ("ignored", np.float64),  # bytes acknowledged or lost since then
        ("to_ignore", np.float64),  # as many do not count when they are marked
    ]
)
_Pairs = Annotated[NDArray[np.void], _PAIR]

_UNKNOWN = np.empty(0)


class Nscc:
    """One congestion window per queue pair, moved by marks and delay in four quadrants.

    Unmarked and below the target delay: grow in proportion to what is missing, or fast when
    there is no delay at all for a window; unmarked and above: grow by the fair increase; marked
    and below: hold, the entropy value moves away; marked and above: shrink, once per round trip.
    Quick adapt: when a period of a round trip and a target delay ends in heavy congestion, the
    window becomes what the period delivered.

    A batch is one moment; its acknowledgements are taken one after the other, each by the
    algorithm of the specification.

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
        self._constants = settings.as_array()
        self._pairs = np.zeros(queue_pairs, _PAIR)
        self._pairs["paid_at"] = self._pairs["decreased_at"] = -np.inf
        self._pairs["period_end"] = np.nan
        self.window_bytes: Floats = self._pairs["window"]
        self.average_delay_s: Floats = self._pairs["average_delay"]
        self.window_bytes[:] = settings.max_window_bytes

    def allowance_packets(self, in_flight: Ints, packet_bytes: int) -> Ints:
        """Return (queue pairs,) packets that fit into the windows; one when nothing is out.

        Args:
            in_flight: (queue pairs,) packets sent and not acknowledged.
            packet_bytes: of each.
        """
        return _allowance(self._pairs, in_flight, packet_bytes)

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints,
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
        held = _UNKNOWN if in_flight_bytes is None else in_flight_bytes
        adapted, decreased = _acknowledge(
            self._pairs, self._constants, rows, now_s, bytes_, delay_s, marked, held
        )
        self.quick_adapts += adapted
        self.decreases += decreased

    def on_loss(
        self, rows: Ints, now_s: float, bytes_: Ints, in_flight_bytes: Floats | None = None
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
        held = _UNKNOWN if in_flight_bytes is None else in_flight_bytes
        self.quick_adapts += _lose(self._pairs, self._constants, rows, now_s, bytes_, held)
        self.losses += len(rows)


@compiled
def _allowance(pairs: _Pairs, in_flight: Ints, packet_bytes: int) -> Ints:
    allowance = np.empty(len(pairs), np.int64)
    for row in range(len(pairs)):
        fit = max(int(pairs[row].window / packet_bytes), 1)
        allowance[row] = max(fit - in_flight[row], 0)
    return allowance


@compiled
def _average(pairs: _Pairs, constants: Constants, row: int, delay: float) -> None:
    gain = constants[0].delay_gain
    pairs[row].average_delay += gain * (delay - pairs[row].average_delay)


@compiled
def _clamp(pairs: _Pairs, constants: Constants, row: int) -> None:
    c = constants[0]
    pairs[row].window = max(min(pairs[row].window, c.max_window_bytes), c.min_window_bytes)


@compiled
def _quick_adapt(
    pairs: _Pairs, constants: Constants, row: int, now_s: float, heavy: bool, held: Floats
) -> bool:
    """End the period if it is over; return whether the window was adapted."""
    c, pair = constants[0], pairs[row]
    if now_s <= pair.period_end:
        return False
    begun = not np.isnan(pair.period_end)
    scant = pair.achieved < c.max_window_bytes / 2**c.qa_gate
    adapt = begun and scant and (heavy or pair.lost > 0)
    if adapt:
        pair.to_ignore = held[row] if len(held) else pair.window
        pair.ignored = pair.lost = 0.0
        pair.window = min(pair.window, max(pair.achieved, c.min_window_bytes))
    pair.achieved = 0.0
    pair.period_end = now_s + c.base_rtt_s + c.target_delay_s
    return adapt


@compiled
def _acknowledge(
    pairs: _Pairs,
    constants: Constants,
    rows: Ints,
    now_s: float,
    bytes_: Ints,
    delay_s: Floats,
    marked: Bools,
    held: Floats,
) -> tuple[int, int]:
    """Take acknowledgements; return how often windows were adapted, and decreased."""
    c = constants[0]
    adapted = decreased = 0
    for i in range(len(rows)):
        row, size, mark = rows[i], bytes_[i], marked[i]
        pair = pairs[row]
        if np.isnan(delay_s[i]):
            delay = pair.average_delay
        else:
            delay = max(delay_s[i], 0.0)
            # A delay without a mark is no congestion of the fabric: it counts as a short one.
            short = mark or delay <= c.target_delay_s
            _average(pairs, constants, row, delay if short else c.base_rtt_s / 4)
        late = delay >= c.target_delay_s
        pair.achieved += size
        pair.received += size
        pair.ignored += size

        deaf = mark and pair.ignored < pair.to_ignore
        heavy = delay > c.qa_threshold_s
        adapt = not deaf and _quick_adapt(pairs, constants, row, now_s, heavy, held)
        adapted += adapt
        if deaf or adapt:
            pair.unpaid = pair.received = 0.0
            continue

        if mark and late:
            pair.fast = 0.0
            above = pair.average_delay - c.target_delay_s
            if above > 0 and now_s - pair.decreased_at > c.base_rtt_s:
                pair.window *= max(1 - c.gamma * above / pair.average_delay, c.max_md_jump)
                pair.decreased_at = now_s
                decreased += 1
        elif not mark and late:
            pair.unpaid += c.fi_bytes * size
        elif not mark:
            # Fast increase: all of a window acknowledged without any delay.
            pair.fast = pair.fast + size if delay < c.fast_delay_s else 0.0
            if pair.fast > pair.window:
                pair.fast = np.inf
                pair.window += c.fi_scale * size
            else:
                pair.unpaid += c.alpha * (c.target_delay_s - delay) * size
        _clamp(pairs, constants, row)

        waited = now_s - pair.paid_at
        if pair.received > c.adjust_bytes or waited > c.adjust_period_s:
            pair.window += pair.unpaid / pair.window
            pair.unpaid = pair.received = 0.0
            if waited >= c.adjust_period_s:
                pair.window += c.eta_bytes
                pair.paid_at = now_s
            _clamp(pairs, constants, row)
    return adapted, decreased


@compiled
def _lose(
    pairs: _Pairs, constants: Constants, rows: Ints, now_s: float, bytes_: Ints, held: Floats
) -> int:
    """Take losses; return how often windows were adapted."""
    adapted = 0
    for i in range(len(rows)):
        row, pair = rows[i], pairs[rows[i]]
        # A queue that drops or trims is taken for one a base RTT long.
        _average(pairs, constants, row, constants[0].base_rtt_s)
        pair.ignored += bytes_[i]
        pair.lost += bytes_[i]
        deaf = pair.ignored < pair.to_ignore
        adapt = not deaf and _quick_adapt(pairs, constants, row, now_s, True, held)
        adapted += adapt
        if deaf or adapt:
            pair.unpaid = pair.received = 0.0
        else:
            pair.window -= bytes_[i]
        _clamp(pairs, constants, row)
    return adapted
