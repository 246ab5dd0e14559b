"""Packets that switches drop because they have no route, as their kernels count them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fabric_emu.model.topology import Node
from fabric_emu.net import namespaces

_LONGEST = 1 << 16


class NoRouteCounts(contextlib.ExitStack):
    """The counters of all switches, open to be read often; closed when left.

    Args:
        switches: whose.
        namespace_fds: of each node, by name.

    Source: RFC 4293, ipSystemStatsInNoRoutes, as the kernel counts it in each namespace.
    """

    def __init__(self, switches: tuple[Node, ...], namespace_fds: dict[str, int]) -> None:
        super().__init__()
        self._four: list[int] = []
        self._six: list[int] = []
        for node in switches:
            with namespaces.inside(namespace_fds[node.name]):
                self._open("netstat", self._four)
                if (Path("/proc/thread-self/net") / "snmp6").exists():
                    self._open("snmp6", self._six)

    def _open(self, name: str, into: list[int]) -> None:
        into.append(os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY))
        self.callback(os.close, into[-1])

    def total(self) -> int:
        """Return how many packets the switches have dropped for want of a route."""
        total = 0
        for file in self._four:
            lines = [line.split() for line in _text(file).splitlines()]
            for names, values in zip(lines[::2], lines[1::2], strict=True):
                if names[0] == "IpExt:":
                    total += int(values[names.index("InNoRoutes")])
        for file in self._six:
            counts = dict(line.split() for line in _text(file).splitlines())
            total += int(counts["Ip6InNoRoutes"])
        return total


def _text(file: int) -> str:
    return os.pread(file, _LONGEST, 0).decode()
