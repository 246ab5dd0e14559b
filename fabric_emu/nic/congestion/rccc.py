"""RCCC, the receiver credit of Ultra Ethernet: a receiver paces what all its senders may send.

Everything said on the wire is a total since the start, so a lost, repeated or overtaken packet
does no harm and the next one heals it:

* a sender tells, in its data packets and in a request when it may not send any, the *target*: the
  credit it needs to have got in all (``CreditAccount.target``);
* the receiver tells, in credit packets and acknowledgements, the credit *granted* in all.

When the last packet of either kind is lost, the sender, which has something to send and no
allowance, asks again after a timeout, and the receiver answers (``CreditScheduler.repeat``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.nic.batches import within

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Credit in packets is a share of a second times a rate; do not wait for the last millionth.
_SLACK = 1e-6


class CreditScheduler:
    """The receiver's side: grants credit at a pace, host by host, sender by sender.

    Source:
        Ultra Ethernet Specification 1.0, RCCC; EQDS (Olteanu et al., NSDI 2022); the pull
        pacer in ``sim/uec.cpp`` of uet-htsim.

    Fidelity:
        Credit is in packets, not in units of 256 bytes, and never more than a sender asked for.
        Every queue pair is a sender of its own. A host that was idle may grant one pull at
        once; a busy one catches up after a late turn of its worker, up to ``burst_packets``.

    Attributes:
        granted: (queue pairs,) packets granted in all; goes on the wire.
        wanted: (queue pairs,) packets asked for in all.
    """

    def __init__(
        self,
        host_of_pair: Ints,
        line_rate_bps: Floats | float,
        packet_bytes: float,
        pull_packets: int = 4,
        burst_packets: int = 16,
        utilisation: float = 0.99,
        now_s: float = 0.0,
    ) -> None:
        """Start with nothing asked for.

        Args:
            host_of_pair: (queue pairs,) receiving host, from 0; -1 when it is none of this
                worker's.
            line_rate_bps: of each host's link, or of all.
            packet_bytes: a full packet on the wire.
            pull_packets: credit in one grant.
            burst_packets: the most a busy host grants at once; what its link takes in the
                longest time between two turns of the worker.
            utilisation: share of the line rate that is granted.
            now_s: the time.
        """
        host_of_pair = np.asarray(host_of_pair, np.int64)
        rate = np.asarray(line_rate_bps, np.float64)
        hosts = len(rate) if rate.ndim else int(host_of_pair.max(initial=-1)) + 1
        self.granted = np.zeros(len(host_of_pair), np.int64)
        self.wanted = np.zeros(len(host_of_pair), np.int64)
        self._pull = pull_packets
        self._burst = float(max(burst_packets, pull_packets))
        rate = np.broadcast_to(rate, (hosts,))
        self._packets_per_s = utilisation * rate / (8 * packet_bytes)
        self._credit = np.full(hosts, float(pull_packets))
        self._filled_s = now_s
        self._sender = _table(host_of_pair, hosts)
        self._last = np.full(hosts, -1)
        self._open = False
        self._repeat = np.empty(0, np.int64)

    def demand(self, rows: Ints, target_packets: Ints) -> None:
        """Take senders' targets: the packets each needs to be granted in all; rows may repeat.

        An older, smaller target is passed over.
        """
        np.maximum.at(self.wanted, rows, target_packets)
        self._open = True

    def repeat(self, rows: Ints) -> None:
        """Have the next grant tell these senders their total again, new credit or not."""
        self._repeat = np.concatenate([self._repeat, rows])

    def grant(self, now_s: float) -> tuple[Ints, Ints]:
        """Grant what has become due.

        Returns:
            (n,) queue pairs, each once, ascending, and (n,) packets newly granted (0 when only
            repeated); the total to send them is in ``granted``.
        """
        self._credit += (now_s - self._filled_s) * self._packets_per_s
        np.minimum(self._credit, self._burst, out=self._credit)
        self._filled_s = now_s
        given = np.zeros(len(self.granted), np.int64)
        if self._open:
            self._share_out(given)
        else:
            np.minimum(self._credit, self._pull, out=self._credit)
        self.granted += given
        tell = given > 0
        tell[self._repeat] = True
        self._repeat = np.empty(0, np.int64)
        rows = np.flatnonzero(tell)
        return rows, given[rows]

    def next_grant_s(self) -> float:
        """Return when there will be something to grant; infinity when nobody asks."""
        if len(self._repeat):
            return self._filled_s
        if not self._open:
            return float("inf")
        _, pull = self._turn(self._unmet())
        asked = pull > 0
        missing = np.maximum(pull - self._credit, 0)[asked]
        wait = missing / self._packets_per_s[asked]
        return self._filled_s + float(wait.min(initial=np.inf))

    def _unmet(self) -> Ints:
        """Return (hosts, senders) packets asked for and not granted."""
        missing = np.maximum(self.wanted - self.granted, 0)
        unmet: Ints = np.where(self._sender >= 0, missing[self._sender], 0)
        return unmet

    def _turn(self, unmet: Ints) -> tuple[Ints, Ints]:
        """Return (hosts,) column of the sender whose turn it is, and the packets to grant it."""
        hungry = unmet > 0
        later = hungry & (np.arange(unmet.shape[1]) > self._last[:, None])
        # The next in the circle: behind the last served, else from the front.
        turn = np.where(later.any(axis=1), later.argmax(axis=1), hungry.argmax(axis=1))
        return turn, np.minimum(unmet[np.arange(len(unmet)), turn], self._pull)

    def _share_out(self, given: Ints) -> None:
        unmet = self._unmet()
        while True:
            turn, pull = self._turn(unmet)
            host = np.flatnonzero((pull > 0) & (self._credit + _SLACK >= pull))
            if not len(host):
                break
            turn, granted = turn[host], pull[host]
            unmet[host, turn] -= granted
            given[self._sender[host, turn]] += granted
            self._credit[host] -= granted
            self._last[host] = turn
        idle = pull == 0
        self._credit[idle] = np.minimum(self._credit[idle], self._pull)
        self._open = not idle.all()


def _table(host_of_pair: Ints, hosts: int) -> Ints:
    """Return (hosts, senders) queue pairs by host, -1 where a host has fewer."""
    pairs = np.flatnonzero(host_of_pair >= 0)
    pairs = pairs[np.argsort(host_of_pair[pairs], kind="stable")]
    count = np.bincount(host_of_pair[pairs], minlength=hosts)
    table: Ints = np.full((hosts, int(count.max(initial=1))), -1, np.int64)
    table[host_of_pair[pairs], within(count)] = pairs
    return table


class CreditAccount:
    """The sender's side: how many packets each queue pair may send.

    Source:
        Ultra Ethernet Specification 1.0, RCCC.

    Fidelity:
        Retransmissions cost credit as first transmissions do. A real sender stops speculating
        at the first credit; here what is left of the speculative packets stays usable.

    Attributes:
        granted: (queue pairs,) packets the receiver has granted in all, as last heard.
        speculative: (queue pairs,) packets that were allowed without credit, in all.
        spent: (queue pairs,) packets sent in all.
    """

    def __init__(self, queue_pairs: int, speculative_packets: int) -> None:
        """Start with an allowance of ``speculative_packets``, up to a bandwidth-delay product."""
        self._start = speculative_packets
        self.granted = np.zeros(queue_pairs, np.int64)
        self.speculative = np.full(queue_pairs, speculative_packets, np.int64)
        self.spent = np.zeros(queue_pairs, np.int64)
        self._target = np.zeros(queue_pairs, np.int64)

    @property
    def allowance(self) -> Ints:
        """(queue pairs,) packets that may be sent now."""
        return self.speculative + self.granted - self.spent

    def add(self, rows: Ints, granted_packets: Ints) -> None:
        """Take totals that the receiver tells; rows may repeat, older totals are passed over."""
        np.maximum.at(self.granted, rows, granted_packets)

    def spend(self, rows: Ints, packets: Ints | int = 1) -> None:
        """Note packets sent; rows may repeat.

        Raises:
            ValueError: more than the allowance was sent.
        """
        np.add.at(self.spent, rows, packets)
        if (self.allowance[rows] < 0).any():
            raise ValueError("packets sent beyond the credit")

    def renew(self, rows: Ints) -> None:
        """Let idle senders, with nothing unacknowledged, speculate anew up to the start's packets.

        Not those that still wait for credit: the last ``target`` is above what they got.
        """
        self._top_up(rows[self._target[rows] <= self.granted[rows]], self._start)

    def ask(self, rows: Ints) -> None:
        """Allow one packet to senders without allowance: it carries their target.

        For those that wait in vain: the request or the grant was lost.
        """
        self._top_up(rows, 1)

    def _top_up(self, rows: Ints, packets: int) -> None:
        # An assignment, so that a row that occurs twice is topped up once.
        missing = np.maximum(packets - self.allowance[rows], 0)
        self.speculative[rows] = self.speculative[rows] + missing

    def target(self, backlog_packets: Ints) -> Ints:
        """Return (queue pairs,) the credit needed in all to send a backlog; goes on the wire.

        Args:
            backlog_packets: (queue pairs,) packets to send now, again or for the first time.
        """
        self._target = np.maximum(self.spent + backlog_packets - self.speculative, 0)
        return self._target
