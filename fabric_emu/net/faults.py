"""Faults of live links: down, blackholed, slowed, lossy, flapping; undone when left.

Each fault is a context manager of a ``LiveLink``; ``Timeline`` plays a scenario's list of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fabric_emu.errors import ScenarioError, WaitTimeout
from fabric_emu.model.fault import Fault
from fabric_emu.model.topology import Link, Node
from fabric_emu.net import links, shaping
from fabric_emu.net.netlink import REPLACE, NetlinkSocket
from fabric_emu.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric


OPERATIONAL_TIMEOUT_S = 2.0


class LiveLink:
    """A link of a running fabric, to be made faulty.

    Args:
        fabric: the running fabric.
        link: which link.
    """

    def __init__(self, fabric: Fabric, link: Link) -> None:
        self._fabric = fabric
        self.link = link

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Take the link down at both ends, which know it at once; bring it back at the end.

        The kernel takes the link out of its nexthop groups at the two ends; other switches go on
        sending towards them until the control plane has converged, if ever. What was in the
        link's queues is lost and counted as ``link_down``.

        Fidelity: a real link takes milliseconds to be noticed as lost.
        """
        self._set_up(False)
        try:
            yield
        finally:
            self._set_up(True)

    @contextlib.contextmanager
    def blackhole(self, towards: str | None = None) -> Iterator[None]:
        """Lose every packet without a word, in one direction or both."""
        with self._configured("blackhole", 1, towards):
            yield

    @contextlib.contextmanager
    def lossy(self, probability: float, towards: str | None = None) -> Iterator[None]:
        """Lose each packet with a probability, in one direction or both."""
        if not 0 < probability <= 1:
            raise ValueError(f"probability {probability}: expected over 0, at most 1")
        with self._configured("loss_per_million", round(probability * 1e6), towards):
            yield

    @contextlib.contextmanager
    def slowed(self, rate: str | int, towards: str | None = None) -> Iterator[None]:
        """Lower the link's rate, in one direction or both; queue limits in bytes stay."""
        self._set_rate(parse_rate(rate), towards)
        try:
            yield
        finally:
            self._set_rate(self.link.rate_bps, towards)

    @contextlib.contextmanager
    def flapping(self, period: str | float) -> Iterator[None]:
        """Take the link down and up in turns, each for half a period, down first."""
        half = parse_duration(period) / 2
        stop = threading.Event()

        def flap() -> None:
            while not stop.is_set():
                with self.down():
                    stop.wait(half)
                stop.wait(half)

        thread = threading.Thread(target=flap, name=f"flap {self.link.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def fault(self, fault: Fault) -> contextlib.AbstractContextManager[None]:
        """Return the context manager of a described fault."""
        if fault.action == "slow" and fault.rate is not None:
            return self.slowed(fault.rate, fault.towards)
        if fault.action == "loss" and fault.probability is not None:
            return self.lossy(fault.probability, fault.towards)
        if fault.action == "flap" and fault.period is not None:
            return self.flapping(fault.period)
        return self.down() if fault.action == "down" else self.blackhole(fault.towards)

    def _ports(self, towards: str | None) -> list[int]:
        """Return the ports that send in the direction meant."""
        link = self.link
        both = {link.upper.name: link.up_port, link.lower.name: link.down_port}
        if towards is None:
            return list(both.values())
        if towards not in both:
            raise ScenarioError("towards", towards, " or ".join(both))
        return [both[towards]]

    @contextlib.contextmanager
    def _configured(self, field: str, value: int, towards: str | None) -> Iterator[None]:
        ports = self._ports(towards)
        column = self._fabric.ports.configs[field]
        before = column[ports].copy()
        column[ports] = value
        try:
            yield
        finally:
            column[ports] = before

    def _set_rate(self, rate_bps: int, towards: str | None) -> None:
        fabric = self._fabric
        for port in self._ports(towards):
            node = self.link.upper if port % 2 else self.link.lower
            with fabric.netlink(node.name) as sock:
                index = fabric.lease.ifindex_base + port
                frame = fabric.topology.mtu + 14
                shaping.reshape(sock, index, rate_bps, frame, self.link.name)
                sock.flush()

    def _set_up(self, up: bool) -> None:
        fabric, link = self._fabric, self.link
        base = fabric.lease.ifindex_base
        ends = ((link.lower, link.up_port), (link.upper, link.down_port))
        dead = fabric.ports.configs["dead"]  # no policy of a switch chooses such a port
        if not up:
            dead[[port for _, port in ends]] = 1
        if up:
            # What was on its way into the link when it went down has been lost there since.
            self._write_off(ends)
        with contextlib.ExitStack() as stack:
            sockets = {}
            for node, port in ends:
                sock = sockets[node.name] = stack.enter_context(fabric.netlink(node.name))
                links.set_up(sock, base + port, link.name, up)
                sock.flush()
            if up:
                self._await_operational(sockets)
                self._set_routes(sockets)
        if up:
            dead[[port for _, port in ends]] = 0
        else:
            fabric.convergence.lost(link)
            self._write_off(ends)

    def _set_routes(self, sockets: Mapping[str, NetlinkSocket]) -> None:
        """Set what leads over a link that has come up.

        With a link the kernel forgets its neighbours, nexthops and the routes over them. The ends
        come first: others send towards the link when it can take packets.
        """
        fabric, link = self._fabric, self.link
        missed = fabric.convergence.back(link)
        with fabric.convergence.lock:
            routing = fabric.routing(sockets.__getitem__, REPLACE)
            routing.neighbours(link)
            routing.link_locals(link)
            for node in (link.lower, link.upper):
                routing.routes(node)
                sockets[node.name].flush()
            if missed:
                fabric.convergence.set_routes_elsewhere(link)

    def _await_operational(self, sockets: Mapping[str, NetlinkSocket]) -> None:
        """Wait for both ends to send; the kernel sets their queues to work a little later."""
        link, base = self.link, self._fabric.lease.ifindex_base
        deadline = time.monotonic() + OPERATIONAL_TIMEOUT_S
        for node, port in ((link.lower, link.up_port), (link.upper, link.down_port)):
            while not links.is_operational(sockets[node.name], base + port):
                if time.monotonic() > deadline:
                    raise WaitTimeout(
                        f"{link.name} at {node.name} did not come up in {OPERATIONAL_TIMEOUT_S:g} s"
                    )
                time.sleep(0.0005)

    def _write_off(self, ends: Iterable[tuple[Node, int]]) -> None:
        for _, port in ends:
            self._fabric.ports.write_off(port)


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
            link = fault.find(fabric.topology, f"faults[{i}]")
            self.ports += [link.up_port, link.down_port]
            live = contextlib.ExitStack()
            self._stack.push(live)
            begin = _Entry(live, LiveLink(fabric, link), fault)
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


class _Entry:
    """Enters a fault on its own stack when called."""

    def __init__(self, stack: contextlib.ExitStack, link: LiveLink, fault: Fault) -> None:
        self._stack, self._link, self._fault = stack, link, fault

    def __call__(self) -> None:
        self._stack.enter_context(self._link.fault(self._fault))
