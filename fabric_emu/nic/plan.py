"""From a workload to worker plans: queue pairs, source ports, frame templates, who does what."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray
from scapy.packet import Packet

from fabric_emu.model.queue_pair import QPN_BASE, QueuePairs
from fabric_emu.model.topology import Node, mac_address
from fabric_emu.model.workload import Flow, OpenLoop
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.schedule import Schedule
from fabric_emu.nic.worker import Plan, Port, Stream
from fabric_emu.predict.entropy import rotations
from fabric_emu.predict.placement import Placement
from fabric_emu.wire.layout import PAYLOAD_BYTE
from fabric_emu.wire.rocev2 import ECT0, Envelope, write_frame
from fabric_emu.wire.template import FrameTemplates

TRANSMIT_SLOTS = 256
BATCH = 64
RECEIVE_SLOTS = 8192
TICK_S = 0.0008


class Planner:
    """Makes the worker plans of one run.

    Args:
        fabric: the live fabric.
        workload: what to send.
        flows: the workload's flows.
        pairs: their queue pairs.
        placement: how the switches hash; None where the kernel's hash is not known.

    Attributes:
        entropy: how source ports are chosen: as the scheme says, but at random where even
            spreading would need a hash that is not known.
    """

    def __init__(
        self,
        fabric: Fabric,
        workload: OpenLoop,
        flows: list[Flow],
        pairs: QueuePairs,
        placement: Placement | None,
    ) -> None:
        self._fabric = fabric
        self._workload = workload
        self._flows = flows
        self._pairs = pairs
        self._placement = placement
        self._seed = fabric.seed
        self._nic = fabric.scheme.nic
        self.entropy = self._nic.entropy
        if self.entropy == "even" and placement is None:
            self.entropy = "random"

    def plans(self) -> list[Plan]:
        """Return one plan per processor, as many as there are hosts to serve."""
        topology = self._fabric.topology
        senders = list(dict.fromkeys(flow.source for flow in self._flows))
        receivers = list(dict.fromkeys(flow.destination for flow in self._flows))
        cpus = sorted(os.sched_getaffinity(0))[: max(len(senders), len(receivers))]
        rotation = self._rotations()
        plans = []
        for i, cpu in enumerate(cpus):
            own = [
                k
                for k, flow in enumerate(self._flows)
                if senders.index(flow.source) % len(cpus) == i
            ]
            streams = []
            for family in topology.families:
                rows = [k for k in own if self._flows[k].family == family]
                if rows:
                    streams.append(self._stream(np.array(rows), rotation))
            listening = tuple(
                port for host in receivers[i :: len(cpus)] for port in self._ports(host)
            )
            plans.append(
                Plan(
                    cpu,
                    tuple(streams),
                    listening,
                    RECEIVE_SLOTS,
                    TICK_S,
                    receive_program=self._fabric.ports.bpf.program_fds["nic_receive"],
                )
            )
        return plans

    def _ports(self, host: Node) -> list[Port]:
        namespace = self._fabric.namespace(host.name)
        uplinks = self._fabric.topology.uplinks[host.name]
        return [Port(namespace, link.lower_interface) for link in uplinks]

    def _rotations(self) -> NDArray[np.uint16]:
        """Return (flows, m) source ports: the rotation of entropy values, or one per queue pair."""
        n = self._nic.queue_pairs
        if self.entropy != "even" or self._placement is None:
            return self._pairs.source_port.reshape(-1, n)
        return rotations(self._placement, self._pairs, self._nic, self._seed)

    def _stream(self, flows: NDArray[np.int64], rotation: NDArray[np.uint16]) -> Stream:
        workload, nic = self._workload, self._nic
        n = nic.queue_pairs
        # Flows of a NIC port next to each other, as the schedule wants them.
        links = [self._uplink(self._flows[k]) for k in flows]
        order = np.argsort(links, kind="stable")
        flows = flows[order]
        ports, host = np.unique(np.array(links)[order], return_inverse=True)
        rows = (flows[:, None] * n + np.arange(n)).ravel()
        templates = FrameTemplates([self._frame(int(row)) for row in rows])
        rate = np.array([self._flows[k].rate_bps for k in flows])
        packets_per_s = rate / (8 * templates.length)
        draw = np.random.default_rng([self._seed, 3])
        phase = draw.random(len(self._flows))[flows] / packets_per_s
        total = np.floor((workload.duration - phase) * packets_per_s).astype(np.int64) + 1
        per_message = max(1, -(-workload.message_size // workload.payload))
        topology = self._fabric.topology
        schedule = Schedule(
            host=host,
            packets_per_s=packets_per_s,
            phase_s=phase,
            total=np.maximum(total, 0),
            queue_pair=np.arange(len(rows)).reshape(-1, n),
            source_port=rotation[flows],
            entropy=self.entropy,
            burst=per_message if nic.round_robin == "message" else 1,
            seed=self._seed * 64 + int(flows[0]) % 64,
        )
        nic_ports = tuple(
            Port(
                self._fabric.namespace(topology.links[index].lower.name),
                topology.links[index].lower_interface,
            )
            for index in ports
        )
        return Stream(schedule, templates, nic_ports, TRANSMIT_SLOTS, BATCH, rows)

    def _uplink(self, flow: Flow) -> int:
        uplinks = self._fabric.topology.uplinks[flow.source.name]
        return next(link.index for link in uplinks if link.upper.plane == flow.plane)

    def _frame(self, row: int) -> Packet:
        topology, flow = self._fabric.topology, self._flows[self._pairs.flow[row]]
        port = 2 * self._uplink(flow)
        of = topology.address4 if flow.family == 4 else topology.address6
        envelope = Envelope(
            source_mac=mac_address(port),
            destination_mac=mac_address(port ^ 1),
            source=str(of(flow.source, flow.plane)),
            destination=str(of(flow.destination, flow.plane)),
            source_port=int(self._pairs.source_port[row]),
            dscp=self._fabric.scheme.data_dscp,
            ecn=ECT0 if self._nic.ecn else 0,
        )
        payload = bytes(8) + PAYLOAD_BYTE * (self._workload.payload - 8)
        return write_frame(envelope, qpn=QPN_BASE + row, psn=0, payload=payload)
