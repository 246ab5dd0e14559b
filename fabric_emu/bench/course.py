"""Where packets are raced: one unshaped path, a processor to send and one to receive.

Every sender runs through the same links with the same BPF programs, pinned to the same processor
with the same real-time priority, and is measured by the same counters: those of the port that
leads to the receiving host.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from types import TracebackType
from typing import Self

import numpy as np
from scapy.packet import Packet

from fabric_emu.errors import HostUnfit
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.model.topology import Node, Topology, mac_address
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.worker import Port
from fabric_emu.wire.rocev2 import Envelope, write_frame
from fabric_emu.wire.template import FrameTemplates

INTERFACE = "eth0"
_RATE_BPS = 10_000_000_000
_SAMPLE_S, _TOGETHER_S = 0.005, 0.0005
_RACING_PRIORITY, _WATCHING_PRIORITY = 1, 2
_BEGIN, _END = 0.1, 0.9


def topology() -> Topology:
    """Return host, leaf, spine, leaf, host; two spines, so that leaves have to choose."""
    return Topology(leaves=2, spines=2, hosts_per_leaf=1, host_rate=_RATE_BPS, link_rate=_RATE_BPS)


def frame(payload_bytes: int, source_port: int = 0xC000, psn: int = 0) -> Packet:
    """Return a frame from the first host to the last."""
    described = topology()
    source, destination = described.hosts
    envelope = Envelope(
        source_mac=mac_address(0),
        destination_mac=mac_address(1),
        source=str(described.address4(source)),
        destination=str(described.address4(destination)),
        source_port=source_port,
    )
    payload = bytes(8) + b"\xa5" * (payload_bytes - 8)
    return write_frame(envelope, qpn=QPN_BASE, psn=psn, payload=payload)


class Course:
    """The live fabric of a race.

    Attributes:
        fabric: with two hosts, ``source`` and ``destination``.
        sender_cpu, receiver_cpu: processors of the two ends.

    Raises:
        HostUnfit: a single processor.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.source, self.destination = fabric.topology.hosts
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            raise HostUnfit("a sender and a receiver need a processor each", "two processors")
        self.sender_cpu, self.receiver_cpu = cpus[0], cpus[-1]
        (link,) = fabric.topology.uplinks[self.destination.name]
        self._last_port = link.down_port

    def port(self, host: Node) -> Port:
        """Return a host's NIC port."""
        return Port(self.fabric.namespace(host.name), INTERFACE)

    def address(self, host: Node) -> str:
        """Return a host's address."""
        return str(self.fabric.topology.address4(host))

    def templates(self, payload_bytes: int) -> FrameTemplates:
        """Return the template of frames from the source to the destination."""
        return FrameTemplates([frame(payload_bytes)])

    def arrived(self) -> int:
        """Return how many packets of any kind have come to the destination."""
        return int(self.fabric.ports.ports["departed_packets"][self._last_port])

    def start(self, host: Node, command: list[str]) -> subprocess.Popen[str]:
        """Start a command at a host, pinned and with priority as the product's workers have."""
        with namespaces.inside(self.fabric.namespace_fds[host.name]):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        cpu = self.sender_cpu if host == self.source else self.receiver_cpu
        os.sched_setaffinity(process.pid, {cpu})
        os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(_RACING_PRIORITY))
        return process


class ArrivalRate:
    """Watches packets arrive while its block runs.

    Start and end of a sender do not count: the rate is that of the middle four fifths.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._samples: list[tuple[float, int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        # Ahead of senders and receivers, which would leave it no processor for most of a race.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_WATCHING_PRIORITY))
        while not self._done.is_set():
            self._sample()
            self._done.wait(_SAMPLE_S)
        while not self._sample():
            pass

    def _sample(self) -> bool:
        """Read time and counter; False, and nothing kept, if they were not read together."""
        before = time.monotonic()
        arrived = self._course.arrived()
        together = time.monotonic() - before < _TOGETHER_S
        if together:
            self._samples.append((before, arrived))
        return together

    def packets_per_s(self) -> float:
        """Return the rate at the destination; NaN if too little arrived to tell."""
        return middle_rate(np.array(self._samples))


def middle_rate(samples: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    """Return the slope of a counter between a tenth and nine tenths of what it counted, or NaN.

    Args:
        samples: (n, 2) times and counts, both ascending.
    """
    at, count = samples.T
    share = (count - count[0]) / max(count[-1] - count[0], 1)
    begin, end = np.searchsorted(share, (_BEGIN, _END))
    if not 0 < begin < end < len(at):
        return float("nan")
    return float((count[end] - count[begin]) / (at[end] - at[begin]))
