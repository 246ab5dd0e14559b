"""Workloads of messages: a collective operation, once or as a training loop."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fabric_emu.errors import ScenarioError
from fabric_emu.model.collectives import (
    all_to_all,
    broadcast,
    incast,
    permutation,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from fabric_emu.model.fields import Description, Duration, Size
from fabric_emu.model.flow_table import FlowTable
from fabric_emu.model.messages import Ints, MessageGraph
from fabric_emu.model.topology import Role, Topology
from fabric_emu.model.training import training_loop

MAX_MESSAGES = 1 << 20
"""Messages of a workload: their columns then take about 100 MB."""

_HEADERS = 8 + 12 + 16 + 4 + 3
"""UDP, BTH, RETH, ICRC and padding, in bytes."""

_IP_HEADER = {4: 20, 6: 40}


class Messages(Description):
    """Messages that start when those they wait for have arrived: a collective, maybe repeated.

    Collectives: ``ring-all-reduce``, ``ring-all-gather`` and ``ring-reduce-scatter`` in N - 1
    steps a round; ``all-to-all`` in rotation; ``broadcast`` from the first rank down the chain of
    ranks; ``permutation``, rank i sends to rank i + shift; ``incast``, ranks send to the first
    rank, the farthest first.

    Placements of ranks 0 to N - 1: ``in-order`` of the hosts, so that a ring crosses leaves only
    between the last host of one and the first of the next; ``across-leaves``, dealt out to the
    leaves in turn, so that every step of a ring crosses leaves; ``random``, drawn from the run's
    seed.
    """

    kind: Literal["messages"] = "messages"
    collective: Literal[
        "ring-all-reduce",
        "ring-all-gather",
        "ring-reduce-scatter",
        "all-to-all",
        "broadcast",
        "permutation",
        "incast",
    ] = "ring-all-reduce"
    size: Size = Field(
        4_000_000,
        description="bytes of a rank's array, as nccl-tests count it: of the larger one where "
        "input and output differ; permutation, incast: what each sender sends",
    )
    message_size: Size = Field(
        65536, description="bytes of one message (RDMA write) at most; chunks are cut into several"
    )
    ranks: int | None = Field(None, ge=2, description="how many hosts take part; all")
    placement: Literal["in-order", "across-leaves", "random"] = "in-order"
    hosts: tuple[str, ...] = Field((), description="the ranks' hosts by name, instead of placement")
    shift: int | None = Field(
        None, description="permutation: distance to the receiver in ranks; hosts_per_leaf"
    )
    senders: int | None = Field(None, ge=1, description="incast: how many ranks send; all others")
    in_flight: int | None = Field(
        None, ge=1, description="all-to-all: steps that a rank has under way at a time; all"
    )
    iterations: int = Field(1, ge=1, le=100_000, description="how often, one after the other")
    compute_time: Duration | None = Field(
        None, description="how long each host computes before each iteration"
    )
    checkpoint_every: int | None = Field(
        None, ge=1, description="iterations between checkpoints, to which a failed job goes back"
    )
    timeout: Duration | None = Field(
        None, description="an iteration that takes longer has stalled the job"
    )
    gpus: int = Field(
        1, ge=1, description="GPUs that wait while the job does: what lost time is multiplied by"
    )
    payload: Size = Field(4096, ge=64, le=65000, description="bytes of a full packet's payload")
    duration: Duration = Field(60.0, le=3600, description="when the run ends, finished or not")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        only = {"shift": "permutation", "senders": "incast", "in_flight": "all-to-all"}
        for key, collective in only.items():
            if getattr(self, key) is not None and self.collective != collective:
                raise ValueError(f"{key}: nothing with collective {self.collective}")
        if self.hosts and self.ranks is not None:
            raise ValueError("ranks: nothing when hosts are named")
        if self.hosts and self.placement != "in-order":
            raise ValueError("placement: nothing when hosts are named")
        if len(self.hosts) == 1 or len(set(self.hosts)) < len(self.hosts):
            raise ValueError("hosts: two hosts or more, each once")
        return self

    def check(self, topology: Topology) -> None:
        """Check that the topology has what the collective needs.

        Raises:
            ScenarioError: it has not, or the MTU has no room for the payload.
        """
        room = topology.mtu - _IP_HEADER[topology.families[-1]] - _HEADERS
        if self.payload > room:
            raise ScenarioError(
                "workload.payload", self.payload, f"at most {room} bytes with mtu {topology.mtu}"
            )
        hosts = topology.total_hosts
        if hosts < 2:
            raise ScenarioError("topology", hosts, "two hosts or more for messages")
        if self.ranks is not None and self.ranks > hosts:
            raise ScenarioError("workload.ranks", self.ranks, f"at most {hosts} (all hosts)")
        for i, name in enumerate(self.hosts):
            node = topology.nodes.get(name)
            if node is None or node.role is not Role.HOST:
                raise ScenarioError(
                    f"workload.hosts[{i}]", name, f"a host of the topology, h1 to h{hosts}"
                )
        n = self._count(topology)
        if self.collective == "permutation" and self._shift(topology) % n == 0:
            raise ScenarioError(
                "workload.shift", self.shift, f"a distance that is not a multiple of {n} ranks"
            )
        if self.senders is not None and self.senders > n - 1:
            raise ScenarioError(
                "workload.senders", self.senders, f"at most {n - 1} (all other ranks)"
            )
        if self._messages(n) * self.iterations > MAX_MESSAGES:
            raise ScenarioError(
                "workload.message_size",
                self.message_size,
                f"at most {MAX_MESSAGES:,} messages in all, not {self._messages(n):,} in each of "
                f"{self.iterations:,} iterations",
            )

    def graph(self, topology: Topology, seed: int) -> MessageGraph:
        """Return every message.

        Raises:
            ScenarioError: as ``check``.
        """
        self.check(topology)
        once = self._once(topology, self.place(topology, seed))
        if self.iterations == 1 and self.compute_time is None:
            return once
        return training_loop(once, self.iterations, self.compute_time or 0.0)

    def table(self, topology: Topology, seed: int) -> FlowTable:
        """Return one flow for each pair of hosts that the collective joins, in order of both.

        What a prediction of their paths needs. A host's flows share its rate, as if it sent to all
        its peers at once; they go over planes and families in turn.

        Raises:
            ScenarioError: as ``check``.
        """
        self.check(topology)
        graph = self._once(topology, self.place(topology, seed))
        n = topology.total_hosts
        source, destination = np.divmod(np.unique(graph.source * n + graph.destination), n)
        _, first, peers = np.unique(source, return_index=True, return_counts=True)
        k = np.arange(len(source)) - np.repeat(first, peers)
        plane = k % topology.planes
        port = source * topology.planes + plane
        families = np.array(topology.families, np.int64)
        return FlowTable(
            source,
            destination,
            plane,
            families[k // topology.planes % len(families)],
            topology.host_rate_bps / np.bincount(port)[port],
        )

    def place(self, topology: Topology, seed: int) -> Ints:
        """Return (ranks,) the 0-based number of each rank's host."""
        if self.hosts:
            return np.array([topology.nodes[name].number - 1 for name in self.hosts], np.int64)
        order: Ints = np.arange(topology.total_hosts)
        if self.placement == "across-leaves":
            order = order.reshape(-1, topology.hosts_per_leaf).T.ravel()
        if self.placement == "random":
            order = np.random.default_rng([seed, 6]).permutation(order)
        return order[: self._count(topology)]

    def _once(self, topology: Topology, ranks: Ints) -> MessageGraph:
        size, message = self.size, self.message_size
        match self.collective:
            case "ring-all-reduce":
                return ring_all_reduce(ranks, size, message)
            case "ring-all-gather":
                return ring_all_gather(ranks, size, message)
            case "ring-reduce-scatter":
                return ring_reduce_scatter(ranks, size, message)
            case "all-to-all":
                return all_to_all(ranks, size, message, self.in_flight)
            case "broadcast":
                return broadcast(ranks, size, message)
            case "permutation":
                return permutation(ranks, size, self._shift(topology), message)
            case "incast":
                others = ranks[1:]
                far = others[len(others) - (self.senders or len(others)) :]
                return incast(np.concatenate([ranks[:1], far]), size, message)

    def _count(self, topology: Topology) -> int:
        return len(self.hosts) or self.ranks or topology.total_hosts

    def _shift(self, topology: Topology) -> int:
        return topology.hosts_per_leaf if self.shift is None else self.shift

    def _messages(self, n: int) -> int:
        """Return how many messages one iteration has; empty chunks count too, but are not sent."""
        if self.collective in ("permutation", "incast", "broadcast"):
            return n * -(-self.size // self.message_size)
        of_chunk = -(-self.size // (n * self.message_size))
        rounds = 2 if self.collective == "ring-all-reduce" else 1
        return rounds * n * (n - 1) * of_chunk
