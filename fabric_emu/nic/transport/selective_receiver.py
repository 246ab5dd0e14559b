"""What a selective receiver answers to the data that arrives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Floats, Ints, compiled
from fabric_emu.nic.transport.ledger import Messages, arrive
from fabric_emu.nic.transport.packets import Kind, Rows

BITMAP_BITS = 64

_SACK = int(Kind.SACK)


@compiled
def acknowledge(
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
    first_missing: Ints,
    highest_seen: Ints,
    since_ack: Ints,
    answers: Rows,
) -> tuple[int, int, int, int]:
    """Take data packets and answer them; trimmed ones are left to others.

    One in ``every`` of a queue pair is answered, and the last of a message, a marked one, and one
    that came before: its answer was lost.

    The parameters from ``part_of`` to ``dependents`` are ``Ledger.arrivals``.

    Args:
        first_missing: (queue pairs,) moved on.
        highest_seen, since_ack: (queue pairs,) the highest packet that has come; packets since
            the start.
        answers: filled.

    Returns:
        How many were filled; how far a packet was ahead of the first missing one at most; marks;
        trimmed packets.
    """
    n = reach = marks = trimmed = 0
    for i in range(len(rows)):
        row = rows[i]
        if row.trimmed:
            trimmed += 1
            continue
        new = arrive(
            first[row.queue_pair] + row.psn,
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
        pair = row.queue_pair
        begin, end = first[pair], first[pair + 1]
        highest_seen[pair] = max(highest_seen[pair], row.psn)
        missing = begin + first_missing[pair]
        while missing < end and received[missing]:
            missing += 1
        first_missing[pair] = missing - begin
        reach = max(reach, highest_seen[pair] - first_missing[pair])
        marks += row.marked
        since_ack[pair] += 1
        last = row.psn + 1 == part_end[part_of[begin + row.psn]]
        if since_ack[pair] % every and not (last or row.marked or not new):
            continue
        bitmap = np.uint64(0)
        for bit in range(min(BITMAP_BITS, end - missing)):
            if received[missing + bit]:
                bitmap |= np.uint64(1) << np.uint64(bit)
        answer = answers[n]
        answer.kind = _SACK
        answer.queue_pair = pair
        answer.psn = first_missing[pair]
        answer.bitmap = bitmap
        answer.entropy = answer.echo = row.entropy
        answer.echo_psn = row.psn
        answer.echo_marked = row.marked
        n += 1
    return n, reach, marks, trimmed
