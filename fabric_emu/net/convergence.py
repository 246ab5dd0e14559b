"""Repair of static routes after links were lost: at the ends at once, elsewhere after a while."""

from __future__ import annotations

import threading
from collections.abc import Set
from typing import TYPE_CHECKING

from fabric_emu.errors import FabricError
from fabric_emu.model.topology import Link, Node, Role
from fabric_emu.net.netlink import REPLACE

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric


class Convergence:
    """Which links are down and which switches know it.

    A switch knows its own links at once, all others ``after_s`` later, when the next hops that no
    longer lead to a leaf leave the routes towards it. When a link comes back all know at once.
    A link that comes back earlier was never missed elsewhere.

    Attributes:
        lock: held by whoever sets routes.

    Args:
        fabric: the running fabric.
        after_s: from the loss of a link to the repair elsewhere; None: never, or not ours to do.

    Fidelity: a routing protocol reaches the switches one after the other; here all of them are
    repaired within milliseconds of each other.
    """

    def __init__(self, fabric: Fabric, after_s: float | None) -> None:
        self._fabric, self._after_s = fabric, after_s
        self.lock = threading.RLock()
        self._down: set[int] = set()
        self._known: set[int] = set()
        self._timers: dict[int, threading.Timer] = {}
        self._error: Exception | None = None

    def dead_for(self, switch: Node) -> Set[int]:
        """Return the indexes of the links that a switch knows to be dead."""
        topology = self._fabric.topology
        ends = (*topology.uplinks[switch.name], *topology.downlinks[switch.name])
        return self._known | (self._down & {link.index for link in ends})

    @property
    def known(self) -> Set[int]:
        """Indexes of the dead links that every switch knows of."""
        return frozenset(self._known)

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
                self.set_routes_elsewhere(link)
        except (FabricError, OSError) as error:  # raised where the link comes back
            self._error = error
