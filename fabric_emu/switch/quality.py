"""The quality of ports as the programs work it out, for all ports at once.

Source: bpf/load.h; the same integer arithmetic, step by step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabric_emu.switch.columns import Records

BEST_QUALITY = 7
TICKS_PER_SAMPLE, TICK_SHIFT = 4, 2
"""A sampling interval is four ticks, each of which takes a fourth as much off the load."""

_FULL_SHARE, _TICK_BITS = 1024, 13

Counts = npt.NDArray[np.uint64]


def full_load_bytes(rate_bps: int, tick_ns: int, shift: int) -> int:
    """Return the load of a port that sends all the time: its mean over a tick."""
    return round(rate_bps / 8 * tick_ns * 1e-9 * (2**shift - 0.5))


def discounted(load: Counts, ticks: Counts, shift: Counts) -> Counts:
    """Return what ``ticks`` leave of a load, all (n,)."""
    load, left = load.copy(), ticks.copy()
    factor = np.uint64(0x10000) - (np.uint64(0x10000) >> shift)
    for _ in range(_TICK_BITS):
        odd = left & np.uint64(1) == 1
        load[odd] = load[odd] * factor[odd] >> np.uint64(16)
        factor = factor * factor >> np.uint64(16)
        left >>= np.uint64(1)
    load[ticks >> np.uint64(_TICK_BITS) > 0] = 0
    return load


def _share_between(value: Counts, low: Counts, high: Counts) -> Counts:
    span = np.maximum(high, low + np.uint64(1)) - low
    share = (np.maximum(value, low) - low) * np.uint64(_FULL_SHARE) // span
    share[value >= high] = _FULL_SHARE
    share[value <= low] = 0
    return share


def port_quality(ports: Records, configs: Records, now_ns: int) -> npt.NDArray[np.uint8]:
    """Return the quality of each port, (n,), 7 to 0.

    Args:
        ports: (n,) counters.
        configs: (n,) settings.
        now_ns: CLOCK_MONOTONIC.
    """
    measured = configs["load_tick_ns"] > 0
    tick = np.uint64(now_ns) // np.maximum(configs["load_tick_ns"], np.uint64(1))
    passed = np.where(tick > ports["load_tick"], tick - ports["load_tick"], np.uint64(0))
    load = discounted(ports["load_bytes"], passed, configs["load_shift"].astype(np.uint64))
    load = _share_between(load, configs["load_low_bytes"], configs["load_high_bytes"])
    load[~measured] = 0
    depth = ports["enqueued_bytes"] - ports["departed_bytes"] - ports["dropped_bytes"][:, 4]
    queued = np.maximum(depth.view(np.int64), 0).view(np.uint64)
    queue = _share_between(queued, configs["queue_low_bytes"], configs["queue_high_bytes"])
    full = load * configs["load_weight"] + queue * configs["queue_weight"] >> np.uint64(8)
    quality = BEST_QUALITY - full.astype(np.int64) * (BEST_QUALITY + 1) // _FULL_SHARE
    return np.clip(quality, 0, BEST_QUALITY).astype(np.uint8)
