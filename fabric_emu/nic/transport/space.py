"""The packet space of a run: which packets there will be, laid out before the first is sent.

Messages of a pair of hosts go over its queue pairs in a fixed order, so every packet of the run
has a place in flat arrays from the start: what has arrived or is acknowledged is one flag each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PacketSpace:
    """Packets of all queue pairs; the packets of a queue pair lie side by side.

    A message split over several queue pairs has one *part* on each; a part is what a queue pair
    carries in one piece.

    Attributes:
        first: (queue pairs + 1,) flat number of each queue pair's packet 0, and the end.
        part_message: (parts,) message of each part; parts in order of their queue pair, then of
            sending.
        part_queue_pair: (parts,).
        part_end: (parts,) the queue pair's packet number just behind the part.
        part_of: (packets,) part of each packet.
        size_bytes: (packets,) payload of each packet.
        source, destination: (queue pairs,) 0-based hosts.
        payload: bytes of a full packet.
    """

    first: Ints
    part_message: Ints
    part_queue_pair: Ints
    part_end: Ints
    part_of: NDArray[np.int32]
    size_bytes: Ints
    source: Ints
    destination: Ints
    payload: int

    @classmethod
    def of(
        cls,
        source: Ints,
        destination: Ints,
        size_bytes: Ints,
        payload: int,
        queue_pairs: int = 1,
        split: bool = False,
    ) -> PacketSpace:
        """Lay out messages over queue pairs.

        Args:
            source, destination: (messages,) 0-based hosts.
            size_bytes: (messages,); messages without bytes have no packets.
            payload: bytes of a full packet.
            queue_pairs: per pair of hosts.
            split: cut every message over all queue pairs of its pair; else messages go round
                robin over them.
        """
        hosts = int(max(source.max(), destination.max())) + 1
        messages = np.nonzero(size_bytes > 0)[0]
        source, destination = source[messages], destination[messages]
        size_bytes = size_bytes[messages]
        pairs, pair = np.unique(source * hosts + destination, return_inverse=True)
        pair = pair.ravel()
        numbers = np.arange(len(messages))
        if split:
            part = np.repeat(numbers, queue_pairs)
            lane = np.tile(np.arange(queue_pairs), len(messages))
            packets = -(-size_bytes // payload)
            # Whole packets, the first lanes one more where they do not come out even.
            share, more = np.divmod(packets[part], queue_pairs)
            count = share + (lane < more)
            before = lane * share + np.minimum(lane, more)
            part_bytes = np.clip(size_bytes[part] - before * payload, 0, count * payload)
        else:
            part, part_bytes = numbers, size_bytes
            order = np.argsort(pair, kind="stable")
            rank = np.empty(len(messages), np.int64)
            starts = np.r_[0, np.cumsum(np.bincount(pair))[:-1]]
            rank[order] = np.arange(len(messages)) - starts[pair[order]]
            lane = rank % queue_pairs
        queue_pair = pair[part] * queue_pairs + lane
        keep = np.nonzero(part_bytes > 0)[0]
        keep = keep[np.argsort(queue_pair[keep], kind="stable")]
        part_message, part_bytes = messages[part[keep]], part_bytes[keep]
        queue_pair = queue_pair[keep]
        count = -(-part_bytes // payload)
        total = len(pairs) * queue_pairs
        per_pair = np.bincount(queue_pair, weights=count, minlength=total).astype(np.int64)
        first = np.r_[0, np.cumsum(per_pair)]
        ends = np.cumsum(count)
        part_of = np.repeat(np.arange(len(count), dtype=np.int32), count)
        size = np.full(len(part_of), payload, np.int64)
        size[ends - 1] = part_bytes - (count - 1) * payload
        return cls(
            first,
            part_message,
            queue_pair,
            ends - first[queue_pair],
            part_of,
            size,
            np.repeat(pairs // hosts, queue_pairs),
            np.repeat(pairs % hosts, queue_pairs),
            payload,
        )

    @property
    def queue_pairs(self) -> int:
        """How many queue pairs there are."""
        return len(self.first) - 1

    @property
    def packets(self) -> int:
        """How many packets there are in all."""
        return len(self.part_of)

    def flat(self, queue_pair: Ints, psn: Ints) -> Ints:
        """Return the flat numbers of packets."""
        return self.first[queue_pair] + psn

    def count(self, queue_pair: Ints) -> Ints:
        """Return how many packets queue pairs will carry in all."""
        return self.first[queue_pair + 1] - self.first[queue_pair]
