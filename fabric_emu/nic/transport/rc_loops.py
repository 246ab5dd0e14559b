"""The loops of reliable connections: what requesters send and hear, what responders answer.

Arrays by queue pair: ``next`` the packet to send next, ``highest`` all below have been sent,
``unacknowledged`` the first packet not acknowledged, ``progress_s`` when that last moved,
``expected`` the packet a responder waits for, ``gap`` whether it has asked for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.nic.transport.base import share
from fabric_emu.nic.transport.ledger import Messages, arrive
from fabric_emu.nic.transport.packets import Kind, Rows

_DATA, _ACK, _NAK = int(Kind.DATA), int(Kind.ACK), int(Kind.NAK)


@compiled
def take(
    now_s: float,
    limit: Ints,
    allowance: Ints,
    window: int,
    room: Ints,
    by_host: Ints,
    source: Ints,
    turn: int,
    failed: Bools,
    first: Ints,
    source_port: NDArray[np.uint16],
    next_: Ints,
    highest: Ints,
    unacknowledged: Ints,
    progress_s: Floats,
    sent_s: Floats,
    pair: Ints,
    rows: Rows,
) -> int:
    """Take packets to send, as far as windows, allowances and the NICs' room go.

    Args:
        by_host, turn: see ``share``.
        pair, rows: filled, in order of sending.

    Returns:
        How many were filled.
    """
    count = np.zeros(len(limit), np.int64)
    for each in by_host:
        if not failed[each]:
            end = min(limit[each], unacknowledged[each] + window)
            count[each] = min(end - next_[each], allowance[each])
    n = share(count, room, by_host, source, turn, pair)
    for i in range(n):
        each = pair[i]
        psn = next_[each]
        if psn == unacknowledged[each]:
            progress_s[each] = now_s
        next_[each] = psn + 1
        sent_s[first[each] + psn] = now_s
        row = rows[i]
        row.kind = _DATA
        row.queue_pair = each
        row.psn = psn
        row.entropy = source_port[each]
        row.retransmission = psn < highest[each]
        highest[each] = max(highest[each], psn + 1)
    return n


@compiled
def acknowledged(
    rows: Rows,
    now_s: float,
    next_: Ints,
    highest: Ints,
    unacknowledged: Ints,
    progress_s: Floats,
    retries: Ints,
) -> None:
    """Take ACKs and NAKs for what they acknowledge; what was never sent is passed over."""
    for i in range(len(rows)):
        row = rows[i]
        pair = row.queue_pair
        end = row.psn + (row.kind == _ACK)  # a NAK names the packet it waits for
        if unacknowledged[pair] < end <= highest[pair]:
            unacknowledged[pair] = end
            progress_s[pair] = now_s
            retries[pair] = 0
            next_[pair] = max(next_[pair], end)


@compiled
def go_back(
    rows: Rows,
    now_s: float,
    first: Ints,
    next_: Ints,
    highest: Ints,
    unacknowledged: Ints,
    progress_s: Floats,
    sent_s: Floats,
    waited_s: Floats,
) -> int:
    """Go back to the packets that NAKs name, unless they have been acknowledged since.

    Args:
        waited_s: filled with the time since these were sent.

    Returns:
        How many were filled.
    """
    n = 0
    for i in range(len(rows)):
        pair, psn = rows[i].queue_pair, rows[i].psn
        if unacknowledged[pair] <= psn < highest[pair]:
            waited_s[n] = now_s - sent_s[first[pair] + psn]
            next_[pair] = min(next_[pair], psn)
            progress_s[pair] = now_s
            n += 1
    return n


@compiled
def overdue(
    latest_s: float,
    by_host: Ints,
    failed: Bools,
    next_: Ints,
    unacknowledged: Ints,
    progress_s: Floats,
) -> Ints:
    """Return the queue pairs that wait for acknowledgements without progress since then."""
    late = np.empty(len(by_host), np.int64)
    n = 0
    for pair in by_host:
        waiting = unacknowledged[pair] < next_[pair] and not failed[pair]
        if waiting and progress_s[pair] < latest_s:
            late[n] = pair
            n += 1
    return late[:n]


@compiled
def respond(
    rows: Rows,
    now_s: float,
    every: int,
    first: Ints,
    part_end: Ints,
    part_of: NDArray[np.int32],
    part_message: Ints,
    received: Bools,
    arrived_s: Floats,
    duplicates: Ints,
    next_release_s: Floats,
    messages: Messages,
    dependent_offsets: Ints,
    dependents: Ints,
    source_port: NDArray[np.uint16],
    expected: Ints,
    gap: Bools,
    answers: Rows,
) -> tuple[int, int, int, int]:
    """Take the data that is expected, ask once for what is missing, repeat ACKs of duplicates.

    The parameters from ``part_of`` to ``dependents`` are ``Ledger.arrivals``.

    Args:
        every: packets per acknowledgement; the last of a message is always acknowledged.
        answers: filled, at most one for each packet.

    Returns:
        How many answers there are, and NAKs among them; packets dropped, out of order or trimmed.
    """
    n = naks = dropped = trimmed = 0
    for i in range(len(rows)):
        pair, psn = rows[i].queue_pair, rows[i].psn
        if rows[i].trimmed:
            trimmed += 1
            continue
        kind = _ACK
        if psn == expected[pair]:
            packet = first[pair] + psn
            arrive(
                packet,
                now_s,
                part_of,
                part_message,
                received,
                arrived_s,
                duplicates,
                next_release_s,
                messages,
                dependent_offsets,
                dependents,
            )
            expected[pair] += 1
            gap[pair] = False
            if (psn + 1) % every and psn + 1 != part_end[part_of[packet]]:
                continue
        else:
            dropped += 1
            if psn > expected[pair]:
                if gap[pair]:
                    continue
                gap[pair] = True
                kind = _NAK
                naks += 1
        answer = answers[n]
        answer.kind = kind
        answer.queue_pair = pair
        answer.psn = expected[pair] - (kind == _ACK)
        answer.entropy = source_port[pair]
        n += 1
    return n, naks, dropped, trimmed
