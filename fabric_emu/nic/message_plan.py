"""From a message workload to worker plans: queue pairs, transports, frames, who does what."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.message_workload import Messages
from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.queue_pair import (
    FIRST_SOURCE_PORT,
    QPN_BASE,
    SOURCE_PORTS,
    QueuePairs,
    plane_of,
)
from fabric_emu.model.queueing import CONTROL_DSCP, Trimming
from fabric_emu.model.scale import base_rtt_s
from fabric_emu.model.topology import Node, mac_address
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.formats import Ends, FrameFormat
from fabric_emu.nic.messenger import MessagePlan
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.worker import Port
from fabric_emu.predict.entropy import ALL_PORTS, spread_evenly
from fabric_emu.predict.placement import Packets, Placement
from fabric_emu.wire.layout import PAYLOAD_BYTE
from fabric_emu.wire.rocev2 import Envelope, source_port

TICK_S = 0.0004
TURNAROUND_S = 0.0015
"""Both ends of a round trip together, from a frame's arrival to the round that handles it."""

QUEUE_S = 0.004
"""What a NIC's queue holds, as time at its rate: less than a worker's round and it runs dry."""

SLOTS = 1024
LEAST_VALUES = 8
"""Entropy values of a sprayed queue pair, at least."""

_FRAME_OVERHEAD = 100


