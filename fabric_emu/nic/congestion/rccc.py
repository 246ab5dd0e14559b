"""RCCC, the receiver credit of Ultra Ethernet: a receiver paces what all its senders may send.

Everything said on the wire is a total since the start, so a lost, repeated or overtaken packet
does no harm and the next one heals it:

* a sender tells, in its data packets and in a request when it may not send any, the *target*: the
  credit it needs to have got in all (``CreditAccount.target``);
* the receiver tells, in credit packets and acknowledgements, the credit *granted* in all.

When the last packet of either kind is lost, the sender, which has something to send and no
allowance, asks again after a timeout, and the receiver answers (``CreditScheduler.hear``).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, IntTable, compiled

# Credit in packets is a share of a second times a rate; do not wait for the last millionth.
_SLACK = 1e-6

_HOST = np.dtype(
    [
        ("credit", np.float64),  # packets that may be granted
        ("packets_per_s", np.float64),
        ("last", np.int64),  # column of the sender served last
    ]
)
_Hosts = Annotated[NDArray[np.void], _HOST]


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
        self._hosts = np.zeros(hosts, _HOST)
        self._hosts["credit"] = pull_packets
        self._hosts["packets_per_s"] = utilisation * rate / (8 * packet_bytes)
        self._hosts["last"] = -1
        self._filled_s = now_s
        self._sender = _table(host_of_pair, hosts)
        self._tell = np.zeros(len(host_of_pair), bool)
        self._open = False

    def hear(self, rows: Ints, target_packets: Ints, cut: Bools) -> None:
        """Take what data packets say.

        Args:
            rows: (n,) their queue pairs; may repeat.
            target_packets: (n,) packets each sender needs to be granted in all; 0 asks for
                nothing, and an older, smaller one is passed over. Who asks for what has been
                granted has not heard of it, and is told again.
            cut: (n,) trimmed on the way: to be sent again, which takes credit too.
        """
        if _hear(rows, target_packets, cut, self.wanted, self.granted, self._tell):
            self._open = True

    def grant(self, now_s: float) -> tuple[Ints, Ints]:
        """Grant what has become due.

        Returns:
            (n,) queue pairs, each once, ascending, and (n,) packets newly granted (0 when only
            repeated); the total to send them is in ``granted``.
        """
        elapsed_s, self._filled_s = now_s - self._filled_s, now_s
        rows, given, self._open = _grant(
            self.granted,
            self.wanted,
            self._tell,
            self._hosts,
            self._sender,
            elapsed_s,
            self._pull,
            self._burst,
            self._open,
        )
        return rows, given


@compiled
def _hear(rows: Ints, target: Ints, cut: Bools, wanted: Ints, granted: Ints, tell: Bools) -> bool:
    """Do as ``CreditScheduler.hear``; return whether any credit is needed."""
    asked = False
    for i in range(len(rows)):
        row = rows[i]
        if target[i] > 0:
            asked = True
            wanted[row] = max(wanted[row], target[i])
            tell[row] = tell[row] or target[i] <= granted[row]
        if cut[i]:
            asked = True
            wanted[row] += 1
    return asked


@compiled
def _turn(granted: Ints, wanted: Ints, last: int, senders: Ints) -> int:
    """Return the column of the sender whose turn it is, the next in the circle; -1 if none is."""
    for step in range(len(senders)):
        column = (last + 1 + step) % len(senders)
        row = senders[column]
        if row >= 0 and wanted[row] > granted[row]:
            return column
    return -1


@compiled
def _grant(
    granted: Ints,
    wanted: Ints,
    tell: Bools,
    hosts: _Hosts,
    sender: IntTable,
    elapsed_s: float,
    most: int,
    burst: float,
    open_: bool,
) -> tuple[Ints, Ints, bool]:
    """Return whom to tell, what each is newly granted, and whether anybody waits for more."""
    given = np.zeros(len(granted), np.int64)
    waiting = False
    for h in range(len(hosts)):
        host = hosts[h]
        host.credit = min(host.credit + elapsed_s * host.packets_per_s, burst)
        while True:
            column = _turn(granted, wanted, host.last, sender[h]) if open_ else -1
            if column < 0:
                host.credit = min(host.credit, most)
                break
            row = sender[h, column]
            pull = min(wanted[row] - granted[row], most)
            if host.credit + _SLACK < pull:
                waiting = True
                break
            granted[row] += pull
            given[row] += pull
            tell[row] = True
            host.credit -= pull
            host.last = column
    rows = np.flatnonzero(tell)
    tell[rows] = False
    return rows, given[rows], waiting


def _table(host_of_pair: Ints, hosts: int) -> Ints:
    """Return (hosts, senders) queue pairs by host, -1 where a host has fewer."""
    pairs = np.flatnonzero(host_of_pair >= 0)
    pairs = pairs[np.argsort(host_of_pair[pairs], kind="stable")]
    count = np.bincount(host_of_pair[pairs], minlength=hosts)
    table: Ints = np.full((hosts, int(count.max(initial=1))), -1, np.int64)
    column = np.arange(len(pairs)) - np.repeat(np.cumsum(count) - count, count)
    table[host_of_pair[pairs], column] = pairs
    return table
