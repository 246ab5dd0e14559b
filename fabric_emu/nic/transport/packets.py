"""Packets as columns, the one currency between transports and whatever carries them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What a packet is."""

    DATA = 0
    ACK = 1
    NAK = 2
    SACK = 3
    TRIM_NACK = 4
    CNP = 5
    CREDIT = 6
    PROBE = 7
    PROBE_ACK = 8


@dataclass(frozen=True)
class Packets:
    """Packets in order of sending or arrival, one row each.

    Attributes:
        kind: (n,) uint8 of ``Kind``.
        queue_pair: (n,) int64 row of the queue pair, whichever way the packet goes.
        psn: (n,) int64; of data its own, counted from 0 without wrapping; of control packets the
            number they speak of (cumulative for ACK and SACK, expected for NAK).
        entropy: (n,) uint16 UDP source port.
        marked: (n,) bool, ECN congestion experienced.
        trimmed: (n,) bool, only the headers arrived.
        last_hop: (n,) bool, trimmed on the port into the receiving host.
        bitmap: (n,) uint64, SACK: received packets from ``psn`` on, the lowest bit first.
        echo: (n,) uint16, control packets: entropy of the packet they answer.
        echo_psn: (n,) int64, control packets: number of the packet they answer.
        echo_marked: (n,) bool, control packets: whether the packet they answer was marked.
        value: (n,) int64, credits granted (packets), or bytes received.
        retransmission: (n,) bool, data sent before; not on the wire.
    """

    kind: NDArray[np.uint8]
    queue_pair: NDArray[np.int64]
    psn: NDArray[np.int64]
    entropy: NDArray[np.uint16]
    marked: NDArray[np.bool_]
    trimmed: NDArray[np.bool_]
    last_hop: NDArray[np.bool_]
    bitmap: NDArray[np.uint64]
    echo: NDArray[np.uint16]
    echo_psn: NDArray[np.int64]
    echo_marked: NDArray[np.bool_]
    value: NDArray[np.int64]
    retransmission: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, kind: Kind, queue_pair: NDArray[np.int64], **columns: object) -> Packets:
        """Return packets of one kind; columns not given are zero, scalars stand for all rows."""
        n = len(queue_pair)
        filled = {
            "kind": np.full(n, kind, np.uint8),
            "queue_pair": np.asarray(queue_pair, np.int64),
        }
        for field in dataclasses.fields(cls):
            if field.name in filled:
                continue
            dtype = _DTYPES[field.name]
            value = columns.get(field.name)
            filled[field.name] = (
                np.zeros(n, dtype)
                if value is None
                else np.broadcast_to(np.asarray(value, dtype), (n,))
            )
        return cls(**filled)

    @classmethod
    def none(cls) -> Packets:
        """Return no packets."""
        return cls.of(Kind.DATA, np.empty(0, np.int64))

    @classmethod
    def join(cls, parts: Iterable[Packets]) -> Packets:
        """Return the packets of all parts, in order."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls.none()
        if len(parts) == 1:
            return parts[0]
        return cls(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in parts])
                for field in dataclasses.fields(cls)
            }
        )

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Packets:
        """Return some of the packets."""
        return Packets(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})


_DTYPES: dict[str, type[np.generic]] = {
    "psn": np.int64,
    "entropy": np.uint16,
    "marked": np.bool_,
    "trimmed": np.bool_,
    "last_hop": np.bool_,
    "bitmap": np.uint64,
    "echo": np.uint16,
    "echo_psn": np.int64,
    "echo_marked": np.bool_,
    "value": np.int64,
    "retransmission": np.bool_,
}
