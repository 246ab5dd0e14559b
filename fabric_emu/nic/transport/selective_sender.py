"""What a selective sender knows of its packets, and the loops that keep it so.

Arrays by queue pair: ``next`` its first packet not sent yet, ``cumulative`` all below arrived,
``in_flight`` and ``lost`` packets in these states.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.nic.transport.base import share
from fabric_emu.nic.transport.packets import Kind, Rows


class State(IntEnum):
    """What a sender knows of a packet."""

    UNSENT = 0
    FLYING = 1
    ACKNOWLEDGED = 2
    LOST = 3


SENT = np.dtype(
    [
        ("sent_s", np.float64),
        ("used", np.int32),  # index of its entropy value
        ("state", np.uint8),
        ("again", np.bool_),  # sent more than once
        ("answered", np.bool_),  # by an acknowledgement of its own
        ("padding", np.uint8),
    ]
)
Sent = Annotated[NDArray[np.void], SENT]

_UNSENT, _FLYING, _ACKNOWLEDGED, _LOST = (int(state) for state in State)
_DATA = int(Kind.DATA)
_BACKOFFS = 6


@compiled
def backlog(limit: Ints, next_: Ints, cumulative: Ints, lost: Ints, reach: int, out: Ints) -> None:
    """Work out (queue pairs,) packets to send now, again or for the first time."""
    for pair in range(len(out)):
        new = min(limit[pair], cumulative[pair] + reach) - next_[pair]
        out[pair] = lost[pair] + max(new, 0)


@compiled
def take(
    now_s: float,
    backlog_: Ints,
    allowance: Ints,
    room: Ints,
    by_host: Ints,
    source: Ints,
    turn: int,
    failed: Bools,
    first: Ints,
    size_bytes: Ints,
    next_: Ints,
    cumulative: Ints,
    in_flight: Ints,
    lost: Ints,
    sent: Sent,
    pair: Ints,
    rows: Rows,
) -> tuple[int, int, int]:
    """Take packets to send, lost ones first, as far as they are allowed and NICs have room.

    Args:
        by_host, turn: see ``share``.
        backlog_: less what is taken, on return.
        pair, rows: filled, in order of sending.

    Returns:
        How many were filled; those sent again among them, and their bytes.
    """
    count = np.zeros(len(backlog_), np.int64)
    for each in by_host:
        if not failed[each]:
            count[each] = min(backlog_[each], allowance[each])
    n = share(count, room, by_host, source, turn, pair)
    again = again_bytes = 0
    for i in range(n):
        each = pair[i]
        backlog_[each] -= 1
        flat = first[each] + next_[each]
        if lost[each]:
            flat = first[each] + cumulative[each]
            while sent[flat].state != _LOST:
                flat += 1
            lost[each] -= 1
            again += 1
            again_bytes += size_bytes[flat]
            sent[flat].again = True
            rows[i].retransmission = True
        else:
            next_[each] += 1
        in_flight[each] += 1
        sent[flat].state = _FLYING
        sent[flat].sent_s = now_s
        rows[i].kind = _DATA
        rows[i].queue_pair = each
        rows[i].psn = flat - first[each]
    return n, again, again_bytes


@compiled
def dress(
    rows: Rows, value: Ints, port: NDArray[np.uint16], told: Ints, first: Ints, sent: Sent
) -> None:
    """Give packets their entropy, and what they tell the receiver."""
    for i in range(len(rows)):
        rows[i].entropy = port[i]
        rows[i].value = told[i]
        sent[first[rows[i].queue_pair] + rows[i].psn].used = value[i]


@compiled
def _acknowledge(pair: int, flat: int, in_flight: Ints, lost: Ints, sent: Sent) -> None:
    if sent[flat].state == _FLYING:
        in_flight[pair] -= 1
    elif sent[flat].state == _LOST:
        lost[pair] -= 1
    sent[flat].state = _ACKNOWLEDGED


@compiled
def settle(
    rows: Rows,
    now_s: float,
    first: Ints,
    size_bytes: Ints,
    next_: Ints,
    cumulative: Ints,
    in_flight: Ints,
    lost: Ints,
    sent: Sent,
    newest_s: Floats,
    retries: Ints,
    pair: Ints,
    used: Ints,
    size: Ints,
    rtt_s: Floats,
    marked: Bools,
) -> int:
    """Take selective acknowledgements; what speaks of packets never sent is passed over.

    Args:
        newest_s: (queue pairs,) when the newest packet answered was sent.
        retries: (queue pairs,) cleared by progress.
        pair, used, size, rtt_s, marked: filled, for each packet answered for the first time: its
            queue pair, entropy, bytes, round trip (NaN if it was sent twice: nobody knows which
            copy is answered), and whether it was marked.

    Returns:
        How many were filled.
    """
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        each = row.queue_pair
        begin = first[each]
        end = next_[each]
        for psn in range(cumulative[each], min(row.psn, end)):
            _acknowledge(each, begin + psn, in_flight, lost, sent)
            cumulative[each] = psn + 1
        for bit in range(min(64, end - row.psn)):
            if row.bitmap >> np.uint64(bit) & np.uint64(1):
                _acknowledge(each, begin + row.psn + bit, in_flight, lost, sent)
        if row.echo_psn >= end:
            continue
        flat = begin + row.echo_psn
        _acknowledge(each, flat, in_flight, lost, sent)
        if sent[flat].answered:
            continue
        sent[flat].answered = True
        retries[each] = 0
        pair[n], used[n], size[n] = each, sent[flat].used, size_bytes[flat]
        marked[n] = row.echo_marked
        rtt_s[n] = np.nan
        if not sent[flat].again:
            rtt_s[n] = now_s - sent[flat].sent_s
            newest_s[each] = max(newest_s[each], sent[flat].sent_s)
        n += 1
    return n


@compiled
def give_up(flat: Ints, pair: Ints, in_flight: Ints, lost: Ints, sent: Sent) -> Bools:
    """Take packets for lost; return which were in flight."""
    flying = np.zeros(len(flat), np.bool_)
    for i in range(len(flat)):
        if sent[flat[i]].state == _FLYING:
            flying[i] = True
            sent[flat[i]].state = _LOST
            in_flight[pair[i]] -= 1
            lost[pair[i]] += 1
    return flying


@compiled
def expired(
    now_s: float,
    timeout_s: float,
    overtaken_s: float,
    most_retries: int,
    by_host: Ints,
    first: Ints,
    next_: Ints,
    cumulative: Ints,
    in_flight: Ints,
    sent: Sent,
    newest_s: Floats,
    timed_out_s: Floats,
    retries: Ints,
    failed: Bools,
) -> tuple[Ints, Ints, Bools]:
    """Return (n,) flat numbers and queue pairs of packets waited for too long, and which timed out.

    The others have been overtaken: they were sent long before one that has been answered. Packets
    sent before a timeout are waited for no longer on its account, nor do they count as another.

    Args:
        timed_out_s: (queue pairs,) when each last counted a timeout.
        retries: (queue pairs,) timeouts in a row without progress.
        failed: (queue pairs,) set where these are more than ``most_retries``.
    """
    most = 0
    for each in by_host:
        most += in_flight[each]
    flat, pair = np.empty(most, np.int64), np.empty(most, np.int64)
    late = np.empty(most, np.bool_)
    n = 0
    for each in by_host:
        if not in_flight[each]:
            continue
        patience = timeout_s * 2.0 ** min(retries[each], _BACKOFFS)
        patience_before = timeout_s * 2.0 ** min(max(retries[each] - 1, 0), _BACKOFFS)
        again = False
        begin = first[each]
        for number in range(begin + cumulative[each], begin + next_[each]):
            packet = sent[number]
            if packet.state != _FLYING:
                continue
            since = packet.sent_s >= timed_out_s[each]
            timed_out = now_s - packet.sent_s > (patience if since else patience_before)
            if timed_out or packet.sent_s < newest_s[each] - overtaken_s:
                flat[n], pair[n], late[n] = number, each, timed_out
                again = again or (timed_out and since)
                n += 1
        if again:
            retries[each] += 1
            timed_out_s[each] = now_s
            failed[each] = retries[each] > most_retries
    return flat[:n], pair[:n], late[:n]
