"""Congestion control as selective transports take it: a window, receiver credit, or both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.congestion import CreditAccount, Nscc

Ints = NDArray[np.int64]


class WindowControl:
    """NSCC: a window that marks and delay move.

    Args:
        nscc: the windows.
        packet_bytes: payload of a full packet.
    """

    def __init__(self, nscc: Nscc, packet_bytes: int) -> None:
        self.nscc = nscc
        self._packet = packet_bytes

    def allowance(self, in_flight: Ints) -> Ints:
        """Return (queue pairs,) packets that fit into the windows; one when nothing is out."""
        window = (self.nscc.window_bytes // self._packet).astype(np.int64)
        return np.maximum(np.maximum(window, 1) - in_flight, 0)

    def on_sent(self, rows: Ints, backlog: Ints) -> Ints:
        """Tell receivers nothing."""
        return np.zeros(len(rows), np.int64)

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints,
        rtt_s: NDArray[np.float64],
        marked: NDArray[np.bool_],
        in_flight: Ints,
    ) -> None:
        """Move the windows."""
        delay = rtt_s - self.nscc.settings.base_rtt_s
        flying = (in_flight * self._packet).astype(np.float64)
        self.nscc.on_ack(rows, now_s, bytes_, delay, marked, flying)

    def on_loss(self, rows: Ints, now_s: float, bytes_: Ints, in_flight: Ints) -> None:
        """Shrink the windows."""
        self.nscc.on_loss(rows, now_s, bytes_, (in_flight * self._packet).astype(np.float64))

    def on_credit(self, rows: Ints, credit: Ints) -> None:
        """Take no credit: none was asked for."""


class CreditControl:
    """RCCC: the receiver says how much may come; a first window goes without asking.

    Args:
        account: credit of the senders.
    """

    def __init__(self, account: CreditAccount) -> None:
        self._account = account

    def allowance(self, in_flight: Ints) -> Ints:
        """Return (queue pairs,) packets that there is credit for."""
        idle = np.flatnonzero(in_flight == 0)
        self._account.renew(idle)
        return np.maximum(self._account.allowance, 0)

    def on_sent(self, rows: Ints, backlog: Ints) -> Ints:
        """Spend credit; tell receivers what is needed in all."""
        self._account.spend(rows)
        return self._account.target(backlog)[rows]

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints,
        rtt_s: NDArray[np.float64],
        marked: NDArray[np.bool_],
        in_flight: Ints,
    ) -> None:
        """Leave the pace to the receiver."""

    def on_loss(self, rows: Ints, now_s: float, bytes_: Ints, in_flight: Ints) -> None:
        """Leave the pace to the receiver."""

    def on_credit(self, rows: Ints, credit: Ints) -> None:
        """Take what receivers grant."""
        self._account.add(rows, credit)
