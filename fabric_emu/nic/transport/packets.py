"""Packets as columns, the one currency between transports and whatever carries them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any

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


DTYPE = np.dtype(
    [
        ("queue_pair", np.int64),
        ("psn", np.int64),
        ("echo_psn", np.int64),
        ("value", np.int64),
        ("bitmap", np.uint64),
        ("entropy", np.uint16),
        ("echo", np.uint16),
        ("kind", np.uint8),
        ("marked", np.bool_),
        ("trimmed", np.bool_),
        ("last_hop", np.bool_),
        ("echo_marked", np.bool_),
        ("retransmission", np.bool_),
        ("padding", np.uint8, (6,)),
    ]
)
_WORDS = DTYPE.itemsize // 8

Rows = Annotated[NDArray[np.void], DTYPE]
"""``Packets.rows``, as compiled functions take them."""


class _Column:
    """One column of ``Packets.rows`` as an attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, packets: Packets, owner: type | None = None) -> NDArray[Any]:
        return packets.rows[self._name]


class Packets:
    """Packets in order of sending or arrival, one row each.

    Attributes:
        rows: (n,) structured; the columns below are views of it.
        queue_pair: (n,) int64 row of the queue pair, whichever way the packet goes.
        psn: (n,) int64; of data its own, counted from 0 without wrapping; of control packets the
            number they speak of (last in order for ACK, first missing for SACK, expected for NAK).
        kind: (n,) uint8 of ``Kind``.
        entropy: (n,) uint16 UDP source port.
        marked: (n,) bool, ECN congestion experienced.
        trimmed: (n,) bool, only the headers arrived.
        last_hop: (n,) bool, trimmed on the port into the receiving host.
        bitmap: (n,) uint64, SACK: received packets from ``psn`` on, the lowest bit first.
        echo: (n,) uint16, control packets: entropy of the packet they answer.
        echo_psn: (n,) int64, control packets: number of the packet they answer.
        echo_marked: (n,) bool, control packets: whether the packet they answer was marked.
        value: (n,) int64, CREDIT: packets granted since the start.
        retransmission: (n,) bool, data sent before; not on the wire.
    """

    __slots__ = ("rows",)

    queue_pair, psn, echo_psn, value = _Column(), _Column(), _Column(), _Column()
    bitmap, entropy, echo, kind = _Column(), _Column(), _Column(), _Column()
    marked, trimmed, last_hop = _Column(), _Column(), _Column()
    echo_marked, retransmission = _Column(), _Column()

    def __init__(self, rows: NDArray[np.void]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, kind: Any, queue_pair: NDArray[np.int64], **columns: Any) -> Packets:
        """Return packets; columns not given are zero, scalars stand for all rows."""
        rows = np.zeros(len(queue_pair), DTYPE)
        rows["kind"] = kind
        rows["queue_pair"] = queue_pair
        for name, values in columns.items():
            rows[name] = values
        return cls(rows)

    @classmethod
    def none(cls) -> Packets:
        """Return no packets."""
        return cls(np.zeros(0, DTYPE))

    @classmethod
    def join(cls, parts: Iterable[Packets]) -> Packets:
        """Return the packets of all parts, in order."""
        filled = [part.rows for part in parts if len(part.rows)]
        if len(filled) == 1:
            return cls(filled[0])
        return cls(_packets(np.concatenate([_words(r) for r in filled]))) if filled else cls.none()

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Packets:
        """Return some of the packets."""
        return Packets(_packets(_words(self.rows)[rows]))


# Plain words are picked and joined several times faster than structures.


def _words(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    return rows.view(np.uint64).reshape(-1, _WORDS)


def _packets(words: NDArray[np.uint64]) -> NDArray[np.void]:
    return words.view(DTYPE)[:, 0]
