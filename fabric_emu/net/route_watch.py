"""When the routes of all kernels agreed with the model, over a run with faults."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fabric_emu.errors import FabricError
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.reachability import Knowledge
from fabric_emu.model.topology import Node
from fabric_emu.net import namespaces
from fabric_emu.net.kernel_routes import (
    RTPROT_BGP,
    RTPROT_STATIC,
    Routes,
    expected_routes,
    leaf_routes,
)
from fabric_emu.net.netlink import NetlinkSocket

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric

_RTMGRP_ROUTES = 0x40 | 0x400
"""IPv4's and IPv6's. Source: include/uapi/linux/rtnetlink.h, RTMGRP_IPV4_ROUTE and the other."""

_LOOK_AGAIN_S = 0.02
"""Kernels say nothing when a next hop dies with its link: a look at those that disagree."""


@dataclass
class Period:
    """The time between two changes of the links.

    Attributes:
        knowledge: which links were dead, and who was to know.
        begin_ns: just before the change that it begins with, CLOCK_REALTIME.
        settled_ns: when all kernels had last come to have the model's routes; None: they had not
            at its end.
        end_ns: just before the next change, or when the watch was left.
    """

    knowledge: Knowledge
    begin_ns: int
    settled_ns: int | None = None
    end_ns: int | None = None

    @property
    def repaired(self) -> bool:
        """True when links were dead and all switches had left them."""
        left_by_all = self.knowledge.down <= self.knowledge.known
        return self.settled_ns is not None and bool(self.knowledge.known) and left_by_all


class RouteWatch:
    """Watches the routes of all switches until it is left.

    Args:
        fabric: the running fabric.

    Attributes:
        periods: all since the last change before; complete once the watch is left.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._bgp = isinstance(fabric.control_plane, Bgp)
        self.periods: list[Period] = []
        self._followed = len(fabric.convergence.changes) - 1
        self._expected: dict[Node, Routes] = {}
        self._disagree: set[Node] = set()
        self._over = threading.Event()
        self._error: Exception | None = None
        self._stack = contextlib.ExitStack()
        self._news = selectors.DefaultSelector()
        self._sockets: dict[Node, NetlinkSocket] = {}
        self._thread = threading.Thread(target=self._watch, name="routes", daemon=True)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._news.close)
            for switch in self._fabric.topology.switches:
                own = self._fabric.netlink(switch.name)
                self._sockets[switch] = stack.enter_context(own)
                with namespaces.inside(self._fabric.namespace_fds[switch.name]):
                    news = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
                stack.callback(news.close)
                news.bind((0, _RTMGRP_ROUTES))
                news.setblocking(False)
                self._news.register(news, selectors.EVENT_READ, switch)
            self._begin_periods()
            self._stack = stack.pop_all()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._stack.close()
        self.periods[-1].end_ns = self.periods[-1].end_ns or time.time_ns()
        if self._error and error is None:
            raise self._error

    def _watch(self) -> None:
        try:
            while not self._over.is_set():
                changed = {
                    key.data for key, _ in self._news.select(_LOOK_AGAIN_S) if _drained(key.fileobj)
                }
                self._begin_periods()
                self._look(changed)
        except (FabricError, OSError) as error:  # raised where the watch is left
            self._error = error

    def _begin_periods(self) -> None:
        """Follow the changes of the links."""
        changes = self._fabric.convergence.changes[self._followed :]
        self._followed += len(changes)
        for change in changes:
            if self.periods:
                self.periods[-1].end_ns = change.at_ns
            self.periods.append(Period(change.knowledge, change.at_ns))
            self._expected = {
                switch: self._routes_of(switch, change.knowledge) for switch in self._sockets
            }
            self._disagree = set(self._sockets)

    def _routes_of(self, switch: Node, knowledge: Knowledge) -> Routes:
        topology, base = self._fabric.topology, self._fabric.lease.ifindex_base
        return expected_routes(topology, base, switch, knowledge.dead_for(topology, switch))

    def _look(self, changed: set[Node]) -> None:
        """Compare the kernels that have changed or disagreed."""
        topology, protocol = self._fabric.topology, RTPROT_BGP if self._bgp else RTPROT_STATIC
        period = self.periods[-1]
        for switch in changed | self._disagree:
            if leaf_routes(self._sockets[switch], topology, protocol) == self._expected[switch]:
                self._disagree.discard(switch)
            else:
                self._disagree.add(switch)
        if self._disagree:
            period.settled_ns = None
        elif period.settled_ns is None or changed:
            period.settled_ns = time.time_ns()


def settling_s(periods: Sequence[Period]) -> float | None:
    """Return the time from the first change until all switches had left all dead links.

    None: nothing changed that anybody could know, or they never had. Changes that follow each other
    sooner than that count as one.
    """
    for period in periods[1:]:
        if period.settled_ns is not None and period.repaired:
            return (period.settled_ns - periods[1].begin_ns) * 1e-9
    return None


def _drained(news: object) -> bool:
    """Take all that a kernel has told; True: there was something, known or lost for being much."""
    assert isinstance(news, socket.socket)
    while True:
        try:
            news.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
