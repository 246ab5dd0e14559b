"""Repair of static routes after links were lost: at the ends at once, elsewhere after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Set
from typing import TYPE_CHECKING, NamedTuple

from fabric_emu.errors import FabricError
from fabric_emu.model.reachability import Knowledge
from fabric_emu.model.topology import Link, Node, Role
from fabric_emu.net.netlink import REPLACE

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric


class Change(NamedTuple):
    """A change of what is dead or known to be.

    Attributes:
        at_ns: just before it took effect, CLOCK_REALTIME.
        knowledge: from then on, as far as the control plane ever finds out.
    """

    at_ns: int
    knowledge: Knowledge


class Convergence:
    """Which links are down and which switches know it.

    A switch knows its own links at once, all others ``after_s`` later, when the next hops that no
    longer lead to a leaf leave the routes towards it. When a link comes back all know at once.
    A link that comes back earlier was never missed elsewhere.

    Attributes:
        lock: held by whoever sets routes.
        changes: all that there have been, the first from the start.

    Args:
        fabric: the running fabric.
        after_s: from the loss of a link to the repair elsewhere; None: never, or not ours to do.
        routed: whether a routing protocol does the repairs.

    Fidelity: a routing protocol reaches the switches one after the other; here all of them are
    repaired within milliseconds of each other.
    """

    def __init__(self, fabric: Fabric, after_s: float | None, *, routed: bool = False) -> None:
        self._fabric, self._after_s, self._routed = fabric, after_s, routed
        self.changes = [Change(time.time_ns(), Knowledge())]
        self._silent: set[int] = set()
        self.lock = threading.RLock()
        self._off: set[int] = set()
        self._down: set[int] = set()
        self._known: set[int] = set()
        self._timers: dict[int, threading.Timer] = {}
        self._error: Exception | None = None

    def dead_for(self, switch: Node) -> Set[int]:
        """Return the indexes of the links that a switch knows to be dead and has left."""
        known = Knowledge(frozenset(self._down), frozenset(self._known))
        return known.dead_for(self._fabric.topology, switch)

    @property
    def known(self) -> Set[int]:
        """Indexes of the dead links that every switch knows of."""
        return frozenset(self._known)

    def announce(self, link: Link, up: bool, *, silent: bool = False) -> None:
        """Note that a link is about to go down or to come up.

        Args:
            link: which.
            up: whether it comes up.
            silent: whether its ends see nothing of it.
        """
        with self.lock:
            dead = self._silent if silent else self._off
            (dead.discard if up else dead.add)(link.index)
            self._note()

    def _note(self) -> None:
        links = self._fabric.topology.links
        # No other way leads to a host: there is nothing that others could know.
        of_hosts = {index for index in self._off if links[index].lower.role is Role.HOST}
        found_out = self._off | self._silent if self._routed else self._known & self._off | of_hosts
        knowledge = Knowledge(frozenset(self._off), frozenset(found_out))
        if knowledge != self.changes[-1].knowledge:
            self.changes.append(Change(time.time_ns(), knowledge))

    def lost(self, link: Link) -> None:
        """Take note of a link that went down; its ends know."""
        with self.lock:
            self._down.add(link.index)
        if self._after_s is None or link.lower.role is Role.HOST:
            return  # no other way leads to a host
        timer = threading.Timer(self._after_s, self._repair, (link,))
        timer.daemon = True
        self._timers[link.index] = timer
        timer.start()

    def back(self, link: Link) -> bool:
        """Take note of a link that is up again; return whether other switches had left it.

        Raises:
            CommandFailed: the kernel refused a route at the repair.
        """
        timer = self._timers.pop(link.index, None)
        if timer:
            timer.cancel()
            timer.join()
        error, self._error = self._error, None
        if error:
            raise error
        with self.lock:
            left = link.index in self._known
            self._down.discard(link.index)
            self._known.discard(link.index)
        return left

    def set_routes_elsewhere(self, link: Link) -> None:
        """Set the routes of all switches of a link's plane but those at its ends.

        Raises:
            CommandFailed: the kernel refused one.
        """
        fabric = self._fabric
        with self.lock:
            for node in fabric.topology.switches:
                if node.plane == link.upper.plane and node not in (link.lower, link.upper):
                    with fabric.netlink(node.name) as sock:
                        fabric.routing({node.name: sock}.__getitem__, REPLACE).routes(node)
                        sock.flush()

    def close(self) -> None:
        """Forget repairs to come."""
        for timer in self._timers.values():
            timer.cancel()
            timer.join()
        self._timers.clear()

    def _repair(self, link: Link) -> None:
        try:
            with self.lock:
                self._known.add(link.index)
                self._note()
                self.set_routes_elsewhere(link)
        except (FabricError, OSError) as error:  # raised where the link comes back
            self._error = error
