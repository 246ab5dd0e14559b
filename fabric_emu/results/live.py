"""The live picture of a run: what every uplink of a leaf is asked for now, as numbers.

Pure: samples of the port counters come in, pictures come out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.topology import Role, Topology
from fabric_emu.switch.ports import DropReason, offered_bytes

STAGES = ("waiting", "build", "start", "send", "drain", "collect", "done")
_SENDING = STAGES.index("send")

SHORTEST_S = 0.05
"""Over less than this rates are not told: too few packets."""


@dataclass(frozen=True)
class Layout:
    """What is shown: by switch, the links over which it sends upwards.

    Attributes:
        title: of the scenario.
        runs: (scheme, seed) of each run, in order.
        duration_s: how long the hosts send in each, at most.
        switches: name and first and last + 1 bar of each leaf.
        names: (bars,) of each bar, within its switch: the other end of the link.
        links: (bars,) whole names of the links.
        ports: (bars,) port number of each.
        rates_bps: (bars,) of each.
        port_count: of the fabric.
    """

    title: str
    runs: tuple[tuple[str, int], ...]
    duration_s: float
    switches: tuple[tuple[str, int, int], ...]
    names: tuple[str, ...]
    links: tuple[str, ...]
    ports: NDArray[np.int64]
    rates_bps: NDArray[np.int64]
    port_count: int

    @classmethod
    def of(
        cls, topology: Topology, runs: list[tuple[str, int]], duration_s: float, title: str
    ) -> Layout:
        """Return the layout of a fabric; one chassis shows its ports to the hosts instead."""
        switches = []
        names: list[str] = []
        links: list[str] = []
        ports: list[int] = []
        rates: list[int] = []
        for leaf in topology.switches:
            if leaf.role is not Role.LEAF:
                continue
            first = len(names)
            up = topology.uplinks[leaf.name]
            for link in up or topology.downlinks[leaf.name]:
                names.append(link.name.removeprefix(f"{leaf.name}-") if up else link.lower.name)
                links.append(link.name)
                ports.append(link.up_port if up else link.down_port)
                rates.append(link.rate_bps)
            switches.append((leaf.name, first, len(names)))
        return cls(
            title,
            tuple(runs),
            duration_s,
            tuple(switches),
            tuple(names),
            tuple(links),
            np.array(ports, np.int64),
            np.array(rates, np.int64),
            2 * len(topology.links),
        )

    def document(self) -> dict[str, Any]:
        """Return what a page needs to know once, ready for JSON."""
        return {
            "title": self.title,
            "runs": [{"scheme": scheme, "seed": seed} for scheme, seed in self.runs],
            "duration": self.duration_s,
            "switches": [
                {"name": name, "first": first, "end": end} for name, first, end in self.switches
            ],
            "names": list(self.names),
            "rates": self.rates_bps.tolist(),
        }


@dataclass(frozen=True)
class Sample:
    """The port table at one moment.

    Attributes:
        run: index into ``Layout.runs``.
        stage: index into ``STAGES``.
        elapsed_s: since the hosts began to send.
        ports: (ports,) of the port table.
        received, late: data packets so far, and those of them that arrived behind a later one.
    """

    run: int
    stage: int
    elapsed_s: float
    ports: NDArray[np.void]
    received: int = 0
    late: int = 0


@dataclass(frozen=True)
class Past:
    """What remains to be shown of a run that is over.

    Attributes:
        run: index into ``Layout.runs``.
        load: of its busiest bar over the whole run.
        link: name of that link.
        dropped, trimmed, marked: packets, of all ports.
        reordered: share of packets that arrived behind a later one; None where it is not known.
    """

    run: int
    load: float
    link: str
    dropped: int
    trimmed: int
    marked: int
    reordered: float | None


@dataclass(frozen=True)
class Picture:
    """What there is to see at one moment.

    Attributes:
        run, stage, elapsed_s: as sampled.
        load: (bars,) bytes asked of each link, before any drop, over what it carries, since the
            sample before.
        mean: (bars,) the same since the start.
        depth_bytes: (bars,) in each queue.
        lost: (bars,) packets dropped there so far.
        offered_bps: of all bars, since the sample before.
        queued_bytes, dropped, trimmed, marked: of all ports, so far.
        reordered: share of packets that arrived behind a later one, so far; None before any has.
        past: runs that are over.
    """

    run: int
    stage: int
    elapsed_s: float
    load: NDArray[np.float64]
    mean: NDArray[np.float64]
    depth_bytes: NDArray[np.int64]
    lost: NDArray[np.uint64]
    offered_bps: float
    queued_bytes: int
    dropped: int
    trimmed: int
    marked: int
    reordered: float | None = None
    past: tuple[Past, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the picture ready for JSON; loads are ratios."""
        return {
            "run": self.run,
            "stage": STAGES[self.stage],
            "elapsed": round(max(self.elapsed_s, 0.0), 3),
            "load": np.round(self.load, 3).tolist(),
            "mean": np.round(self.mean, 3).tolist(),
            "depth": self.depth_bytes.tolist(),
            "lost": self.lost.tolist(),
            "offered": round(self.offered_bps),
            "queued": self.queued_bytes,
            "dropped": self.dropped,
            "trimmed": self.trimmed,
            "marked": self.marked,
            "reordered": self.reordered,
            "past": [
                {
                    "run": one.run,
                    "load": round(one.load, 3),
                    "link": one.link,
                    "dropped": one.dropped,
                    "trimmed": one.trimmed,
                    "marked": one.marked,
                    "reordered": one.reordered,
                }
                for one in self.past
            ],
        }


