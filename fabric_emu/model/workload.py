"""Workloads: what the hosts send. Open loop: flows at a constant offered rate."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fabric_emu.errors import ScenarioError
from fabric_emu.model.fields import Description, Duration, Rate, Size
from fabric_emu.model.flow_table import FlowTable
from fabric_emu.model.topology import Node, Topology

Ints = NDArray[np.int64]

MAX_FLOWS = 1 << 24
"""Flows of a workload: their table then takes 700 MB."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One constant-rate flow from host to host.

    Attributes:
        source, destination: hosts.
        rate_bps: offered load in bits of Ethernet frames per second.
        plane: the plane it uses.
        family: 4 or 6.
    """

    source: Node
    destination: Node
    rate_bps: float
    plane: int
    family: Literal[4, 6]


class FlowSpec(Description):
    """Flows between two named hosts."""

    source: str = Field(description="sending host, such as h1")
    destination: str = Field(description="receiving host")
    flows: int = Field(1, ge=1, le=4096)
    rate: Rate | None = Field(None, description="of each flow; left out: from the workload's load")


class OpenLoop(Description):
    """Flows that send at a constant rate whatever happens to their packets.

    Patterns: ``pairs``, each host of the first half of the leaves sends to the host of the same
    place in the second half; ``permutation``, host i sends to host i + shift; ``ring``, the same
    with a shift of 1: the neighbours of a ring all-reduce whose ranks are placed in order, so that
    only the last host of a leaf sends past it; ``random``, a random permutation without fixed
    points drawn from the run's seed, which is one cycle: a ring whose ranks are placed anywhere;
    ``all-to-all``, every host sends to ``peers`` others at the distances that the seed draws, the
    same for all hosts, so that every host also receives from as many; ``incast``, ``senders``
    hosts send to the first host, the farthest first; ``flows``, just those listed.
    """

    kind: Literal["open-loop"] = "open-loop"
    pattern: Literal["pairs", "permutation", "ring", "random", "all-to-all", "incast", "flows"] = (
        "permutation"
    )
    flows_per_host: int = Field(
        1, ge=1, le=4096, description="flows from each sending host (to each of its peers)"
    )
    load: float = Field(0.9, gt=0, le=4, description="offered by a sending host, over host_rate")
    shift: int | None = Field(
        None,
        description="permutation, ring: distance to the receiver; left out: hosts_per_leaf, 1",
    )
    peers: int | None = Field(
        None, ge=1, description="all-to-all: hosts that each host sends to at a time; all others"
    )
    senders: int | None = Field(None, ge=1, description="incast: how many hosts send; all others")
    flows: tuple[FlowSpec, ...] = Field((), description="pattern flows: who sends to whom")
    payload: Size = Field(4096, ge=8, le=65000, description="bytes of each packet's payload")
    message_size: Size = Field(65536, description="bytes of one message (RDMA write)")
    duration: Duration = Field(3.0, le=3600, description="how long the hosts send")

    def check(self, topology: Topology) -> None:
        """Check that the topology has what the pattern needs.

        Raises:
            ScenarioError: it has not, or the MTU has no room for the payload.
        """
        room = topology.mtu - _OVERHEAD[topology.families[-1]]
        if self.payload > room:
            raise ScenarioError(
                "workload.payload", self.payload, f"at most {room} bytes with mtu {topology.mtu}"
            )
        n = topology.total_hosts
        if self.pattern == "flows":
            for index in range(len(self.flows)):
                self._check_named(topology, index)
            return
        if n < 2:
            raise ScenarioError("topology", n, f"two hosts or more for pattern {self.pattern}")
        if self.pattern == "pairs" and n % 2:
            raise ScenarioError("topology", n, "an even number of hosts for pattern pairs")
        if self.pattern in ("permutation", "ring") and not self._shift(topology):
            raise ScenarioError(
                "workload.shift", self.shift, f"a distance that is not a multiple of {n} hosts"
            )
        for pattern, name in (("incast", "senders"), ("all-to-all", "peers")):
            value = getattr(self, name)
            if self.pattern == pattern and value is not None and value > n - 1:
                raise ScenarioError(f"workload.{name}", value, f"at most {n - 1} (all other hosts)")
        flows = n * self.flows_per_host * self._peers(topology)
        if flows > MAX_FLOWS:
            raise ScenarioError(
                "workload.flows_per_host",
                self.flows_per_host,
                f"at most {MAX_FLOWS:,} flows in all",
            )

    def _check_named(self, topology: Topology, index: int) -> None:
        spec = self.flows[index]
        for key in ("source", "destination"):
            number = _host_number(getattr(spec, key))
            if not 1 <= number <= topology.total_hosts:
                raise ScenarioError(
                    f"workload.flows[{index}].{key}",
                    getattr(spec, key),
                    f"a host of the topology, h1 to h{topology.total_hosts}",
                )
        if spec.source == spec.destination:
            raise ScenarioError(
                f"workload.flows[{index}].destination", spec.destination, "a host not the source"
            )

    def _shift(self, topology: Topology) -> int:
        usual = 1 if self.pattern == "ring" else topology.hosts_per_leaf
        return (usual if self.shift is None else self.shift) % topology.total_hosts

    def _peers(self, topology: Topology) -> int:
        if self.pattern != "all-to-all":
            return 1
        return topology.total_hosts - 1 if self.peers is None else self.peers

    def _ends(self, topology: Topology, seed: int) -> tuple[Ints, Ints]:
        """Return who sends to whom, 0-based; a sender's receivers stand next to each other."""
        n = topology.total_hosts
        hosts = np.arange(n)
        if self.pattern == "flows":
            ends = [[_host_number(s.source), _host_number(s.destination)] for s in self.flows]
            source, destination = np.array(ends, np.int64).reshape(-1, 2).T - 1
            return source, destination
        if self.pattern == "pairs":
            return hosts[: n // 2], hosts[n // 2 :]
        if self.pattern in ("permutation", "ring"):
            return hosts, (hosts + self._shift(topology)) % n
        if self.pattern == "random":
            # Sattolo's shuffle: one cycle through all hosts, so nobody sends to itself.
            order = list(range(n))
            draw = random.Random(f"permutation {seed}")
            for i in range(n - 1, 0, -1):
                j = draw.randrange(i)
                order[i], order[j] = order[j], order[i]
            return hosts, np.array(order)
        if self.pattern == "all-to-all":
            peers = self._peers(topology)
            distances = np.random.default_rng([seed, 4]).permutation(n - 1)[:peers] + 1
            source = np.repeat(hosts, peers)
            return source, (source + np.tile(distances, n)) % n
        senders = hosts[-(self.senders or n - 1) :]
        return senders, np.zeros_like(senders)

    def table(self, topology: Topology, seed: int) -> FlowTable:
        """Return every flow; a host's flows go over planes and families in turn.

        Raises:
            ScenarioError: as ``check``.
        """
        self.check(topology)
        source, destination = self._ends(topology, seed)
        peers = self._peers(topology)
        if self.pattern == "flows":
            counts = np.array([spec.flows for spec in self.flows], np.int64)
            rates = np.array([spec.rate or 0 for spec in self.flows], np.float64)
        else:
            counts = np.full(len(source), self.flows_per_host)
            rates = np.zeros(len(source))
        of_host = counts * peers
        # A host with fewer flows than planes leaves the other planes idle.
        ports = np.minimum(topology.planes, of_host)
        share = np.where(rates > 0, rates, self.load * topology.host_rate_bps * ports / of_host)
        pair = np.repeat(np.arange(len(source)), counts)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        k = pair % peers * self.flows_per_host + within
        families = np.array(topology.families, np.int64)
        return FlowTable(
            source[pair],
            destination[pair],
            k % topology.planes,
            families[k // topology.planes % len(families)],
            share[pair],
        )

    def expand(self, topology: Topology, seed: int) -> list[Flow]:
        """Return every flow as an object; see ``table``.

        Raises:
            ScenarioError: as ``check``.
        """
        table, hosts = self.table(topology, seed), topology.hosts
        return [
            Flow(hosts[source], hosts[destination], rate, plane, 4 if family == 4 else 6)
            for source, destination, plane, family, rate in zip(
                table.source.tolist(),
                table.destination.tolist(),
                table.plane.tolist(),
                table.family.tolist(),
                table.rate_bps.tolist(),
                strict=True,
            )
        ]


def _host_number(name: str) -> int:
    """Return the number in a host's name; 0 for what is no host's name."""
    match = re.fullmatch(r"h([1-9][0-9]{0,7})", name)
    return int(match[1]) if match else 0


_OVERHEAD = {4: 20 + 8 + 12 + 16 + 4 + 3, 6: 40 + 8 + 12 + 16 + 4 + 3}
"""IP, UDP, BTH, RETH, ICRC and padding, in bytes."""

Workload = OpenLoop
