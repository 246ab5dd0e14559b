"""The bench's own sender: nothing lost, every port agrees, every ICRC holds. No speeds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from fabric_emu.bench.contenders import send_own, send_scapy
from fabric_emu.bench.course import INTERFACE, Course, topology
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.layout import SOURCE_PORT

pytestmark = pytest.mark.root

_UDP = 34  # behind Ethernet and IPv4
_ETH_P_ALL = 3  # taps for all protocols come before the BPF program that ends RoCE packets
_SO_RCVBUFFORCE = 33


@pytest.fixture
def course() -> Iterator[Course]:
    with Fabric(topology(), queue_pairs=1, shaped=False) as fabric:
        yield Course(fabric)


@pytest.mark.parametrize("payload_bytes", [64, 1024, 4096])
def test_nothing_is_lost(course: Course, payload_bytes: int) -> None:
    packets = 3000  # three turns of the transmit ring, and a part of one
    sent = send_own(course, payload_bytes, packets)
    assert sent.sent == packets
    assert sent.counts == {"ring": packets, "first port": packets, "last port": packets}
    assert sent.lost == 0
    # Of 16,384 ports, 3,000 draws leave 2,743 different ones, give or take 20 (birthdays).
    assert 2600 < sent.source_ports < 2900


# The longest go from the ring in another way than the others: see nic/ring.py.
@pytest.mark.parametrize(("payload_bytes", "mtu"), [(64, 9000), (4096, 9000), (20_000, 30_000)])
def test_every_frame_has_a_valid_icrc(payload_bytes: int, mtu: int) -> None:
    packets = 300
    described = topology().model_copy(update={"mtu": mtu})
    with (
        Fabric(described, queue_pairs=1, shaped=False) as fabric,
        closing(_whole_frames(Course(fabric))) as wire,
    ):
        sent = send_own(Course(fabric), payload_bytes, packets)
        frames = [wire.recv(mtu + 14) for _ in range(packets)]
    assert sent.lost == 0
    wrong = [frame for frame in frames if icrc(frame) != int.from_bytes(frame[-4:], "little")]
    assert not wrong
    at = _UDP + SOURCE_PORT
    ports = {frame[at : at + 2] for frame in frames}
    assert len(ports) == sent.source_ports


def test_scapy_sends_the_same_frames(course: Course) -> None:
    before = course.arrived()
    with closing(_whole_frames(course)) as wire:
        send_scapy(course, 64, packets=5)
        frames = [wire.recv(9100) for _ in range(5)]
    assert course.arrived() == before + 5
    assert {len(frame) for frame in frames} == {course.templates(64).length}
    assert [icrc(frame) for frame in frames] == [
        int.from_bytes(frame[-4:], "little") for frame in frames
    ]


def _whole_frames(course: Course) -> socket.socket:
    """Open a socket that gets what arrives at the destination, whole."""
    with namespaces.inside(course.fabric.namespace_fds[course.destination.name]):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    wire.bind((INTERFACE, _ETH_P_ALL))
    wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 23)
    wire.settimeout(10.0)  # long enough on a busy machine; a lost frame fails
    return wire
