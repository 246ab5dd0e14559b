"""The sender's side of RCCC: credit counted packet by packet; see ``rccc`` for what is told."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Ints, compiled

_ACCOUNT = np.dtype(
    [
        ("granted", np.int64),
        ("speculative", np.int64),
        ("spent", np.int64),
        ("target", np.int64),  # last told
        ("start", np.int64),  # speculative packets of a sender that was idle
    ]
)
Accounts = Annotated[NDArray[np.void], _ACCOUNT]
"""``CreditAccount.rows``, as compiled functions take them."""


class CreditAccount:
    """The sender's side: how many packets each queue pair may send.

    Source:
        Ultra Ethernet Specification 1.0, RCCC.

    Fidelity:
        Retransmissions cost credit as first transmissions do. A real sender stops speculating
        at the first credit; here what is left of the speculative packets stays usable.

    Attributes:
        rows: (queue pairs,) structured; the columns below are views of it.
        granted: (queue pairs,) packets the receiver has granted in all, as last heard.
        speculative: (queue pairs,) packets that were allowed without credit, in all.
        spent: (queue pairs,) packets sent in all.
    """

    def __init__(self, queue_pairs: int, speculative_packets: int) -> None:
        """Start with an allowance of ``speculative_packets``, up to a bandwidth-delay product."""
        self.rows = np.zeros(queue_pairs, _ACCOUNT)
        self.rows["start"] = self.rows["speculative"] = speculative_packets
        self.granted: Ints = self.rows["granted"]
        self.speculative: Ints = self.rows["speculative"]
        self.spent: Ints = self.rows["spent"]

    @property
    def allowance(self) -> Ints:
        """(queue pairs,) packets that may be sent now."""
        return self.speculative + self.granted - self.spent

    def add(self, rows: Ints, granted_packets: Ints) -> None:
        """Take totals that the receiver tells; rows may repeat, older totals are passed over."""
        if len(rows):
            rows, packets = np.ascontiguousarray(rows), np.ascontiguousarray(granted_packets)
            _add(self.rows, rows, packets)

    def spend(self, rows: Ints, packets: int = 1) -> None:
        """Note packets sent, so many for each row; rows may repeat.

        Raises:
            ValueError: more than the allowance was sent.
        """
        if len(rows) and not _spend(self.rows, rows, packets):
            raise ValueError("packets sent beyond the credit")

    def renew(self, rows: Ints) -> None:
        """Let idle senders, with nothing unacknowledged, speculate anew up to the start's packets.

        Not those that still wait for credit: the last ``target`` is above what they got.
        """
        for row in rows:
            renew(self.rows, row)

    def ask(self, rows: Ints) -> None:
        """Allow one packet to senders without allowance: it carries their target.

        For those that wait in vain: the request or the grant was lost.
        """
        for row in rows:
            top_up(self.rows, row, 1)

    def target(self, backlog_packets: Ints) -> Ints:
        """Return (queue pairs,) the credit needed in all to send a backlog; goes on the wire.

        Args:
            backlog_packets: (queue pairs,) packets to send now, again or for the first time.
        """
        everyone = np.arange(len(self.rows))
        return targets(self.rows, everyone, backlog_packets)


@compiled
def _add(accounts: Accounts, rows: Ints, granted: Ints) -> None:
    for i in range(len(rows)):
        accounts[rows[i]].granted = max(accounts[rows[i]].granted, granted[i])


@compiled
def left(accounts: Accounts, row: int) -> int:
    """Return the packets that a sender may still send."""
    return accounts[row].speculative + accounts[row].granted - accounts[row].spent


@compiled
def top_up(accounts: Accounts, row: int, packets: int) -> None:
    """Let a sender send so many packets at least."""
    accounts[row].speculative += max(packets - left(accounts, row), 0)


@compiled
def renew(accounts: Accounts, row: int) -> None:
    """Do as ``CreditAccount.renew`` for one sender."""
    if accounts[row].target <= accounts[row].granted:
        top_up(accounts, row, accounts[row].start)


@compiled
def targets(accounts: Accounts, rows: Ints, backlog: Ints) -> Ints:
    """Return (n,) the credit that each of the senders needs for its backlog."""
    told = np.empty_like(rows)
    for i in range(len(rows)):
        account = accounts[rows[i]]
        told[i] = max(account.spent + backlog[rows[i]] - account.speculative, 0)
        account.target = told[i]
    return told


@compiled
def _spend(accounts: Accounts, rows: Ints, packets: int) -> bool:
    """Note packets sent; return whether there was credit for all."""
    fits = True
    for row in rows:
        accounts[row].spent += packets
        fits = fits and left(accounts, row) >= 0
    return fits
