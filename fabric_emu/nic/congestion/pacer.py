"""Token buckets: when a queue pair with a rate may send."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Floats, Ints, compiled

# A millionth of a byte: sums of shares of a second do not come out even.
_SLACK_BYTES = 1e-6


class Pacer:
    """One token bucket per queue pair.

    Fidelity:
        A NIC spaces single packets; here what has become due since the last turn of the worker
        leaves together, at most a bucket full.

    Attributes:
        tokens_bytes: (queue pairs,) what may be sent at once.
    """

    def __init__(self, queue_pairs: int, burst_bytes: float, now_s: float = 0.0) -> None:
        """Start with full buckets.

        Args:
            queue_pairs: how many.
            burst_bytes: size of a bucket: at least a packet, and what the rate gives in the
                longest time between two turns of the worker, else the rate is not reached.
            now_s: the time.
        """
        self.burst_bytes = float(burst_bytes)
        self.tokens_bytes = np.full(queue_pairs, self.burst_bytes)
        self._filled_s = now_s

    def refill(self, rate_bps: Floats | float, now_s: float) -> None:
        """Add what rates, (queue pairs,) or one for all, have given since the last time."""
        self.tokens_bytes += np.asarray(rate_bps) * ((now_s - self._filled_s) / 8)
        np.minimum(self.tokens_bytes, self.burst_bytes, out=self.tokens_bytes)
        self._filled_s = now_s

    def allowance_packets(self, packet_bytes: float) -> Ints:
        """Return (queue pairs,) how many whole packets may be sent now."""
        return _whole_packets(self.tokens_bytes, packet_bytes)

    def spend(self, rows: Ints, bytes_: Ints) -> None:
        """Take out what was sent; rows may repeat."""
        if len(rows):
            _spend(self.tokens_bytes, rows, bytes_)

    def ready_s(self, rate_bps: Floats | float, packet_bytes: float) -> Floats:
        """Return (queue pairs,) when the next packet of each may be sent."""
        missing = np.maximum(packet_bytes - self.tokens_bytes, 0)
        ready: Floats = self._filled_s + missing * 8 / np.asarray(rate_bps)
        return ready


@compiled
def _whole_packets(tokens: Floats, packet_bytes: float) -> Ints:
    packets = np.empty(len(tokens), np.int64)
    for row in range(len(tokens)):
        packets[row] = max(int((tokens[row] + _SLACK_BYTES) / packet_bytes), 0)
    return packets


@compiled
def _spend(tokens: Floats, rows: Ints, bytes_: Ints) -> None:
    for i in range(len(rows)):
        tokens[rows[i]] -= bytes_[i]
