"""What a selective receiver answers to the data that arrives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric_emu.compiled import Bools, Ints, compiled
from fabric_emu.nic.transport.packets import Kind, Rows

BITMAP_BITS = 64

_SACK = int(Kind.SACK)


@compiled
def acknowledge(
    rows: Rows,
    new: Bools,
    every: int,
    first: Ints,
    part_of: NDArray[np.int32],
    part_end: Ints,
    received: Bools,
    first_missing: Ints,
    highest_seen: Ints,
    since_ack: Ints,
    answers: Rows,
) -> tuple[int, int, int]:
    """Answer data packets that have been noted as received.

    One in ``every`` of a queue pair is answered, and the last of a message, a marked one, and one
    that came before: its answer was lost.

    Args:
        new: (n,) whether each came for the first time.
        received: (packets,) what has arrived, these packets included.
        first_missing: (queue pairs,) moved on.
        highest_seen, since_ack: (queue pairs,) the highest packet that has come; packets since
            the start.
        answers: filled.

    Returns:
        How many were filled; how far a packet was ahead of the first missing one at most; marks.
    """
    n = reach = marks = 0
    for i in range(len(rows)):
        row = rows[i]
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
        if since_ack[pair] % every and not (last or row.marked or not new[i]):
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
    return n, reach, marks
