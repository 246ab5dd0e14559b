"""Whether packets that a switch receives together still go their own ways: seen by sending.

A kernel fault is looked for: before Linux 6.6 the packets of one receive batch that had one
destination all took the next hop of the first.
Source: the kernel's "ipv4: ignore dst hint for multipath routes" and the same for IPv6, both in
stable kernels too; ``ip_list_rcv_finish`` in net/ipv4/ip_input.c.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.model.topology import Topology, mac_address
from fabric_emu.net import namespaces, shaping
from fabric_emu.net.fabric import Fabric
from fabric_emu.net.netlink import NetlinkSocket
from fabric_emu.nic.ring import ReceiveRing, TransmitRing
from fabric_emu.wire.decode import decode
from fabric_emu.wire.layout import Opcode
from fabric_emu.wire.rocev2 import Envelope, write_frame
from fabric_emu.wire.template import FrameTemplates

Family = Literal[4, 6]

_PACKETS = 128
"""Enough to tell by, and few enough for one go: none has to wait for another to be freed."""

_SPINES = 4
_FAST_BPS, _SLOW_BPS = 10_000_000_000, 1_000_000
_MTU, _FRAME = 1500, 1514
_ARRIVE_WITHIN_S = 0.5


@dataclass(frozen=True)
class BatchPaths:
    """The paths of packets that were sent one by one, and of the same packets received together.

    Attributes:
        family: address family.
        alone, together: (n,) the spine that each packet crossed; 0 for a lost one.
        batched: packets that the leaf had received before it passed on the one ahead of them.
    """

    family: Family
    alone: NDArray[np.uint8]
    together: NDArray[np.uint8]
    batched: int

    @property
    def moved(self) -> int:
        """How many packets took another path when received together with others."""
        both = (self.alone > 0) & (self.together > 0)
        return int(((self.alone != self.together) & both).sum())

    @property
    def conclusive(self) -> bool:
        """Whether enough packets arrived, and enough of them in batches, to tell.

        Where a batch follows its first packet, three of four batched packets move.
        """
        lost = int(((self.alone == 0) | (self.together == 0)).sum())
        return lost <= len(self.alone) // 4 <= self.batched


def paths_in_batches() -> list[BatchPaths]:
    """Send packets through a small fabric, one by one and as receive batches, by family.

    Raises:
        HostUnfit: no root, or the kernel lacks something that a fabric needs.
        CommandFailed: the kernel refused a request.
    """
    has_ipv6 = namespaces.has_sysctl("net/ipv6/conf/all/forwarding")
    topology = Topology(
        leaves=2,
        spines=_SPINES,
        hosts_per_leaf=1,
        host_rate=_FAST_BPS,
        link_rate=_FAST_BPS,
        mtu=_MTU,
        ip="both" if has_ipv6 else 4,
    )
    found = []
    with Fabric(topology, queue_pairs=1) as fabric:
        for family in topology.families:
            with contextlib.ExitStack() as stack:
                sender = BatchSender(fabric, family, stack)
                alone = sender.paths_alone()
                found.append(BatchPaths(family, alone, *sender.paths_together()))
    return found


class BatchSender:
    """Sends packets with a source port each from the first host to the last, in two ways.

    A slow shaper holds them back on the sending host; made fast, it lets them go in one go, and
    the leaf finds many in its queue.

    Args:
        fabric: two leaves with one host each, and some spines.
        family: address family of the packets.
        stack: takes over what this opens.
    """

    def __init__(self, fabric: Fabric, family: Family, stack: contextlib.ExitStack) -> None:
        topology = fabric.topology
        source, destination = topology.hosts
        of = topology.address4 if family == 4 else topology.address6
        envelope = Envelope(
            source_mac=mac_address(0),
            destination_mac=mac_address(1),
            source=str(of(source)),
            destination=str(of(destination)),
            source_port=0,
        )
        frame = write_frame(
            envelope, qpn=QPN_BASE, psn=0, payload=bytes(8), opcode=Opcode.RC_SEND_ONLY
        )
        templates = FrameTemplates([frame])
        number = np.arange(_PACKETS)
        self._headers, icrc = templates.build(np.zeros_like(number), 0xC000 + number, number, 0)
        self._icrc = icrc.view(np.uint8).reshape(-1, 4)
        self._interface = fabric.lease.ifindex_base
        with namespaces.restored():
            namespaces.enter(fabric.namespace_fds[source.name])
            self._netlink = NetlinkSocket(source.name)
            stack.callback(self._netlink.close)
            self._sending = TransmitRing(
                "eth0",
                templates.length,
                templates.header_length,
                bytes(templates.payload),
                _PACKETS,
            )
            stack.callback(self._sending.close)
            namespaces.enter(fabric.namespace_fds["leaf1"])
            self._at_leaf = ReceiveRing(source.name, 2 * _PACKETS)
            stack.callback(self._at_leaf.close)
            namespaces.enter(fabric.namespace_fds[destination.name])
            self._at_host = ReceiveRing("eth0", 2 * _PACKETS)
            stack.callback(self._at_host.close)

    def paths_alone(self) -> NDArray[np.uint8]:
        """Send each packet when the one before has arrived; return the spines crossed."""
        paths = np.zeros(_PACKETS, np.uint8)
        for row in range(_PACKETS):
            self._sending.put(self._headers[row : row + 1], self._icrc[row : row + 1])
            self._sending.kick()
            which, stamps, _ = _collect(self._at_host, 1)
            paths[which] = stamps
            if not len(which):
                break
        _collect(self._at_leaf, int((paths > 0).sum()))
        return paths

    def paths_together(self) -> tuple[NDArray[np.uint8], int]:
        """Send all at once; return the spines crossed, and how many the leaf got in batches."""
        self._shape(_SLOW_BPS)
        self._sending.put(self._headers, self._icrc)
        self._sending.kick()
        self._shape(_FAST_BPS)
        arrived, at_leaf = np.zeros((2, _PACKETS), np.int64)
        paths = np.zeros(_PACKETS, np.uint8)
        which, stamps, when = _collect(self._at_host, _PACKETS)
        paths[which], arrived[which] = stamps, when
        which, _, when = _collect(self._at_leaf, _PACKETS)
        at_leaf[which] = when
        # Both clocks are the kernel's: a packet at the leaf before the one ahead of it is through.
        overtaking = (at_leaf[1:] > 0) & (at_leaf[1:] < arrived[:-1])
        return paths, int(overtaking.sum())

    def _shape(self, rate_bps: int) -> None:
        shaping.reshape(self._netlink, self._interface, rate_bps, _FRAME, "eth0")
        self._netlink.flush()


def _collect(
    ring: ReceiveRing, count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.int64]]:
    """Take RoCEv2 packets until there are so many, or none come; return PSN, stamp, arrival."""
    psns, stamps, times = [np.empty(0, np.uint32)], [np.empty(0, np.uint8)], [np.empty(0, np.int64)]
    end = time.monotonic() + _ARRIVE_WITHIN_S
    while count > 0 and time.monotonic() < end:
        received = ring.take()
        if received is None:
            continue
        columns = decode(received.headers, received.lengths)
        ours = columns.is_rocev2
        psns.append(columns.psn[ours])
        stamps.append(columns.path_stamp[ours])
        times.append(received.arrival_ns[ours])
        count -= int(ours.sum())
    return np.concatenate(psns), np.concatenate(stamps), np.concatenate(times)
