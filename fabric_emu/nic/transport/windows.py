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

    def allowance(self, in_flight: Ints, backlog: Ints, now_s: float) -> Ints:
        """Return (queue pairs,) packets that fit into the windows; one when nothing is out."""
        return self.nscc.allowance_packets(in_flight, self._packet)

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

    def on_credit(self, rows: Ints, credit: Ints, now_s: float) -> None:
        """Take no credit: none was asked for."""


class CreditControl:
    """RCCC: the receiver says how much may come; a first window goes without asking.

    A queue pair that had nothing to send may speculate again when it has. One that waits in vain,
    its request or the grant lost, asks again with one packet after ``patience_s``.

    Args:
        account: credit of the senders.
        patience_s: longer than the turn of every other sender takes.
    """

    def __init__(self, account: CreditAccount, patience_s: float) -> None:
        self._account = account
        self._patience_s = patience_s
        n = len(account.granted)
        self._idle = np.ones(n, bool)
        self._heard_s = np.zeros(n)

    def allowance(self, in_flight: Ints, backlog: Ints, now_s: float) -> Ints:
        """Return (queue pairs,) packets that there is credit for."""
        account = self._account
        begins = self._idle & (backlog > 0)
        if begins.any():
            account.renew(np.flatnonzero(begins))
            self._idle[begins] = False
            self._heard_s[begins] = now_s
        starved = (backlog > 0) & (in_flight == 0) & (account.allowance <= 0)
        starved &= now_s - self._heard_s > self._patience_s
        account.speculative[starved] += 1
        self._heard_s[starved] = now_s
        return np.maximum(account.allowance, 0)

    def on_sent(self, rows: Ints, backlog: Ints) -> Ints:
        """Spend credit; tell receivers what is needed in all."""
        self._account.spend(rows)
        self._idle[rows[backlog[rows] == 0]] = True
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

    def on_credit(self, rows: Ints, credit: Ints, now_s: float) -> None:
        """Take what receivers grant."""
        self._account.add(rows, credit)
        self._heard_s[rows] = now_s
