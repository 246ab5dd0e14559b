"""Reorder density and buffer occupancy over all flows of a run, in one pass of array operations.

Source: RFC 5236, with thresholds beyond any displacement of the run: exactly the packets that
never come count as lost. The buffer differs where there is loss: a missing packet holds nobody
up, as if its loss were known at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.measure.reordering import stack_flows
from fabric_emu.measure.rfc4737 import Int64Column, IntColumn, first_copies
from fabric_emu.measure.rfc5236 import waiting_packets


def reorder_profile(flow: IntColumn, sequence: IntColumn) -> dict[str, NDArray[Any]]:
    """Return how far packets are displaced, and how many wait for an earlier one of their flow.

    Keys: ``displacement``, the places by which packets came late (positive) or early, ascending,
    and ``displacement_share``, of the received packets, for each; ``waiting_packets`` and
    ``waiting_share``, of the arrivals. Only what occurred is listed; copies count nowhere.

    Args:
        flow: (n,) any integer per flow, in arrival order.
        sequence: (n,) numbers that do not wrap within a flow.
    """
    _, numbers = stack_flows(flow, sequence)
    # Each flow's numbers lie above those of the flow before: sorting all sorts each flow.
    numbers = numbers[first_copies(numbers)]
    displacement, displaced = _shares(np.sort(numbers) - numbers)
    waiting, share = _shares(waiting_packets(numbers))
    return {
        "displacement": displacement,
        "displacement_share": displaced,
        "waiting_packets": waiting,
        "waiting_share": share,
    }


def _shares(values: Int64Column) -> tuple[Int64Column, NDArray[np.float64]]:
    found, counts = np.unique(values, return_counts=True)
    return found, counts / max(values.size, 1)
