"""The parent's side of global load balancing's adverts: who sends them, from start to stop."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import numpy as np

from fabric_emu.errors import RunFailed
from fabric_emu.model.queueing import CONTROL_DSCP
from fabric_emu.model.topology import Link, Node, Role, Topology, mac_address
from fabric_emu.processes import Child
from fabric_emu.switch.glb import ADVERT_PORT, AdvertPlan, AdvertReport, Sender
from fabric_emu.switch.policies import SwitchPlan, advertisers, next_hop_ports
from fabric_emu.switch.ports import PortTable

_ONE_HOP = 1


def advert_plan(plan: SwitchPlan, table: PortTable, namespace: Callable[[str], str]) -> AdvertPlan:
    """Return who tells whom.

    Args:
        plan: of the switches.
        table: the loaded programs.
        namespace: the namespace of a node, by name.
    """
    topology = plan.topology
    sends: dict[Node, list[Link]] = {}
    for switch in topology.switches:
        for link in advertisers(topology, switch):
            sends.setdefault(link.upper if link.lower == switch else link.lower, []).append(link)
    leaves = [
        [topology.switch(Role.LEAF, n, switch.plane) for n in range(1, topology.total_leaves + 1)]
        for switch in sends
    ]
    ways = [
        [next_hop_ports(topology, switch, leaf) for leaf in row]
        for switch, row in zip(sends, leaves, strict=True)
    ]
    width = max((len(way) for row in ways for way in row), default=1)
    hops = np.full((len(ways), topology.total_leaves, width), -1, np.int64)
    for i, row in enumerate(ways):
        for j, way in enumerate(row):
            hops[i, j, : len(way)] = way
    descriptors = table.bpf.map_fds
    return AdvertPlan(
        plan.balancing.glb_interval_s,
        round(plan.balancing.ageing_s * 1e9),
        (descriptors["ports"], descriptors["port_configs"], descriptors["adverts"]),
        table.constants.port_count,
        tuple(
            Sender(
                namespace(switch.name),
                tuple(_end(link, switch)[1] for link in links),
                tuple(_envelope(topology, link, switch) for link in links),
            )
            for switch, links in sends.items()
        ),
        hops,
    )


def _end(link: Link, node: Node) -> tuple[int, str]:
    """Return port and interface of a link at a node."""
    if link.lower == node:
        return link.up_port, link.lower_interface
    return link.down_port, link.upper_interface


def _envelope(topology: Topology, link: Link, sender: Node) -> bytes:
    """Return the headers of an advert, from one switch to the one at the other end of a link."""
    port, _ = _end(link, sender)
    receiver = link.upper if link.lower == sender else link.lower
    macs = (mac_address(port ^ 1), mac_address(port))
    ethernet = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in macs)
    udp = struct.pack("!HHHH", ADVERT_PORT, ADVERT_PORT, 0, 0)
    if 4 in topology.families:
        ends = [topology.address4(node).packed for node in (sender, receiver)]
        fields = (0x45, CONTROL_DSCP << 2, 0, 0, 0, _ONE_HOP, socket.IPPROTO_UDP, 0, *ends)
        return ethernet + b"\x08\x00" + struct.pack("!BBHHHBBH4s4s", *fields) + udp
    ends = [topology.address6(node).packed for node in (sender, receiver)]
    first = 6 << 28 | CONTROL_DSCP << 22
    header = struct.pack("!IHBB16s16s", first, 0, socket.IPPROTO_UDP, _ONE_HOP, *ends)
    return ethernet + b"\x86\xdd" + header + udp


class AdvertSender:
    """The process that sends adverts; it runs from the start until it is stopped.

    Args:
        plan: who tells whom.
        started: called with its pid.

    Attributes:
        pid: of the process.

    Raises:
        WaitTimeout: it did not get ready.
        RunFailed: it could not.
    """

    def __init__(self, plan: AdvertPlan, started: Callable[[int], None]) -> None:
        self._process = Child.spawn(
            "fabric_emu.switch.glb", plan, plan.map_fds, "the sender of adverts, process"
        )
        self.pid = self._process.pid
        self._report: AdvertReport | None = None
        try:
            started(self.pid)
            self._hear("the sender of adverts to get ready")
        except BaseException:
            self.close()
            raise

    def stop(self) -> AdvertReport:
        """Stop sending and return what was done; a second call returns the same.

        Raises:
            RunFailed: the process died.
        """
        if self._report is None:
            self._process.tell("stop")
            report = self._hear("the report of the sender of adverts")
            assert isinstance(report, AdvertReport)
            self._report = report
        return self._report

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _hear(self, awaited: str) -> object:
        answer = self._process.hear(awaited)
        if isinstance(answer, Exception):
            raise RunFailed(f"the sender of adverts failed: {answer}")
        return answer
