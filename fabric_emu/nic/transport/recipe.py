"""How to make a worker's transport: plain values that travel to the worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.congestion import CnpGate, Dcqcn, DcqcnSettings, Nscc, NsccSettings
from fabric_emu.nic.entropy import EvSet
from fabric_emu.nic.transport.base import Transport
from fabric_emu.nic.transport.rc import Rc, RcSettings
from fabric_emu.nic.transport.selective import Selective, SelectiveSettings
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.transport.windows import WindowControl

EV_FLOOR = 16
"""Entropy values of a queue pair that stay in use whatever is learnt of them, at most."""


@dataclass(frozen=True)
class TransportRecipe:
    """What a transport is made of.

    Attributes:
        kind: which one.
        source_port: (queue pairs, m) uint16: the port of each RC queue pair (m = 1), or the
            entropy values of each MRC queue pair.
        base_rtt_s: round trip in an empty fabric, the workers' turnaround included.
        line_rate_bps: of a host.
        scale: how many times slower than the real thing.
        window_packets, timeout_s, retries, ack_every: see the scheme's NIC.
        dcqcn: whether RC reacts to ECN.
        trimming: whether switches trim.
        seed: of entropy rotations.
    """

    kind: Literal["rc", "mrc"]
    source_port: NDArray[np.uint16]
    base_rtt_s: float
    line_rate_bps: float
    scale: float
    window_packets: int
    timeout_s: float
    retries: int
    ack_every: int
    dcqcn: bool
    trimming: bool
    seed: int

    def make(self, graph: MessageGraph, space: PacketSpace, local: NDArray[np.bool_]) -> Transport:
        """Return the transport of a worker's hosts."""
        if self.kind == "rc":
            return self._rc(graph, space, local)
        settings = SelectiveSettings(self.timeout_s, self.retries, self.ack_every)
        nscc = NsccSettings.of(self.base_rtt_s, self.line_rate_bps, space.payload, self.trimming)
        n = space.queue_pairs
        floor = min(EV_FLOOR, self.source_port.shape[1])
        return Selective(
            graph,
            space,
            local,
            settings,
            EvSet(n, self.source_port, self.seed, floor, probe_interval_s=4 * self.base_rtt_s),
            WindowControl(Nscc(n, nscc), space.payload),
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
