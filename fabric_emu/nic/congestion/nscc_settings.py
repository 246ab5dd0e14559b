"""Constants of NSCC, and how they follow from a network."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

_REFERENCE_BDP_BYTES = 150_000  # 100 Gbit/s, 12 µs
_REFERENCE_RTT_S = 12e-6
_DELAY_GAIN = 0.0125


@dataclass(frozen=True)
class NsccSettings:
    """Constants of NSCC; names as in the specification, with units.

    Attributes:
        base_rtt_s: round trip through empty queues.
        target_delay_s: queueing delay aimed for.
        min_window_bytes, max_window_bytes: bounds; the window starts at the larger.
        alpha: proportional increase, bytes per second of delay below the target.
        fi_bytes: fair increase.
        eta_bytes: added once per adjustment period.
        fi_scale: fast increase, share of the acknowledged bytes.
        fast_delay_s: a smaller delay counts as none.
        gamma: strength of the decrease.
        max_md_jump: one decrease leaves at least this share of the window.
        delay_gain: weight of the newest sample in the average delay.
        adjust_period_s, adjust_bytes: increases are paid out after either.
        qa_gate: quick adapt acts only when fewer than max window / 2^gate bytes arrived.
        qa_threshold_s: delay that sets off quick adapt.
    """

    base_rtt_s: float
    target_delay_s: float
    min_window_bytes: float
    max_window_bytes: float
    alpha: float
    fi_bytes: float
    eta_bytes: float
    fi_scale: float
    fast_delay_s: float
    gamma: float
    max_md_jump: float
    delay_gain: float
    adjust_period_s: float
    adjust_bytes: float
    qa_gate: int
    qa_threshold_s: float

    @classmethod
    def of(
        cls,
        base_rtt_s: float,
        line_rate_bps: float,
        mtu_bytes: int,
        trimming: bool,
        reference_rtt_s: float | None = None,
    ) -> NsccSettings:
        """Return the constants of a network.

        Args:
            base_rtt_s: round trip through empty queues.
            line_rate_bps: of the slowest link on a path.
            mtu_bytes: a full packet.
            trimming: whether switches trim; the target delay may then be shorter.
            reference_rtt_s: emulated time that stands for the 12 µs of the reference network;
                ``base_rtt_s`` unless given.

        Source:
            Ultra Ethernet Specification 1.0, NSCC; ``initNsccParams`` in ``sim/uec.cpp`` of
            uet-htsim.
        """
        bdp = line_rate_bps * base_rtt_s / 8
        target = base_rtt_s * (0.75 if trimming else 1.0)
        reference = base_rtt_s if reference_rtt_s is None else reference_rtt_s
        a = bdp / _REFERENCE_BDP_BYTES
        b = target / reference
        return cls(
            base_rtt_s=base_rtt_s,
            target_delay_s=target,
            min_window_bytes=float(mtu_bytes),
            max_window_bytes=max(1.5 * bdp, float(mtu_bytes)),
            alpha=4 * mtu_bytes * a * b / target,
            fi_bytes=5 * mtu_bytes * a,
            eta_bytes=0.15 * mtu_bytes * a,
            fi_scale=0.25 * a,
            fast_delay_s=reference * (1e-6 / _REFERENCE_RTT_S),
            gamma=0.8,
            max_md_jump=0.5,
            delay_gain=_DELAY_GAIN / min(max(a, _DELAY_GAIN), 1.0),
            adjust_period_s=base_rtt_s,
            adjust_bytes=8.0 * mtu_bytes,
            qa_gate=3,
            qa_threshold_s=4 * target,
        )

    def as_array(self) -> NDArray[np.void]:
        """Return (1,) the constants as compiled functions take them."""
        return np.array([astuple(self)], _DTYPE)


_DTYPE = np.dtype([(field.name, np.float64) for field in fields(NsccSettings)])
Constants = Annotated[NDArray[np.void], _DTYPE]
"""``NsccSettings.as_array``, as compiled functions take it."""
