"""The control run: flows that share no link, on one path each.

Nothing in it can reorder packets or make them wait, so what it shows is the emulator alone.
"""

from __future__ import annotations

from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology

LOAD = 0.5
"""Of the slowest link on the way: a packet has left before the next one comes."""


def control_scenario(scenario: Scenario, duration_s: float) -> Scenario:
    """Return the control run of a scenario: its fabric, ECMP, one flow per pair of hosts.

    One host of every leaf (of every pod with three tiers, any host under a single leaf) sends to,
    or receives from, one of another: two such flows meet on no link, whatever their hashes say.
    """
    topology = scenario.topology
    rate = LOAD * min(topology.link_rate, topology.host_rate_bps)
    flows = [
        {
            "source": f"h{source + 1}",
            "destination": f"h{destination + 1}",
            "flows": topology.planes,
            "rate": max(int(rate), 1),
        }
        for source, destination in _pairs(topology)
    ]
    return Scenario.model_validate(
        {
            "title": "control run",
            "topology": topology.model_dump(),
            "workload": {
                "pattern": "flows",
                "flows": flows,
                "payload": scenario.workload.payload,
                "duration": duration_s,
            },
            "schemes": [Scheme.named("ecmp")],
            "seed": scenario.seed,
        }
    )


def control_links(topology: Topology) -> int:
    """Return how many links a packet of the control run crosses."""
    if topology.pods > 1:
        return 6
    return 4 if topology.total_leaves > 1 else 2


def base_delay_s(topology: Topology, floor_s: float) -> float:
    """Return what every message takes beside serialisation, at least.

    The delay floor was measured over ``control_links``; the shortest way, within a leaf, has two
    of them, and a share of the floor that is no less.
    """
    return floor_s * 2 / control_links(topology)


def _pairs(topology: Topology) -> list[tuple[int, int]]:
    apart = {
        6: topology.leaves * topology.hosts_per_leaf,
        4: topology.hosts_per_leaf,
        2: 1,
    }[control_links(topology)]
    firsts = range(0, topology.total_hosts, apart)
    half = len(firsts) // 2
    return list(zip(firsts[:half], firsts[half : 2 * half], strict=True))
