"""What a transport asks of an entropy policy, and the source ports behind the indexes."""

from __future__ import annotations

from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Ints, compiled
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, SOURCE_PORTS

Ports = NDArray[np.uint16]
_PortTable = Annotated[NDArray[np.uint16], 2]


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
        values = np.empty(0, np.uint16) if values is None else np.asarray(values, np.uint16)
        self.size = values.shape[-1] or SOURCE_PORTS
        self._ports = np.array(np.broadcast_to(values, (queue_pairs, values.shape[-1])), order="C")

    def probes(self, now_s: float, busy: Bools) -> tuple[Ints, Ints]:
        """Probe nothing: what keeps no values out of use has none to ask about."""
        none = np.empty(0, np.int64)
        return none, none

    def on_probe_answer(self, rows: Ints, index: Ints) -> None:
        """Learn nothing."""

    def port(self, rows: Ints, index: Ints) -> Ports:
        """Return (n,) UDP source ports."""
        return _port(self._ports, rows, index)

    def index_of(self, rows: Ints, port: Ports) -> Ints:
        """Return (n,) indexes of source ports; of equal ones the first.

        Raises:
            ValueError: a port that is none of its queue pair's.
        """
        rows, port = np.ascontiguousarray(rows), np.ascontiguousarray(port)
        index, known = _index_of(self._ports, rows, port)
        if not known:
            whole = "a source port outside the range of RoCEv2"
            some = "a source port that is no entropy value of its queue pair"
            raise ValueError(some if self._ports.size else whole)
        return index


@compiled
def _port(ports: _PortTable, rows: Ints, index: Ints) -> Ports:
    port = np.empty(len(rows), np.uint16)
    for i in range(len(rows)):
        port[i] = ports[rows[i], index[i]] if ports.size else FIRST_SOURCE_PORT + index[i]
    return port


@compiled
def _index_of(ports: _PortTable, rows: Ints, port: Ports) -> tuple[Ints, bool]:
    """Return (n,) indexes, and whether all are known."""
    index = np.empty(len(rows), np.int64)
    known = True
    for i in range(len(rows)):
        if not ports.size:
            index[i] = port[i] - FIRST_SOURCE_PORT
            known = known and index[i] >= 0
            continue
        at, end = 0, ports.shape[1]
        while at < end and ports[rows[i], at] != port[i]:
            at += 1
        index[i] = at
        known = known and at < end
    return index, known
