"""Subject ``predict``: how many packets a second the multipath hash and choice take. No root."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from fabric_emu.bench.table import Row
from fabric_emu.predict.multipath import FiveTuples, multipath_hash, select_by_threshold

TUPLES, QUICK_TUPLES = 1 << 20, 1 << 18
REPETITIONS = 9
NEXT_HOPS = 16
REQUIRED_IPV4 = 5e6
POLICY = 1


def measure(quick: bool, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per address family: five-tuples of policy 1 to next hops of a group of 16.

    The time is the processor's, so that what else runs on the machine counts little.
    """
    limits: dict[Literal[4, 6], float | None] = {4: REQUIRED_IPV4, 6: None}
    for family, limit in limits.items():
        tell(f"IPv{family}")
        tuples = random_tuples(family, QUICK_TUPLES if quick else TUPLES)
        rates = tuple(_rate(tuples) for _ in range(REPETITIONS))
        yield Row("predict", f"IPv{family} five-tuples", "/s", rates, limit=limit)


def random_tuples(family: Literal[4, 6], rows: int) -> FiveTuples:
    """Return UDP five-tuples at random, the same each time."""
    draw = np.random.default_rng(family)
    shape = rows if family == 4 else (rows, 16)
    high, dtype = (1 << 32, np.uint32) if family == 4 else (1 << 8, np.uint8)
    src, dst = (draw.integers(0, high, shape, dtype) for _ in range(2))
    sport = draw.integers(0xC000, 0x10000, rows, np.uint16)
    return FiveTuples(family, src, dst, sport=sport, dport=np.full(rows, 4791, np.uint16))


def _rate(tuples: FiveTuples) -> float:
    start = time.thread_time()
    hashes = multipath_hash(tuples, seed=0x5EED, policy=POLICY)
    select_by_threshold(hashes, [1] * NEXT_HOPS)
    return len(tuples) / (time.thread_time() - start)
