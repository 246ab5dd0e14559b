"""The source ports that a run's queue pairs will have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.message_workload import Messages
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, QPN_BASE, draw_source_ports
from fabric_emu.model.workload import OpenLoop


def source_ports(workload: OpenLoop | Messages, count: int, seed: int) -> NDArray[np.uint16]:
    """Return (count,) the source port of each queue pair, flow by flow.

    In an open loop they are drawn from the seed. Under messages a queue pair has the port that
    Linux gives it: of its own number and that of its way back, which are numbered after all others.

    Source: Linux ``rdma_calc_flow_label``, ``rdma_flow_label_to_udp_sport``.
    """
    if not isinstance(workload, Messages):
        return draw_source_ports(count, seed)
    there = QPN_BASE + np.arange(count, dtype=np.int64)
    mixed = there * (there + count)
    mixed ^= mixed >> 20
    mixed ^= mixed >> 40
    label = mixed & 0xFFFFF
    return (((label & 0x3FFF) ^ (label >> 14)) | FIRST_SOURCE_PORT).astype(np.uint16)
