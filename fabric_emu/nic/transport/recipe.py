"""How to make a worker's transport: plain values that travel to the worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.transport.space import PacketSpace

if TYPE_CHECKING:
    from fabric_emu.nic.transport.base import Transport


@dataclass(frozen=True)
class TransportRecipe:
    """What a transport is made of.

    Attributes:
        kind: which one.
        entropy: how MRC and Ultra Ethernet choose the source port of each packet.
        credits: whether Ultra Ethernet's receivers grant credit; else a window (NSCC) rules.
        source_port: (queue pairs, m) uint16: the port of each RC queue pair (m = 1), or the
            entropy values of each sprayed one.
        frame_bytes: of a full data frame.
        base_rtt_s: round trip in an empty fabric, the workers' turnaround included.
        line_rate_bps: of what a queue pair may use of a host: one plane's (rc), or all planes'.
        scale: how many times slower than the real thing.
        window_packets, timeout_s, retries, ack_every: see the scheme's NIC.
        overtaken_s: see ``SelectiveSettings``.
        dcqcn: whether RC reacts to ECN.
        trimming: whether switches trim.
        seed: of entropy rotations.
        planes: that entropy values lead to; see ``plane_of``.
    """

    kind: Literal["rc", "mrc", "uet"]
    entropy: Literal["qp", "random", "even", "reps", "oblivious"]
    credits: bool
    source_port: NDArray[np.uint16]
    frame_bytes: int
    base_rtt_s: float
    line_rate_bps: float
    scale: float
    window_packets: int
    timeout_s: float
    overtaken_s: float
    retries: int
    ack_every: int
    dcqcn: bool
    trimming: bool
    seed: int
    planes: int = 1

    def make(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> Transport:
        """Return the transport of a worker's hosts."""
        # Here, for a worker loads the machine code of its own transport only.
        if self.kind == "rc":
            from fabric_emu.nic.transport.making_rc import make_rc

            return make_rc(self, graph, space, local)
        from fabric_emu.nic.transport.making_selective import make_selective

        return make_selective(self, graph, space, local)
