"""First bytes of the frames of a worker's queue pairs, for packets of every kind to start from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fabric_emu.compiled import Bytes, ByteTable, Ints, compiled
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT
from fabric_emu.nic.transport.packets import Kind


class Templates:
    """Templates of frames, one row for each kind, queue pair and plane.

    Args:
        whole: by kind (local queue pairs x planes, length) whole frames.
        length: bytes of a row.
        fill: what rows hold behind a frame.
        local: (queue pairs,) place of the run's queue pairs among the local ones.

    Attributes:
        rows: (templates, length)
        first: (kinds,) a kind's first row, -1 of kinds without frames.
        lengths: (kinds,) bytes of a kind's whole frames.
        pair: (queue pairs,) a queue pair's first row among its kind's.
        planes: how many rows it has of each kind.
    """

    def __init__(
        self, whole: Mapping[Kind, Bytes], length: int, fill: int, local: Ints, planes: int
    ) -> None:
        each = len(next(iter(whole.values())))
        self.rows = np.full((len(whole) * each, length), fill, np.uint8)
        self.first, self.lengths = np.full((2, len(Kind)), -1, np.int64)
        for number, (kind, frames) in enumerate(whole.items()):
            self.first[kind], self.lengths[kind] = number * each, frames.shape[1]
            kept = min(frames.shape[1], length)
            self.rows[number * each : (number + 1) * each, :kept] = frames[:, :kept]
        self.pair, self.planes = local * planes, planes


@compiled
def start(
    row: Bytes,
    kind: int,
    queue_pair: int,
    entropy: int,
    templates: ByteTable,
    first: Ints,
    pair: Ints,
    planes: int,
) -> None:
    """Copy a packet's template into a row; the arguments from ``templates`` on are ``Templates``'.

    Raises:
        ValueError: a kind without frames.
    """
    if first[kind] < 0:
        raise ValueError("packets of this kind have no frames")
    plane = (entropy - FIRST_SOURCE_PORT) % planes
    row[:] = templates[first[kind] + pair[queue_pair] + plane]
