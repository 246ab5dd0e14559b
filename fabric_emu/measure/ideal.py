"""How fast messages could be at best: what completion times are compared with.

The ideal is a lower bound that no routing, transport or order of sending can beat in a fabric of
store-and-forward links, however well the load is spread over equal paths. It is the larger of

* the **critical path**: the longest chain of messages that wait for each other, each one alone in
  an idle fabric, with the computation between them;
* for each host link in either direction, and for the uplinks and downlinks of each leaf and each
  pod taken together, the time to **serialise** everything that must cross them, after the earliest
  moment at which anything can reach them, and before the shortest way from there to the end.

A message alone takes the time to serialise all its frames on the sender's link (with planes, on
all of them), then one frame's time on every further link, then ``base_delay_s``. The frames that
count are what the links are billed for: from the Ethernet header to the last byte before the frame
check sequence.

Fidelity: a token bucket lets its burst pass an idle link at once, so an emulated message may beat
the ideal by the burst's time and by the store-and-forward times of its path, at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.messages import (
    Floats,
    Ints,
    MessageGraph,
    Occurrences,
    generations,
    offsets_of,
    ranges,
)
from fabric_emu.model.numbering import Numbering, Stage
from fabric_emu.model.topology import Topology
from fabric_emu.wire.layout import EXTENSION, HEADER_LENGTH, ICRC_LENGTH, IPV4, IPV6

_STAGES = len(Stage)


@dataclass(frozen=True)
class Framing:
    """How a transport cuts messages into frames.

    Attributes:
        payload_bytes: of a full packet.
        header_bytes: of each frame, from the Ethernet header on, everything but payload and its
            padding to 4 bytes.
        first_header_bytes: of a message's first frame, on top of that.
    """

    payload_bytes: int
    header_bytes: int
    first_header_bytes: int = 0

    @classmethod
    def rocev2(cls, payload_bytes: int, family: int, *, reth_in_every_packet: bool = False) -> Self:
        """Return the framing of RDMA writes over RoCEv2.

        Args:
            payload_bytes: path MTU.
            family: 4 or 6.
            reth_in_every_packet: as MRC does; otherwise in a message's first packet only.
        """
        header = (IPV4 if family == 4 else IPV6).udp + EXTENSION + ICRC_LENGTH
        reth = HEADER_LENGTH["RETH"]
        if reth_in_every_packet:
            return cls(payload_bytes, header + reth)
        return cls(payload_bytes, header, reth)

    def packets(self, size_bytes: Ints) -> Ints:
        """Return how many packets messages take; none for those without bytes."""
        return -(-size_bytes // self.payload_bytes)

    def wire_bytes(self, size_bytes: Ints) -> Ints:
        """Return the bytes of all frames of each message."""
        packets = self.packets(size_bytes)
        padded = (packets - 1) * _padded(self.payload_bytes) + _padded(self._rest(size_bytes))
        first = self.first_header_bytes * (packets > 0)
        return np.where(packets > 0, padded, 0) + packets * self.header_bytes + first

    def frame_bytes(self, size_bytes: Ints) -> tuple[Ints, Ints]:
        """Return the bytes of a full and of the last frame of each message.

        The extra header of the first frame counts where it is the only one.
        """
        only = self.packets(size_bytes) <= 1
        last = self.header_bytes + _padded(self._rest(size_bytes)) + self.first_header_bytes * only
        full = self.header_bytes + _padded(self.payload_bytes)
        return np.where(only, last, full), last

    def _rest(self, size_bytes: Ints) -> Ints:
        return size_bytes - (self.packets(size_bytes) - 1) * self.payload_bytes


def _padded(size_bytes: Ints | int) -> Ints:
    return np.asarray(-(-size_bytes // 4) * 4, np.int64)


class IdealFabric:
    """Lower bounds in one topology; see the module for what they count.

    Args:
        topology: the fabric.
        framing: how messages become frames.
        base_delay_s: of every message, beside serialisation: propagation and processing.

    Attributes:
        topology, framing, base_delay_s: as given.
        byte_s: (stages,) a byte's time on one link, the fastest, of each ``Stage``.
        shared_byte_s: (stages,) the same when all links that may share the load do.
    """

    def __init__(self, topology: Topology, framing: Framing, base_delay_s: float = 0.0) -> None:
        self.topology = topology
        self.framing = framing
        self.base_delay_s = base_delay_s
        t = topology
        self.byte_s = np.full(_STAGES, 8 / t.link_rate)
        self.byte_s[[Stage.HOST, Stage.LEAF_DOWN]] = 8 / t.host_rate_bps
        links = np.ones(_STAGES)
        if t.uplinks_per_leaf:
            between = [Stage.LEAF_UP, Stage.SPINE_DOWN]
            fastest = max(t.rates_to_spines)
            self.byte_s[between] = 8 / fastest
            links[between] = t.leaf_capacity_bps / fastest
        spine_uplinks = t.spines * Numbering(t).spine_uplinks
        links[[Stage.SPINE_UP, Stage.SUPER_DOWN]] = max(spine_uplinks, 1)
        self.shared_byte_s = self.byte_s / (links * t.planes)

    def message_s(self, graph: MessageGraph) -> Floats:
        """Return (n,) the time of each message alone in an idle fabric; 0 for local rows."""
        return self._alone(graph, _Crossing.of(graph, self))

    def collective_s(self, graph: MessageGraph, occurrences: Occurrences) -> Floats:
        """Return (m,) the time of each occurrence, from its first start to its last arrival.

        Only rows of the same occurrence count: other traffic, and what the first messages wait
        for, take no time.
        """
        crossing = _Crossing.of(graph, self)
        alone = self._alone(graph, crossing)
        group = occurrences.of_row
        head, tail = _heads_and_tails(graph, group, alone)
        bound = np.zeros(len(occurrences))
        inside = group >= 0
        np.maximum.at(bound, group[inside], (head + alone)[inside])
        for stage in Stage:
            rows = np.flatnonzero(inside & crossing.uses[:, stage])
            if not len(rows):
                continue
            owner = crossing.owner[rows, stage]
            keys, link = np.unique(group[rows] * (owner.max() + 1) + owner, return_inverse=True)
            before, after = np.full((2, len(keys)), np.inf)
            np.minimum.at(before, link, (head + crossing.before_s[:, stage])[rows])
            np.minimum.at(after, link, (tail + crossing.after_s[:, stage])[rows])
            busy = np.bincount(link, crossing.busy_s[rows, stage])
            np.maximum.at(
                bound, keys // (owner.max() + 1), before + busy + after + self.base_delay_s
            )
        return bound

    def _alone(self, graph: MessageGraph, crossing: _Crossing) -> Floats:
        full, last = self.framing.frame_bytes(graph.size_bytes)
        wire = self.framing.wire_bytes(graph.size_bytes)
        further = crossing.uses[:, Stage.HOST + 1 :] @ self.byte_s[Stage.HOST + 1 :]
        shared = self.shared_byte_s[Stage.HOST]
        found = np.maximum(
            (crossing.before_s + crossing.busy_s + crossing.after_s).max(axis=1),
            # The last full frame leaves when at most the last one is still to go; and a frame is
            # not divided between planes.
            np.maximum((wire - last) * shared, full * self.byte_s[Stage.HOST]) + full * further,
        )
        return np.where(graph.local, 0.0, found + self.base_delay_s)


@dataclass(frozen=True, eq=False)
class _Crossing:
    """What messages do on the links of each ``Stage``; all arrays (n, stages).

    Attributes:
        uses: whether they cross one.
        owner: the host, leaf or pod whose links these are.
        before_s, after_s: of the smallest frame to reach the link, and from behind it to the end.
        busy_s: of all frames on the links that may share the load.
    """

    uses: NDArray[np.bool_]
    owner: Ints
    before_s: Floats
    after_s: Floats
    busy_s: Floats

    @classmethod
    def of(cls, graph: MessageGraph, fabric: IdealFabric) -> Self:
        t = fabric.topology
        ends = (graph.source, graph.destination)
        leaves = tuple(end // t.hosts_per_leaf for end in ends)
        pods = tuple(leaf // t.leaves for leaf in leaves)
        owner = np.stack([ends[0], leaves[0], pods[0], pods[1], leaves[1], ends[1]], axis=1)
        uses = np.stack([~graph.local, leaves[0] != leaves[1], pods[0] != pods[1]], axis=1)
        uses = uses[:, [0, 1, 2, 2, 1, 0]]
        _, last = fabric.framing.frame_bytes(graph.size_bytes)
        frame_s = uses * last[:, None] * fabric.byte_s
        reached = np.cumsum(frame_s, axis=1)
        wire = fabric.framing.wire_bytes(graph.size_bytes)
        return cls(
            uses,
            owner,
            reached - frame_s,
            reached[:, -1:] - reached,
            uses * wire[:, None] * fabric.shared_byte_s,
        )


def _heads_and_tails(graph: MessageGraph, group: Ints, alone: Floats) -> tuple[Floats, Floats]:
    """Return the time before each row's start, and after its arrival, along the longest chain.

    Chains stay within a group; a row's delay counts when something of its group comes before it.
    """
    waiting = np.repeat(np.arange(len(graph)), graph.waits())
    kept = (group[waiting] == group[graph.after]) & (group[waiting] >= 0)
    after = graph.after[kept]
    offsets = offsets_of(np.bincount(waiting[kept], minlength=len(graph)))
    head, tail = np.zeros((2, len(graph)))
    order = generations(offsets, after)[1:]
    edges = [ranges(offsets[rows], offsets[rows + 1] - offsets[rows]) for rows in order]
    for rows, edge in zip(order, edges, strict=True):
        arrival = (head + alone)[after[edge]]
        first = offsets_of(offsets[rows + 1] - offsets[rows])[:-1]
        head[rows] = np.maximum.reduceat(arrival, first) + graph.delay_s[rows]
    for rows, edge in zip(reversed(order), reversed(edges), strict=True):
        further = (graph.delay_s + alone + tail)[rows]
        each = np.repeat(further, offsets[rows + 1] - offsets[rows])
        np.maximum.at(tail, after[edge], each)
    return head, tail
