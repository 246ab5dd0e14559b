"""Workloads: what the hosts send. Open loop: flows at a constant offered rate."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fabric_emu.errors import ScenarioError
from fabric_emu.model.fields import Description, Duration, Rate, Size
from fabric_emu.model.topology import Node, Topology


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
    place in the second half; ``permutation``, host i sends to host i + shift; ``random``, a random
    permutation without fixed points drawn from the run's seed; ``incast``, ``senders`` hosts send
    to the first host, the farthest first; ``flows``, just those listed.
    """

    kind: Literal["open-loop"] = "open-loop"
    pattern: Literal["pairs", "permutation", "random", "incast", "flows"] = "permutation"
    flows_per_host: int = Field(1, ge=1, le=4096, description="flows from each sending host")
    load: float = Field(0.9, gt=0, le=4, description="offered by a sending host, over host_rate")
    shift: int | None = Field(
        None, description="permutation: distance to the receiver; hosts_per_leaf when left out"
    )
    senders: int | None = Field(None, ge=1, description="incast: how many hosts send; all others")
    flows: tuple[FlowSpec, ...] = Field((), description="pattern flows: who sends to whom")
    payload: Size = Field(4096, ge=8, le=65000, description="bytes of each packet's payload")
    message_size: Size = Field(65536, description="bytes of one message (RDMA write)")
    duration: Duration = Field(3.0, le=3600, description="how long the hosts send")

    def host_pairs(self, topology: Topology, seed: int) -> list[tuple[Node, Node]]:
        """Return who sends to whom. Raises ScenarioError when the topology is too small."""
        hosts = topology.hosts
        n = len(hosts)
        if self.pattern == "flows":
            return [self._named_pair(topology, i) for i in range(len(self.flows))]
        if n < 2:
            raise ScenarioError("topology", n, f"two hosts or more for pattern {self.pattern}")
        if self.pattern == "pairs":
            if n % 2:
                raise ScenarioError("topology", n, "an even number of hosts for pattern pairs")
            return list(zip(hosts[: n // 2], hosts[n // 2 :], strict=True))
        if self.pattern == "permutation":
            shift = (self.shift if self.shift is not None else topology.hosts_per_leaf) % n
            if not shift:
                raise ScenarioError(
                    "workload.shift", self.shift, f"a distance that is not a multiple of {n} hosts"
                )
            return [(host, hosts[(i + shift) % n]) for i, host in enumerate(hosts)]
        if self.pattern == "random":
            # Sattolo's shuffle: one cycle through all hosts, so nobody sends to itself.
            order = list(range(n))
            draw = random.Random(f"permutation {seed}")
            for i in range(n - 1, 0, -1):
                j = draw.randrange(i)
                order[i], order[j] = order[j], order[i]
            return [(host, hosts[order[i]]) for i, host in enumerate(hosts)]
        senders = self.senders if self.senders is not None else n - 1
        if senders > n - 1:
            raise ScenarioError("workload.senders", senders, f"at most {n - 1} (all other hosts)")
        return [(host, hosts[0]) for host in hosts[-senders:]]

    def _named_pair(self, topology: Topology, index: int) -> tuple[Node, Node]:
        spec = self.flows[index]
        by_name = {host.name: host for host in topology.hosts}
        for key in ("source", "destination"):
            if getattr(spec, key) not in by_name:
                raise ScenarioError(
                    f"workload.flows[{index}].{key}",
                    getattr(spec, key),
                    f"a host of the topology, h1 to h{topology.total_hosts}",
                )
        if spec.source == spec.destination:
            raise ScenarioError(
                f"workload.flows[{index}].destination", spec.destination, "a host not the source"
            )
        return by_name[spec.source], by_name[spec.destination]

    def expand(self, topology: Topology, seed: int) -> list[Flow]:
        """Return every flow; a host's flows go over planes and families in turn.

        Raises:
            ScenarioError: the topology does not have the hosts that the pattern names, or the
                MTU has no room for the payload.
        """
        room = topology.mtu - _OVERHEAD[topology.families[-1]]
        if self.payload > room:
            raise ScenarioError(
                "workload.payload", self.payload, f"at most {room} bytes with mtu {topology.mtu}"
            )
        found: list[Flow] = []
        for i, (source, destination) in enumerate(self.host_pairs(topology, seed)):
            count, rate = self.flows_per_host, None
            if self.pattern == "flows":
                count, rate = self.flows[i].flows, self.flows[i].rate
            share = rate or self.load * topology.host_rate_bps * topology.planes / count
            for k in range(count):
                families = topology.families
                found.append(
                    Flow(
                        source,
                        destination,
                        share,
                        plane=k % topology.planes,
                        family=families[k // topology.planes % len(families)],
                    )
                )
        return found


_OVERHEAD = {4: 20 + 8 + 12 + 16 + 4 + 3, 6: 40 + 8 + 12 + 16 + 4 + 3}
"""IP, UDP, BTH, RETH, ICRC and padding, in bytes."""

Workload = OpenLoop
