"""Entropy on purpose: values that use all paths equally, values that lead along one path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.errors import ScenarioError
from fabric_emu.model.numbering import Ints
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, SOURCE_PORTS, QueuePairs
from fabric_emu.model.scheme import Nic, Switch
from fabric_emu.predict.multipath import FLOW_LABEL, SRC_PORT
from fabric_emu.predict.placement import Packets, Placement, without_skipped

ALL_PORTS = np.arange(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + SOURCE_PORTS, dtype=np.uint16)
"""Every source port that RoCEv2 uses."""

OPEN_LOOP_VALUES = 256
"""Entropy values of an evenly sprayed flow, unless the scheme says otherwise."""

FLOW_LABELS = 1 << 20
_LABELS_AT_ONCE = 1 << 14


def hashes_source_port(switch: Switch) -> bool:
    """Tell whether the switches look at the UDP source port."""
    policy = switch.hash_policy
    return policy == 1 or (policy == 3 and bool(switch.hash_fields & SRC_PORT))


def hashes_flow_label(switch: Switch, family: int) -> bool:
    """Tell whether the switches look at the flow label, which IPv6 alone has."""
    policy = switch.hash_policy
    chosen = policy in (0, 2) or (policy == 3 and bool(switch.hash_fields & FLOW_LABEL))
    return family == 6 and chosen


def rotations(placement: Placement, pairs: QueuePairs, nic: Nic, seed: int) -> NDArray[np.uint16]:
    """Return (flows, m) the entropy values of evenly sprayed flows in the order of their use.

    Args:
        placement: how the switches hash.
        pairs: the queue pairs of all flows.
        nic: how many queue pairs and entropy values a flow has.
        seed: the run's seed.

    Raises:
        ValueError: as ``spread_evenly``.
    """
    draw = np.random.default_rng([seed, 2])
    parts = []
    for rows in pairs.groups():
        firsts = rows[rows % nic.queue_pairs == 0]
        packets = Packets.of(pairs, firsts)
        spread = spread_evenly(placement, packets, nic.entropy_values or OPEN_LOOP_VALUES, draw)
        parts.append((pairs.flow[firsts], spread))
    width = max(spread.shape[1] for _, spread in parts)
    rotation = np.zeros((len(pairs) // nic.queue_pairs, width), np.uint16)
    for flows, spread in parts:
        rotation[flows] = np.resize(spread.T, (width, len(flows))).T
    return rotation


def spread_evenly(
    placement: Placement,
    packets: Packets,
    values: int,
    draw: np.random.Generator,
    candidates: NDArray[np.uint16] = ALL_PORTS,
) -> NDArray[np.uint16]:
    """Return entropy values that use every path of each flow equally, in shuffled rotation.

    Every path means those that the candidates reach: of 16 candidates per path none misses with a
    probability of 1e-7, unless the switches' hashes exclude some.

    Args:
        placement: how the switches hash.
        packets: one row per flow; its source ports are not used.
        values: entropy values per flow; rounded up to a multiple of the number of paths.
        draw: of candidates and of the order.
        candidates: source ports to choose from.

    Returns:
        (flows, m) uint16 source ports, m >= values.

    Raises:
        ValueError: some path is reached by fewer candidates than its share.
    """
    candidates = draw.permutation(candidates)
    numbering = placement.numbering
    paths = numbering.leaf_uplinks * max(numbering.spine_uplinks, 1) * numbering.parallel**2
    ports = candidates[: max(2048, 16 * values, 16 * paths)]
    rotations = []
    for flow in range(len(packets)):
        every = packets.take(np.array([flow])).with_ports(ports[None])
        keys = numbering.path_keys(placement.choices(every))
        by_path = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.diff(keys[by_path], prepend=-1))
        each = -(-values // len(first))
        if np.diff(first, append=len(ports)).min() < each:
            raise ValueError(f"{len(ports)} source ports are too few for {each} on every path")
        chosen = ports[by_path[first[:, None] + np.arange(each)]]
        rotations.append(_rotation(chosen, draw))
    longest = max(len(rotation) for rotation in rotations)
    return np.array([np.resize(rotation, longest) for rotation in rotations])


def _rotation(chosen: NDArray[np.uint16], draw: np.random.Generator) -> NDArray[np.uint16]:
    """Order (paths, each) values in laps that visit every path once, each lap shuffled anew."""
    laps = [draw.permutation(chosen[:, lap]) for lap in range(chosen.shape[1])]
    return np.concatenate(laps)


@dataclass(frozen=True)
class Entropy:
    """Header values that steer packets, one row each.

    Attributes:
        source_port: (n,) UDP source ports of RoCEv2.
        flow_label: (n,) IPv6 flow labels; 0 with IPv4.
    """

    source_port: NDArray[np.uint16]
    flow_label: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.source_port)


def path_to_entropy(
    placement: Placement,
    source: int | str,
    destination: int | str,
    path: Sequence[str] | Sequence[int],
    count: int = 1,
    family: Literal[4, 6] = 4,
) -> Entropy:
    """Return entropy that steers packets from host to host along a path.

    All source ports are tried in their order, with flow label 0; then, where the switches hash
    flow labels, all labels with the first source port.

    Args:
        placement: how the switches hash.
        source, destination: hosts, as 0-based numbers or names.
        path: the switches, such as ``["leaf1", "spine3", "leaf2"]`` (over any of parallel links),
            or the port numbers that send the packet, the source's first.
        count: how many values.
        family: 4 or 6.

    Raises:
        ScenarioError: the fabric has no such path between the hosts, or fewer values reach it.
    """
    hosts = placement.topology.total_hosts
    first, last = _host("source", source, hosts), _host("destination", destination, hosts)
    plane, keys = _find(placement, first, last, path)
    one = Packets(
        family,
        plane,
        np.array([first]),
        np.array([last]),
        np.array([FIRST_SOURCE_PORT], np.uint16),
    )
    found: list[Packets] = []
    total = 0
    for packets in _candidates(placement, one):
        reached = placement.numbering.path_keys(placement.choices(packets))
        found.append(packets.take(np.isin(reached, keys)))
        total += len(found[-1])
        if total >= count:
            return _entropy(found, count)
    raise ScenarioError(
        "path",
        _shown(path),
        f"a path that {count} entropy values reach, not {total}",
        f"under hash policy {placement.switch.hash_policy} no more of them do",
    )


def _candidates(placement: Placement, one: Packets) -> Iterator[Packets]:
    yield one.with_ports(ALL_PORTS[None])
    if not hashes_flow_label(placement.switch, one.family):
        return
    rows = np.zeros(_LABELS_AT_ONCE, np.intp)
    for start in range(0, FLOW_LABELS, _LABELS_AT_ONCE):
        labels = np.arange(start, start + _LABELS_AT_ONCE, dtype=np.uint32)
        # Label 0 with the first port has been tried.
        yield replace(one.take(rows), flow_label=labels).take(labels > 0)


def _entropy(found: list[Packets], count: int) -> Entropy:
    ports = [packets.source_port for packets in found]
    labels = [
        np.zeros(len(packets), np.uint32) if packets.flow_label is None else packets.flow_label
        for packets in found
    ]
    return Entropy(np.concatenate(ports)[:count], np.concatenate(labels)[:count])


def _host(which: str, host: int | str, hosts: int) -> int:
    number = host
    if isinstance(host, str):
        match = re.fullmatch(r"h([1-9]\d*)", host)
        number = int(match[1]) - 1 if match else -1
    if not isinstance(number, int) or not 0 <= number < hosts:
        raise ScenarioError(which, host, f"a host of the topology, h1 to h{hosts}")
    return number


def _find(
    placement: Placement, source: int, destination: int, path: Sequence[str] | Sequence[int]
) -> tuple[int, Ints]:
    """Return a path's plane and its keys, several when it leaves parallel links open."""
    numbering, topology = placement.numbering, placement.topology
    by_port = all(isinstance(step, int) for step in path)
    numbers = {node.name: number for number, node in enumerate(topology.switches)}
    wanted = [step if isinstance(step, int) else numbers.get(step, -1) for step in path]
    counts = (numbering.leaf_uplinks, numbering.spine_uplinks, numbering.parallel)
    choices = np.indices([max(1, count) for count in (*counts, counts[-1])]).reshape(4, -1).T
    ends = np.full(len(choices), source), np.full(len(choices), destination)
    for plane in range(topology.planes):
        of = numbering.path_ports if by_port else numbering.path_switches
        every = without_skipped(of(plane, *ends, choices))
        if len(wanted) <= every.shape[1] and min(wanted, default=-1) >= 0:
            padded = wanted + [-1] * (every.shape[1] - len(wanted))
            same = (every == padded).all(axis=1)
            if same.any():
                return plane, numbering.path_keys(choices[same])
    raise ScenarioError(
        "path", _shown(path), f"a path of the fabric from h{source + 1} to h{destination + 1}"
    )


def _shown(path: Sequence[str] | Sequence[int]) -> str:
    return ">".join(map(str, path))
