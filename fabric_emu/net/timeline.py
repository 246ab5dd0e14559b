"""A scenario's faults over a run: what happens to the live fabric, and when."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fabric_emu.model.fault import Fault
from fabric_emu.model.topology import Link
from fabric_emu.net.faults import LiveLink, LiveSwitch

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric


class Timeline:
    """Plays a scenario's faults; leaving it undoes those still there.

    Args:
        fabric: the running fabric.
        faults: what to play.

    Attributes:
        ports: of the links that are hit.
    """

    def __init__(self, fabric: Fabric, faults: Sequence[Fault]) -> None:
        self._stack = contextlib.ExitStack()
        self._events: list[tuple[float, Callable[[], object]]] = []
        self.ports: list[int] = []
        for i, fault in enumerate(faults):
            hit = fault.links(fabric.topology, f"faults[{i}]")
            self.ports += [port for link in hit for port in (link.up_port, link.down_port)]
            live = contextlib.ExitStack()
            self._stack.push(live)
            begin = partial(live.enter_context, _live(fabric, fault, hit))
            self._events.append((fault.at, begin))
            if fault.duration is not None:
                self._events.append((fault.at + fault.duration, live.close))
        self._events.sort(key=lambda event: event[0])

    def next_s(self) -> float:
        """Return when the next event is due, seconds after the start; infinity when none is."""
        return self._events[0][0] if self._events else float("inf")

    def advance(self, elapsed_s: float) -> None:
        """Play what is due."""
        while self._events and self._events[0][0] <= elapsed_s:
            self._events.pop(0)[1]()

    def close(self) -> None:
        """Undo every fault."""
        self._events.clear()
        self._stack.close()


def _live(
    fabric: Fabric, fault: Fault, hit: Sequence[Link]
) -> contextlib.AbstractContextManager[None]:
    """Return the context manager of a described fault."""
    if fault.switch is not None:
        return LiveSwitch(fabric, fabric.topology.nodes[fault.switch]).rebooting()
    link = LiveLink(fabric, hit[0])
    if fault.action == "slow" and fault.rate is not None:
        return link.slowed(fault.rate, fault.towards)
    if fault.action == "loss" and fault.probability is not None:
        return link.lossy(fault.probability, fault.towards)
    if fault.action == "flap" and fault.period is not None:
        return link.flapping(fault.period)
    return link.down() if fault.action == "down" else link.blackhole(fault.towards)
