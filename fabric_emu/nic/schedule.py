"""Open-loop schedules: when each packet is due, and which queue pair, PSN and entropy it gets.

Everything is a pure function of (flow, count): the k-th packet of a flow looks the same however
late the sender gets to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, SOURCE_PORTS

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Flows of one worker and address family, flows of a host next to each other.

    Attributes:
        host: (flows,) index of the sending NIC within the worker.
        packets_per_s: (flows,) float64.
        phase_s: (flows,) float64, when the first packet is due after the start.
        total: (flows,) int64, packets to send in all.
        queue_pair: (flows, n) int64, row of each queue pair in the frame templates.
        source_port: (flows, m) uint16: of each queue pair, or the rotation of entropy values;
            unused with random entropy.
        entropy: how the source port is chosen; see ``model.scheme.Nic``.
        burst: packets that stay on one queue pair before the next takes over.
        seed: of random entropy.
    """

    host: Ints
    packets_per_s: NDArray[np.float64]
    phase_s: NDArray[np.float64]
    total: Ints
    queue_pair: Ints
    source_port: NDArray[np.uint16]
    entropy: Literal["qp", "random", "even", "reps", "oblivious"]
    burst: int
    seed: int

    def due(self, elapsed_s: float) -> Ints:
        """Return (flows,) how many packets of each flow are due by now."""
        count = np.floor((elapsed_s - self.phase_s) * self.packets_per_s).astype(np.int64) + 1
        return np.clip(count, 0, self.total, out=count)

    def due_at(self, flow: Ints, k: Ints) -> NDArray[np.float64]:
        """Return (n,) when packets are due, seconds after the start."""
        at: NDArray[np.float64] = self.phase_s[flow] + k / self.packets_per_s[flow]
        return at

    def queue_pair_of(self, flow: Ints, k: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (n,) position among the flow's queue pairs, template row, and PSN."""
        n = self.queue_pair.shape[1]
        if n == 1:
            return np.zeros_like(k), self.queue_pair[flow, 0], k & 0xFFFFFF
        turn, within = np.divmod(k, self.burst)
        lap, which = np.divmod(turn, n)
        return which, self.queue_pair[flow, which], (lap * self.burst + within) & 0xFFFFFF

    def ports(
        self, flow: Ints, k: Ints, which: Ints, draw: np.random.Generator
    ) -> NDArray[np.uint16]:
        """Return (n,) UDP source ports."""
        if self.entropy in ("random", "reps", "oblivious"):  # nothing is learnt in an open loop
            return draw.integers(
                FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + SOURCE_PORTS, len(k), np.uint16
            )
        if self.entropy == "even":
            return self.source_port[flow, k % self.source_port.shape[1]]
        return self.source_port[flow, which]

    def sent_by_queue_pair(self, sent: Ints) -> Ints:
        """Return (flows, n) packets sent on each queue pair when ``sent`` of each flow have gone.

        Args:
            sent: (flows,) int64.
        """
        n = self.queue_pair.shape[1]
        laps, rest = np.divmod(sent, self.burst * n)
        left = np.clip(rest[:, None] - np.arange(n) * self.burst, 0, self.burst)
        return laps[:, None] * self.burst + left
