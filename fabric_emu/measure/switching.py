"""What the switches did besides forwarding by the kernel's hash, and what they told each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.switch.ports import DropReason


def summarise_switches(
    policy: str, counters: dict[str, int], ports: NDArray[np.void]
) -> dict[str, Any]:
    """Return the ``switch`` section of a summary.

    Args:
        policy: its name.
        counters: of all switches together, by name.
        ports: (ports,) structured counters at the end.

    Returns:
        ``policy``; ``balanced``, packets that the policy forwarded; ``flowlets`` and
        ``reassignments``; ``fallbacks``, packets left to the kernel; of adverts the packets sent,
        their bytes on the wire, those lost, received and refused, and the choices for want of a
        fresh one (``stale``).
    """
    return {
        "policy": policy,
        "balanced": counters["balanced"],
        "flowlets": counters["flowlets"],
        "reassignments": counters["reassignments"],
        "fallbacks": counters["fallbacks"],
        "adverts_sent": int(ports["advert_packets"].sum()),
        "adverts_bytes": int(ports["advert_bytes"].sum()),
        "adverts_lost": int(ports["dropped_packets"][:, DropReason.ADVERT_LOST].sum()),
        "adverts_received": counters["adverts_received"],
        "adverts_refused": counters["adverts_refused"],
        "stale": counters["stale"],
    }


def summarise_routing(kind: str, ready_s: float | None, ports: NDArray[np.void]) -> dict[str, Any]:
    """Return the ``control_plane`` section of a summary.

    Args:
        kind: of the control plane.
        ready_s: how long it took to have all routes; None when they were set.
        ports: (ports,) structured counters at the end.

    Returns:
        ``kind``, ``ready``; of what routers say to each other (BGP, BFD, neighbour discovery) the
        ``packets`` and ``bytes`` on the links since the fabric was built, and those ``lost``.
        They count in no figure of the data.
    """
    lost = ports["dropped_packets"][:, DropReason.ROUTING_LOST].sum()
    return {
        "kind": kind,
        "ready": ready_s,
        "packets": int(ports["routing_packets"].sum()),
        "bytes": int(ports["routing_bytes"].sum()),
        "lost": int(lost + ports["routing_written_off_packets"].sum()),
    }


def lateness(histogram: NDArray[np.int64], bin_s: float) -> dict[str, float]:
    """Return p50, p99 and max of a histogram, in seconds: the upper ends of their bins."""
    total = np.cumsum(histogram)
    ranks = [int(np.searchsorted(total, share * total[-1])) for share in (0.5, 0.99, 1.0)]
    return {
        name: (rank + 1) * bin_s for name, rank in zip(("p50", "p99", "max"), ranks, strict=True)
    }
