"""Ultra Ethernet's reliable unordered delivery with receiver credits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Ints
from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT
from fabric_emu.nic.congestion.rccc import CreditScheduler
from fabric_emu.nic.entropy.policy import EntropyPolicy
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.selective import CongestionControl, Selective, SelectiveSettings
from fabric_emu.nic.transport.space import PacketSpace


class Credited(Selective):
    """RUD whose receivers grant credit (RCCC): they pace all that comes at them to their link.

    Args:
        scheduler: grants the credit of this worker's hosts.

    Source: Ultra Ethernet Specification 1.0, RCCC; EQDS (NSDI 2022).
    Fidelity: credit goes to queue pairs, in packets, once in a worker's round.
    """

    def __init__(
        self,
        graph: MessageGraph,
        space: PacketSpace,
        local: NDArray[np.bool_],
        settings: SelectiveSettings,
        entropy: EntropyPolicy,
        congestion: CongestionControl,
        scheduler: CreditScheduler,
    ) -> None:
        super().__init__(graph, space, local, settings, entropy, congestion)
        self._scheduler = scheduler
        self._heard = np.full(space.queue_pairs, FIRST_SOURCE_PORT, np.uint16)

    def transmit(self, now_s: float, room: Ints) -> Packets:
        """Return what to send now, credit first."""
        rows, _ = self._scheduler.grant(now_s)
        if len(rows):
            self.counters["credits_sent"] += len(rows)
            granted = self._scheduler.granted[rows]
            self._answer(Packets.of(Kind.CREDIT, rows, value=granted, entropy=self._heard[rows]))
        return super().transmit(now_s, room)

    def _note_arrivals(self, packets: Packets, now_s: float) -> None:
        # Credit takes the way back of what came last, which is known to have been open.
        pair = np.ascontiguousarray(packets.queue_pair)
        self._heard[pair] = packets.entropy
        target, cut = np.ascontiguousarray(packets.value), np.ascontiguousarray(packets.trimmed)
        self._scheduler.hear(pair, target, cut)
