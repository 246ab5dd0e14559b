"""What a transport asks of an entropy policy, and the source ports behind the indexes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, SOURCE_PORTS

Ints = NDArray[np.int64]
Ports = NDArray[np.uint16]
Bools = NDArray[np.bool_]


class EntropyPolicy(Protocol):
    """Chooses an entropy value per packet and learns from what comes back.

    Rows are queue pairs and may repeat; events are in order, and a batch gives what its events
    would one at a time. An index is an entropy value's place among its queue pair's values.
    """

    def choose(self, rows: Ints, now_s: float) -> Ints:
        """Return (n,) an index for each packet to be sent."""

    def port(self, rows: Ints, index: Ints) -> Ports:
        """Return (n,) UDP source ports."""

    def index_of(self, rows: Ints, port: Ports) -> Ints:
        """Return (n,) indexes of source ports, as acknowledgements echo them; of equals the first.

        Raises:
            ValueError: a port that is none of its queue pair's.
        """

    def on_ack(self, rows: Ints, index: Ints, marked: Bools) -> None:
        """Take packets that arrived; ``marked`` with congestion experienced."""

    def on_trim(self, rows: Ints, index: Ints, last_hop: Bools) -> None:
        """Take packets that were trimmed; ``last_hop`` on the port into the receiving host."""

    def on_loss(self, rows: Ints, index: Ints, now_s: float) -> None:
        """Take packets that were lost, or timed out."""

    def probes(self, now_s: float, busy: Bools) -> tuple[Ints, Ints]:
        """Return (n,) queue pairs and (n,) indexes to probe now, of ``busy`` queue pairs."""

    def on_probe_answer(self, rows: Ints, index: Ints) -> None:
        """Take values whose probes were answered."""


class PortTable:
    """UDP source ports of the entropy values of each queue pair.

    Attributes:
        size: values per queue pair.
    """

    def __init__(self, queue_pairs: int, values: Ports | None) -> None:
        """Take the values.

        Args:
            queue_pairs: how many.
            values: (queue pairs, E) or, the same for all, (E,), better without repetition; the
                whole range of RoCEv2 source ports when None.
        """
        self.size = SOURCE_PORTS
        self._ports: Ports | None = None
        if values is None:
            return
        values = np.asarray(values, np.uint16)
        self.size = values.shape[-1]
        self._ports = np.ascontiguousarray(np.broadcast_to(values, (queue_pairs, self.size)))
        key = (np.arange(queue_pairs)[:, None] << 16 | self._ports).ravel()
        self._order = key.argsort(kind="stable")
        self._key = key[self._order]

    def probes(self, now_s: float, busy: Bools) -> tuple[Ints, Ints]:
        """Probe nothing: what keeps no values out of use has none to ask about."""
        none = np.empty(0, np.int64)
        return none, none

    def on_probe_answer(self, rows: Ints, index: Ints) -> None:
        """Learn nothing."""

    def port(self, rows: Ints, index: Ints) -> Ports:
        """Return (n,) UDP source ports."""
        if self._ports is None:
            return (FIRST_SOURCE_PORT + index).astype(np.uint16)
        return self._ports[rows, index]

    def index_of(self, rows: Ints, port: Ports) -> Ints:
        """Return (n,) indexes of source ports; of equal ones the first.

        Raises:
            ValueError: a port that is none of its queue pair's.
        """
        if self._ports is None:
            index = port.astype(np.int64) - FIRST_SOURCE_PORT
            if (index < 0).any():
                raise ValueError("a source port outside the range of RoCEv2")
            return index
        key = rows << 16 | port
        place = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        if (self._key[place] != key).any():
            raise ValueError("a source port that is no entropy value of its queue pair")
        return self._order[place] % self.size
