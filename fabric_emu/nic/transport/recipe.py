"""How to make a worker's transport: plain values that travel to the worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.queue_pair import plane_of
from fabric_emu.nic.congestion import (
    CnpGate,
    CreditAccount,
    CreditScheduler,
    Dcqcn,
    DcqcnSettings,
    Nscc,
    NsccSettings,
)
from fabric_emu.nic.entropy import EntropyPolicy, EvSet, Oblivious, Reps
from fabric_emu.nic.transport.base import Transport
from fabric_emu.nic.transport.rc import Rc, RcSettings
from fabric_emu.nic.transport.selective import Selective, SelectiveSettings
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.transport.uet import Credited
from fabric_emu.nic.transport.windows import CreditControl, WindowControl

PULL_PACKETS = 4
"""Credit of one grant."""

REPS_FREEZE_TRIPS = 1000
"""Base round trips that REPS stays frozen: 10 ms in uet-htsim, where a trip takes 10 us or so."""

EV_FLOOR_SHARE = 4
"""One in so many entropy values of a queue pair stays in use whatever is learnt of them."""


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
        if self.kind == "rc":
            return self._rc(graph, space, local)
        settings = SelectiveSettings(self.timeout_s, self.overtaken_s, self.retries, self.ack_every)
        entropy = self._entropy(space.queue_pairs)
        if self.kind == "uet" and self.credits:
            return self._credited(graph, space, local, settings, entropy)
        nscc = NsccSettings.of(self.base_rtt_s, self.line_rate_bps, space.payload, self.trimming)
        window = WindowControl(Nscc(space.queue_pairs, nscc), space.payload)
        return Selective(graph, space, local, settings, entropy, window)

    def _entropy(self, queue_pairs: int) -> EntropyPolicy:
        if self.entropy == "reps":
            freeze = REPS_FREEZE_TRIPS * self.base_rtt_s if self.trimming else None
            return Reps(queue_pairs, None, self.seed, freeze_s=freeze)
        if self.entropy == "oblivious":
            return Oblivious(queue_pairs, None, self.seed)
        floor = max(1, self.source_port.shape[1] // EV_FLOOR_SHARE)
        probing = 4 * self.base_rtt_s
        plane = plane_of(self.source_port, self.planes)
        return EvSet(
            queue_pairs, self.source_port, self.seed, floor, plane, probe_interval_s=probing
        )

    def _credited(
        self,
        graph: MessageGraph,
        space: PacketSpace,
        local: NDArray[np.bool_],
        settings: SelectiveSettings,
        entropy: EntropyPolicy,
    ) -> Credited:
        bdp = self.line_rate_bps * self.base_rtt_s / 8 / self.frame_bytes
        account = CreditAccount(space.queue_pairs, max(1, round(bdp)))
        # Every other queue pair of the receiver may have its turn first.
        senders = int(np.bincount(space.destination).max())
        turn = senders * PULL_PACKETS * self.frame_bytes * 8 / self.line_rate_bps
        host = np.where(local[space.destination], space.destination, -1)
        return Credited(
            graph,
            space,
            local,
            settings,
            entropy,
            CreditControl(account, 4 * (turn + self.base_rtt_s)),
            CreditScheduler(host, self.line_rate_bps, self.frame_bytes, PULL_PACKETS),
        )

    def _rc(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> Rc:
        settings = RcSettings(self.window_packets, self.timeout_s, self.retries, self.ack_every)
        n = space.queue_pairs
        ports = self.source_port[:, 0]
        if not self.dcqcn:
            return Rc(graph, space, local, ports, settings)
        constants = DcqcnSettings.scaled(self.line_rate_bps, self.scale)
        return Rc(
            graph,
            space,
            local,
            ports,
            settings,
            Dcqcn(n, self.line_rate_bps, constants),
            CnpGate(n, constants.cnp_interval_s),
        )
