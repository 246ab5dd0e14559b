"""One frame between many pairs of hosts: scapy builds each part once, numpy puts them together.

A run's frames of one kind differ in what is under the transport header, which scapy takes a
millisecond to build.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fabric_emu.compiled import ByteTable, Ints, compiled
from fabric_emu.wire.layout import IP, IPV4, IPV6
from fabric_emu.wire.patch import set_length

if TYPE_CHECKING:
    from fabric_emu.wire.rocev2 import Envelope

Bytes = npt.NDArray[np.uint8]

_UDP_HEADER = 8


def heads_of(envelopes: Sequence[Envelope]) -> Bytes:
    """Return (n, Ethernet to UDP header) bytes of envelopes with nothing in them.

    Raises:
        ValueError: envelopes of different IP versions.
    """
    distinct = {envelope: place for place, envelope in enumerate(dict.fromkeys(envelopes))}
    heads = [bytes(envelope.frame()) for envelope in distinct]
    if len({len(head) for head in heads}) != 1:
        raise ValueError("all envelopes must have one IP version")
    rows = np.frombuffer(b"".join(heads), np.uint8).reshape(len(heads), -1)
    return rows[[distinct[envelope] for envelope in envelopes]]


def replicate(frame: bytes, heads: Bytes) -> Bytes:
    """Return (n, length) copies of a whole frame, one under each of (n, bytes) heads.

    Raises:
        ValueError: the frame has another IP version.
    """
    udp = IPV4.udp if frame[IP] >> 4 == 4 else IPV6.udp
    if heads.shape[1] != udp + _UDP_HEADER:
        raise ValueError("the envelopes must have the IP version of the frame")
    rows = np.empty((len(heads), len(frame)), np.uint8)
    rows[:] = np.frombuffer(frame, np.uint8)
    rows[:, : heads.shape[1]] = heads
    set_lengths(rows, udp, np.full(len(rows), len(frame)))
    return rows


@compiled
def set_lengths(rows: ByteTable, udp: int, lengths: Ints) -> None:
    """Make the IP and UDP headers say that frames have these lengths.

    Args:
        rows: (n, UDP header's end at least), of one IP version, changed in place.
        udp: where the UDP header starts.
        lengths: (n,) bytes of the whole frames.
    """
    for frame in range(len(rows)):
        set_length(rows[frame], udp, lengths[frame])