class MessagePlanner:
    """Makes the worker plans of one run.

    Args:
        fabric: the live fabric.
        workload: what to send.
        graph: its messages.
        space: their packets.
        placement: how the switches hash; None where the kernel's hash is not known.

    Attributes:
        pairs: the queue pairs, then the answers' way back for each.
    """

    def __init__(
        self,
        fabric: Fabric,
        workload: Messages,
        graph: MessageGraph,
        space: PacketSpace,
        placement: Placement | None,
    ) -> None:
        self._fabric, self._workload, self._graph = fabric, workload, graph
        self._placement, self.space = placement, space
        self._ports = self._source_ports()
        self.pairs = self._queue_pairs()

    def plans(self) -> list[MessagePlan]:
        """Return one plan per processor, as many as there are hosts to serve."""
        fabric, space = self._fabric, self.space
        topology = fabric.topology
        busy = np.unique(np.concatenate([space.source, space.destination]))
        cpus = sorted(os.sched_getaffinity(0))[: len(busy)]
        recipe = self._recipe()
        trimming = fabric.scheme.switch.trimming or Trimming()
        plans = []
        for i, cpu in enumerate(cpus):
            hosts = busy[i :: len(cpus)]
            rows = np.flatnonzero(np.isin(space.source, hosts) | np.isin(space.destination, hosts))
            frames = self._frames(rows, recipe.kind)
            queue = round(QUEUE_S * topology.host_rate_bps / 8 / frames.length)
            plans.append(
                MessagePlan(
                    cpu,
                    tuple(
                        self._port(int(host), plane)
                        for host in hosts
                        for plane in range(topology.planes)
                    ),
                    hosts,
                    topology.total_hosts,
                    self._graph,
                    space,
                    frames,
                    recipe,
                    max(queue, 3),
                    SLOTS,
                    SLOTS,
                    TICK_S,
                    trimming.trimmed,
                    trimming.trimmed_last_hop,
                    receive_program=fabric.ports.bpf.program_fds["nic_receive"],
                )
            )
        return plans

    def _frames(self, rows: NDArray[np.int64], kind: str) -> FrameFormat:
        planes = range(self._fabric.topology.planes)
        ends = [self._ends(int(row), plane) for row in rows for plane in planes]
        if kind == "uet":
            from fabric_emu.nic.uet_frames import uet_frames

            return uet_frames(self.space, rows, ends, PAYLOAD_BYTE)
        from fabric_emu.nic.roce_frames import roce_frames

        return roce_frames(self.space, rows, ends, kind == "mrc", PAYLOAD_BYTE)

    def _host(self, number: int) -> Node:
        return self._fabric.topology.hosts[number]

    def _port(self, host: int, plane: int) -> Port:
        link = self._fabric.topology.uplinks[self._host(host).name][plane]
        return Port(self._fabric.namespace(self._host(host).name), link.lower_interface)

    def _ends(self, row: int, plane: int) -> Ends:
        source, destination = int(self.space.source[row]), int(self.space.destination[row])
        return Ends(
            self._envelope(source, destination, plane, self._fabric.scheme.data_dscp),
            self._envelope(destination, source, plane, CONTROL_DSCP),
        )

    def _envelope(self, source: int, destination: int, plane: int, dscp: int) -> Envelope:
        topology = self._fabric.topology
        of = topology.address4 if topology.families[0] == 4 else topology.address6
        port = topology.uplinks[self._host(source).name][plane].up_port
        return Envelope(
            source_mac=mac_address(port),
            destination_mac=mac_address(port ^ 1),
            source=str(of(self._host(source), plane)),
            destination=str(of(self._host(destination), plane)),
            source_port=FIRST_SOURCE_PORT,
            dscp=dscp,
        )

    def _recipe(self) -> TransportRecipe:
        fabric, nic = self._fabric, self._fabric.scheme.nic
        rtt = base_rtt_s(fabric.topology, self._workload.payload + _FRAME_OVERHEAD) + TURNAROUND_S
        trimming = nic.trimmable and fabric.scheme.switch.trimming is not None
        # Where full queues trim, a timeout means a broken path: it outlasts four of them, of at
        # most 1.5 base round trips each. Elsewhere packets are lost in full queues as well.
        trips = 20 if nic.transport == "rc" else 8 if trimming else 4
        return TransportRecipe(
            kind=nic.transport,
            entropy=nic.entropy,
            credits=nic.credits,
            frame_bytes=self._workload.payload + _FRAME_OVERHEAD,
            source_port=self._ports,
            base_rtt_s=rtt,
            line_rate_bps=fabric.topology.host_rate_bps
            * (1 if nic.transport == "rc" else fabric.topology.planes),
            planes=fabric.topology.planes,
            scale=fabric.topology.scale,
            window_packets=nic.window,
            timeout_s=nic.timeout or trips * rtt,
            # Without trimming, queues are as long as congestion control lets them get.
            overtaken_s=rtt + (self._queues_s() if trimming else rtt),
            retries=nic.retries,
            ack_every=nic.ack_every,
            dcqcn=nic.transport == "rc" and fabric.scheme.switch.ecn is not None,
            trimming=trimming,
            seed=fabric.seed,
        )

    def _queues_s(self) -> float:
        """Return how much longer one path's queues may hold a packet than another's.

        What switches trim comes no later, and is said to be trimmed.
        """
        fabric = self._fabric
        topology = fabric.topology
        trims = (fabric.scheme.switch.trimming or Trimming()).resolved(
            topology, self._workload.payload + _FRAME_OVERHEAD
        )
        ports = 2 * (topology.tiers - 1)
        return ports * trims.above_bytes * 8 / topology.slowest_rate_bps

    def _source_ports(self) -> NDArray[np.uint16]:
        """Return (queue pairs, m): one port each, or each one's entropy values.

        Entropy values are spread evenly over the planes, and within a plane over its paths.
        """
        space, nic = self.space, self._fabric.scheme.nic
        n = space.queue_pairs
        if nic.entropy == "qp":
            ports = [source_port(QPN_BASE + n + row, QPN_BASE + row) for row in range(n)]
            return np.array(ports, np.uint16)[:, None]
        topology = self._fabric.topology
        paths = max(topology.uplinks_per_leaf, 1)
        paths *= max(topology.super_spines // max(topology.spines, 1), 1)
        wanted = nic.entropy_values or max(2 * paths, LEAST_VALUES)
        planes = topology.planes
        of_plane = -(-wanted // planes) if nic.entropy_values else wanted
        draw = np.random.default_rng([self._fabric.seed, 2])
        return np.concatenate(
            [self._values_of(plane, of_plane, draw) for plane in range(planes)], axis=1
        )

    def _values_of(self, plane: int, wanted: int, draw: np.random.Generator) -> NDArray[np.uint16]:
        """Return (queue pairs, m) the entropy values of a plane."""
        space, planes = self.space, self._fabric.topology.planes
        if self._fabric.scheme.nic.entropy == "even" and self._placement is not None:
            packets = Packets(
                self._fabric.topology.families[0],
                plane,
                space.source,
                space.destination,
                np.zeros(space.queue_pairs, np.uint16),
            )
            ports = ALL_PORTS[plane_of(ALL_PORTS, planes) == plane]
            return spread_evenly(self._placement, packets, wanted, draw, ports)
        # Steps of an odd number round a power of two: no value comes twice.
        span = 1 << ((SOURCE_PORTS // planes).bit_length() - 1)
        first, step = draw.integers(0, span, (2, space.queue_pairs, 1)) | [[[0]], [[1]]]
        values = (first + step * np.arange(wanted)) % span * planes + plane
        return (values + FIRST_SOURCE_PORT).astype(np.uint16)

    def _queue_pairs(self) -> QueuePairs:
        space = self.space
        n = space.queue_pairs
        hashed = self._ports.shape[1] == 1
        ports = self._ports[:, 0] if hashed else np.zeros(n, np.uint16)
        family = np.full(2 * n, self._fabric.topology.families[0])
        return QueuePairs(
            np.tile(np.arange(n), 2),
            np.concatenate([space.source, space.destination]),
            np.concatenate([space.destination, space.source]),
            plane_of(np.tile(ports, 2), self._fabric.topology.planes) * hashed,
            family,
            np.tile(ports, 2),
        )


def packet_space(
    workload: Messages, graph: MessageGraph, queue_pairs: int, split: bool
) -> PacketSpace:
    """Return the packets of a message graph."""
    return PacketSpace.of(
        graph.source, graph.destination, graph.size_bytes, workload.payload, queue_pairs, split
    )
