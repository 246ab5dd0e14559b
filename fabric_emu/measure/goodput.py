"""Goodput: how fast payload arrived, over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import Floats, Ints

BINS_MAX = 160

PACKETS_PER_BIN = 10
"""On average: one packet more or less is then a tenth."""


def goodput(arrived_s: Floats, size_bytes: Ints) -> dict[str, NDArray[np.float64]]:
    """Return the goodput of a run, all hosts together.

    Keys: ``goodput_edges_s`` (bins + 1,), even from 0 to the last arrival, and ``goodput_bps``
    (bins,): each packet's payload counts once, in the bin in which its receiver took it in.
    ``rc`` takes in no packet behind a gap, the others take in all that arrive whole. Both are
    empty when nothing arrived.

    Args:
        arrived_s: (packets,) when each was taken in, after the run's start; NaN if never.
        size_bytes: (packets,) payload.
    """
    taken_in = int(np.count_nonzero(~np.isnan(arrived_s)))
    end = float(np.nanmax(arrived_s, initial=0.0))
    if not end > 0:
        return {"goodput_edges_s": np.empty(0), "goodput_bps": np.empty(0)}
    bins = min(max(taken_in // PACKETS_PER_BIN, 1), BINS_MAX)
    edges = np.linspace(0.0, end, bins + 1)
    return {
        "goodput_edges_s": edges,
        "goodput_bps": goodput_bps(arrived_s, arrived_s, size_bytes, edges),
    }


def goodput_bps(start_s: Floats, finish_s: Floats, size_bytes: Ints, edges_s: Floats) -> Floats:
    """Return (bins,) the payload delivered in each bin over its length.

    A message's bytes are spread evenly from its start to its finish, so that a stall within a
    message does not show: give packets, with their arrival as start and finish, to see it. What
    takes less than a thousandth of a bin counts in the bin of its finish, what has not finished
    (NaN) in none.

    Args:
        start_s, finish_s: (n,) of each message or packet.
        size_bytes: (n,) payload.
        edges_s: (bins + 1,) rising.
    """
    done = ~np.isnan(finish_s)
    start, finish, size = start_s[done], finish_s[done], size_bytes[done].astype(np.float64)
    # So that the rates below stay of a size that rounding does not spoil.
    at_once = finish - start < 1e-3 * np.diff(edges_s).min()
    delivered = np.histogram(finish[at_once], edges_s, weights=size[at_once])[0]
    start, finish, size = start[~at_once], finish[~at_once], size[~at_once]
    # Each message adds its rate at its start and takes it away at its finish.
    rate = size / (finish - start)
    times = np.concatenate([start, finish])
    order = np.argsort(times)
    times = times[order]
    rates = np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])[: len(times)]
    if len(times):
        delivered = delivered + np.diff(np.interp(edges_s, times, total))
    per_s: Floats = delivered * 8 / np.diff(edges_s)
    return per_s