class Meter:
    """Makes pictures of samples.

    Args:
        layout: what is shown.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._run = -1
        self._since_s = 0.0
        self._before = np.zeros(len(layout.ports), np.uint64)
        self._load = np.zeros(len(layout.ports))
        self._mean = self._load
        self._past: tuple[Past, ...] = ()
        self._reordered: dict[int, float | None] = {}
        self._last: Picture | None = None

    def picture(self, sample: Sample) -> Picture:
        """Return what is to be seen; loads stay as they were when hosts do not send."""
        if sample.run != self._run:
            self._begin(sample.run)
        layout = self._layout
        offered = offered_bytes(sample.ports[layout.ports])
        passed = sample.elapsed_s - self._since_s
        if sample.stage == _SENDING and passed >= SHORTEST_S:
            new = (offered - self._before).astype(np.float64)
            self._load = new * 8 / (layout.rates_bps * passed)
            self._mean = offered * 8 / (layout.rates_bps * sample.elapsed_s)
            self._since_s, self._before = sample.elapsed_s, offered
        dropped = sample.ports["dropped_packets"].sum(axis=1)
        depth = _depth(sample.ports)
        self._last = Picture(
            sample.run,
            sample.stage,
            sample.elapsed_s,
            self._load,
            self._mean,
            depth[layout.ports],
            dropped[layout.ports],
            float(self._load @ layout.rates_bps),
            int(depth.sum()),
            int(dropped.sum()),
            int(sample.ports["trimmed_packets"].sum()),
            int(sample.ports["marked_packets"].sum()),
            self._reordered.get(sample.run, _share(sample)),
            self._past,
        )
        return self._last

    def measured(self, run: int, reordered: float | None) -> None:
        """Take the share of packets out of order in a run that is over."""
        self._reordered[run] = reordered
        # The next run may have begun already.
        self._past = tuple(
            replace(one, reordered=reordered) if one.run == run else one for one in self._past
        )

    def _begin(self, run: int) -> None:
        if self._last is not None and self._last.elapsed_s > 0:
            last = self._last
            busiest = int(last.mean.argmax())
            load, link = float(last.mean[busiest]), self._layout.links[busiest]
            over = Past(
                self._run,
                load,
                link,
                last.dropped,
                last.trimmed,
                last.marked,
                self._reordered.get(self._run, last.reordered),
            )
            self._past = (*self._past, over)
        self._run, self._since_s = run, 0.0
        self._before = np.zeros_like(self._before)
        self._load = self._mean = np.zeros_like(self._load)


def _share(sample: Sample) -> float | None:
    return sample.late / sample.received if sample.received else None


def _depth(ports: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the bytes in each queue, (ports,)."""
    gone = ports["departed_bytes"] + ports["dropped_bytes"][:, DropReason.LINK_DOWN]
    depth: NDArray[np.int64] = (ports["enqueued_bytes"] - gone).astype(np.int64)
    # The counters are read one after the other while others count.
    return np.maximum(depth, 0)
