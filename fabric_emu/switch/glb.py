"""The process that sends adverts of global load balancing, for every switch of a fabric.

``adverts.AdvertSender`` starts it as ``python -m fabric_emu.switch.glb`` and tells it its plan over
a socket it inherits. Each interval it works out the quality of every port from the programs' own
counters, and sends what each switch makes of it to that switch's neighbours: as packets, through
the switch's own namespace and its ports' shapers.

Fidelity: one process stands for the control processors of all switches, so all send at about the
same time; a switch still knows of the others only what their adverts told it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import mmap
import os
import socket
import struct
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

from fabric_emu.errors import HostUnfit
from fabric_emu.net import namespaces
from fabric_emu.processes import NIC_PRIORITY, connect
from fabric_emu.switch.columns import Records, map_entries
from fabric_emu.switch.ports import PORT_CONFIG_DTYPE, PORT_DTYPE
from fabric_emu.switch.quality import BEST_QUALITY, port_quality
from fabric_emu.switch.switches import ADVERT_DTYPE, ADVERT_LEAVES

ADVERT_PORT = 1021
"""UDP port of adverts: for experiments (RFC 4727, section 6.1)."""

ADVERT_MAGIC = 0x474C4231
LATENESS_BIN_S = 1e-4
_LATENESS_BINS = 10_000
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05

Qualities = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Sender:
    """One switch that sends adverts.

    Attributes:
        namespace: its namespace.
        interfaces: names of those that it sends by.
        envelopes: Ethernet, IP and UDP header for each of them; lengths and checksums left out.
    """

    namespace: str
    interfaces: tuple[str, ...]
    envelopes: tuple[bytes, ...]


@dataclass(frozen=True)
class AdvertPlan:
    """Everything the process is to do.

    Attributes:
        interval_s: between two adverts.
        ageing_ns: how long an advert counts.
        map_fds: descriptors of the maps ports, port_configs and adverts.
        port_count: of the fabric.
        senders: the switches.
        hops: (senders, leaves, next hops) int64 ports of the equal next hops from each sender to
            each leaf; -1: no more.
    """

    interval_s: float
    ageing_ns: int
    map_fds: tuple[int, int, int]
    port_count: int
    senders: tuple[Sender, ...]
    hops: npt.NDArray[np.int64]


@dataclass
class AdvertReport:
    """What the process did.

    Attributes:
        rounds: of adverts sent.
        skipped: rounds left out because their time had passed.
        unsent: packets that an interface did not take.
        lateness: histogram of the time from when a round was due to its end, bins of
            ``LATENESS_BIN_S``.
    """

    rounds: int = 0
    skipped: int = 0
    unsent: int = 0
    lateness: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(_LATENESS_BINS, np.int64)
    )


def best_qualities(
    hops: npt.NDArray[np.int64], local: npt.NDArray[np.int64], remote: npt.NDArray[np.int64]
) -> Qualities:
    """Return (senders, leaves) the quality of the best path from each sender to each leaf.

    Args:
        hops: (senders, leaves, next hops) ports; -1: no more.
        local: (ports,) quality of each port; -1: dead.
        remote: (ports, leaves) what the other end of a port said of its paths.
    """
    leaves = np.arange(hops.shape[1])[None, :, None]
    path = np.minimum(local[hops], remote[hops, leaves])
    path[hops < 0] = -1
    return np.maximum(path.max(axis=2), 0).astype(np.uint8)


def heard(adverts: Records, ageing_ns: int, now_ns: int, leaves: int) -> npt.NDArray[np.int64]:
    """Return (ports, leaves) what each port's other end said lately; the best where nothing.

    Args:
        adverts: (ports, blocks) of ``ADVERT_DTYPE``.
        ageing_ns: how long an advert counts.
        now_ns: CLOCK_MONOTONIC.
        leaves: how many there are.
    """
    age = now_ns - adverts["heard_ns"].astype(np.int64)
    fresh = (adverts["heard_ns"] > 0) & (age <= ageing_ns)
    said = np.where(fresh[:, :, None], adverts["quality"], BEST_QUALITY).astype(np.int64)
    return said.reshape(len(adverts), -1)[:, :leaves]


def advert_payloads(qualities: Qualities) -> list[bytes]:
    """Return the UDP payloads that tell the qualities of all leaves, one per block of them."""
    payloads = []
    for block, start in enumerate(range(0, len(qualities), ADVERT_LEAVES)):
        part = qualities[start : start + ADVERT_LEAVES].tobytes()
        payloads.append(struct.pack("!IHH", ADVERT_MAGIC, block, len(part)) + part)
    return payloads


def sealed(envelope: bytes, payload: bytes) -> bytes:
    """Return a frame of headers and payload, with its lengths and checksums."""
    head, total = _head(envelope, len(payload))
    checksum = ~_folded(total + _words(payload)) & 0xFFFF
    return head + struct.pack("!H", checksum or 0xFFFF) + payload


@functools.lru_cache(maxsize=8192)
def _head(envelope: bytes, payload_bytes: int) -> tuple[bytes, int]:
    """Return the headers up to the UDP checksum, and the sum of what that covers in them."""
    head = bytearray(envelope)
    is_ipv4 = head[12:14] == b"\x08\x00"
    udp = 34 if is_ipv4 else 54
    length = len(head) - udp + payload_bytes
    head[udp + 4 : udp + 8] = struct.pack("!HH", length, 0)
    if is_ipv4:
        head[16:18] = struct.pack("!H", udp - 14 + length)
        head[24:26] = bytes(2)
        head[24:26] = struct.pack("!H", ~_folded(_words(head[14:34])) & 0xFFFF)
        addresses = head[26:34]
    else:
        head[18:20] = struct.pack("!H", length)
        addresses = head[22:54]
    pseudo = _words(addresses) + length + socket.IPPROTO_UDP
    return bytes(head[: udp + 6]), pseudo + _words(head[udp:])


def _words(data: bytes | bytearray) -> int:
    """Return the sum of 16-bit words (RFC 1071), carries not yet added back."""
    padded = data + bytes(len(data) % 2)
    return sum(struct.unpack(f"!{len(padded) // 2}H", padded))


def _folded(total: int) -> int:
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)


class Advertiser:
    """Sends the adverts of a plan.

    Args:
        plan: what to send.
        stack: closes what this opens.
    """

    def __init__(self, plan: AdvertPlan, stack: contextlib.ExitStack) -> None:
        self._plan = plan
        self.report = AdvertReport()
        mappings: list[mmap.mmap] = []
        ports, configs, adverts = plan.map_fds
        count, self._leaves = plan.port_count, plan.hops.shape[1]
        blocks = -(-self._leaves // ADVERT_LEAVES)
        self._ports = map_entries(ports, PORT_DTYPE, count, mappings)
        self._configs = map_entries(configs, PORT_CONFIG_DTYPE, count, mappings)
        heard_by_port = map_entries(adverts, ADVERT_DTYPE, count * blocks, mappings)
        self._adverts = heard_by_port.reshape(count, blocks)
        self._sockets = []
        with namespaces.restored():
            for sender in plan.senders:
                self._enter(sender.namespace)
                sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                stack.callback(sock.close)
                self._sockets.append(sock)

    @staticmethod
    def _enter(namespace: str) -> None:
        fd = os.open(namespaces.NETNS_DIR / namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            namespaces.enter(fd)
        finally:
            os.close(fd)

    def send(self) -> None:
        """Send one round."""
        now_ns = time.monotonic_ns()
        local = port_quality(self._ports, self._configs, now_ns).astype(np.int64)
        local[self._configs["dead"] != 0] = -1
        remote = heard(self._adverts, self._plan.ageing_ns, now_ns, self._leaves)
        best = best_qualities(self._plan.hops, local, remote)
        for sender, sock, qualities in zip(self._plan.senders, self._sockets, best, strict=True):
            payloads = advert_payloads(qualities)
            for interface, envelope in zip(sender.interfaces, sender.envelopes, strict=True):
                for payload in payloads:
                    try:
                        sock.sendto(sealed(envelope, payload), (interface, 0))
                    except OSError:  # dropped, and counted, by the port; or the link is down
                        self.report.unsent += 1
        self.report.rounds += 1

    def serve(self, connection: Connection) -> None:
        """Send a round every interval until told to stop; rounds whose time has passed go."""
        interval_s, report = self._plan.interval_s, self.report
        due = time.monotonic()
        while not connection.poll(min(max(due - time.monotonic(), 0.0), _POLL_S)):
            if time.monotonic() < due:
                continue
            self.send()
            late = time.monotonic() - due
            report.lateness[min(int(late / LATENESS_BIN_S), _LATENESS_BINS - 1)] += 1
            passed = int(late // interval_s)
            report.skipped += passed
            due += (passed + 1) * interval_s


def main(connection: Connection) -> None:
    """Serve one plan, told over the connection to the parent."""
    plan = connection.recv()
    with contextlib.ExitStack() as stack:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(NIC_PRIORITY))
            advertiser = Advertiser(plan, stack)
        except (OSError, HostUnfit) as error:
            connection.send(error)
            return
        gc.freeze()
        gc.disable()
        connection.send("ready")
        advertiser.serve(connection)
        connection.recv()
        connection.send(advertiser.report)


if __name__ == "__main__":
    # By its full name, so that what is sent to the parent is of the classes that it knows.
    from fabric_emu.switch.glb import main as serve_plan

    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # parent has gone
        serve_plan(connect())
