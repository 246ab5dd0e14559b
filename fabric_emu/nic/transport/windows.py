"""Congestion control as selective transports take it: a window, receiver credit, or both."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.nic.congestion.nscc import Nscc
from fabric_emu.nic.congestion.rccc_account import (
    Accounts,
    CreditAccount,
    left,
    renew,
    targets,
    top_up,
)


class WindowControl:
    """NSCC: a window that marks and delay move.

    Args:
        nscc: the windows.
        packet_bytes: payload of a full packet.
    """

    def __init__(self, nscc: Nscc, packet_bytes: int) -> None:
        self.nscc = nscc
        self._packet = packet_bytes
        self._bytes_each = np.float64(packet_bytes)

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
        rtt_s: Floats,
        marked: Bools,
        in_flight: Ints,
    ) -> None:
        """Move the windows."""
        delay = rtt_s - self.nscc.settings.base_rtt_s
        self.nscc.on_ack(rows, now_s, bytes_, delay, marked, in_flight * self._bytes_each)

    def on_loss(self, rows: Ints, now_s: float, bytes_: Ints, in_flight: Ints) -> None:
        """Shrink the windows."""
        self.nscc.on_loss(rows, now_s, bytes_, in_flight * self._bytes_each)

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
        return _allowance(
            self._account.rows,
            self._idle,
            self._heard_s,
            in_flight,
            backlog,
            now_s,
            self._patience_s,
        )

    def on_sent(self, rows: Ints, backlog: Ints) -> Ints:
        """Spend credit; tell receivers what is needed in all."""
        self._account.spend(rows)
        return _tell(self._account.rows, self._idle, rows, backlog)

    def on_ack(
        self,
        rows: Ints,
        now_s: float,
        bytes_: Ints,
        rtt_s: Floats,
        marked: Bools,
        in_flight: Ints,
    ) -> None:
        """Leave the pace to the receiver."""

    def on_loss(self, rows: Ints, now_s: float, bytes_: Ints, in_flight: Ints) -> None:
        """Leave the pace to the receiver."""

    def on_credit(self, rows: Ints, credit: Ints, now_s: float) -> None:
        """Take what receivers grant."""
        self._account.add(rows, credit)
        self._heard_s[rows] = now_s


@compiled
def _allowance(
    accounts: Accounts,
    idle: Bools,
    heard_s: Floats,
    in_flight: Ints,
    backlog: Ints,
    now_s: float,
    patience_s: float,
) -> Ints:
    allowance = np.empty(len(accounts), np.int64)
    for row in range(len(accounts)):
        if backlog[row] > 0:
            if idle[row]:
                renew(accounts, row)
                idle[row], heard_s[row] = False, now_s
            starved = in_flight[row] == 0 and left(accounts, row) <= 0
            if starved and now_s - heard_s[row] > patience_s:
                top_up(accounts, row, 1)
                heard_s[row] = now_s
        allowance[row] = max(left(accounts, row), 0)
    return allowance


@compiled
def _tell(accounts: Accounts, idle: Bools, rows: Ints, backlog: Ints) -> Ints:
    """Return (n,) the credit that senders need in all; those without a backlog become idle."""
    for row in rows:
        if backlog[row] == 0:
            idle[row] = True
    return targets(accounts, rows, backlog)
