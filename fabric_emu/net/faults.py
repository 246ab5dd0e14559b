"""Faults of a live fabric: links down, blackholed, slowed, lossy, flapping; switches rebooting.

Each fault is a context manager of a ``LiveLink`` or ``LiveSwitch`` and undone when left;
``net.timeline`` plays a scenario's list of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from fabric_emu.errors import ScenarioError, WaitTimeout
from fabric_emu.model.topology import Link, Node, Role
from fabric_emu.net import links, shaping
from fabric_emu.net.netlink import REPLACE, NetlinkSocket
from fabric_emu.switch.ports import DARK, DEAD
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
        link's queues is lost and counted as ``link_down``, what is sent into it as ``no_carrier``.

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
        announce = self._fabric.convergence.announce
        announce(self.link, False, silent=True)
        try:
            with self._configured("blackhole", 1, towards):
                yield
        finally:
            announce(self.link, True, silent=True)

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
        fabric.convergence.announce(link, up)
        dead = fabric.ports.configs["dead"]
        if not up:
            dead[[port for _, port in ends]] = DARK
        if up:
            # What was on its way into the link when it went down has been lost there since.
            self._write_off(ends)
        with contextlib.ExitStack() as stack:
            sockets = {
                node.name: stack.enter_context(fabric.netlink(node.name)) for node, _ in ends
            }
            if not up:
                # What still comes for the link gets as far as its port, and is counted there.
                fabric.routing(sockets.__getitem__, REPLACE).gateways(link)
                for sock in sockets.values():
                    sock.flush()
            for node, port in ends:
                sock = sockets[node.name]
                if node.role is not Role.HOST:  # whose NIC loses its carrier by that
                    links.set_up(sock, base + port, link.name, up)
                    sock.flush()
            if up:
                self._await_operational(sockets)
                dead[[port for _, port in ends]] = DEAD
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


class LiveSwitch:
    """A switch of a running fabric, to be made faulty.

    Args:
        fabric: the running fabric.
        switch: which switch.
    """

    def __init__(self, fabric: Fabric, switch: Node) -> None:
        self._fabric, self._switch = fabric, switch

    @contextlib.contextmanager
    def rebooting(self) -> Iterator[None]:
        """Take all links of the switch down and end its daemons; bring all of it back at the end.

        Fidelity: what it has counted stays, as do its addresses and its hash seed; its daemons
        start when its links are up, a real switch's often before.
        """
        fabric, name = self._fabric, self._switch.name
        topology, routers = fabric.topology, fabric.routers
        if routers:
            routers.kill(self._switch)
        try:
            with contextlib.ExitStack() as stack:
                for link in topology.uplinks[name] + topology.downlinks[name]:
                    stack.enter_context(LiveLink(fabric, link).down())
                yield
        finally:
            if routers:
                routers.restart(self._switch)
