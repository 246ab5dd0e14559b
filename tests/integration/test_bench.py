"""The bench's own sender: nothing lost, every port agrees, every ICRC holds. No speeds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from fabric_emu.bench.contenders import send_own, send_scapy
from fabric_emu.bench.testbed import INTERFACE, Testbed, topology
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.layout import SOURCE_PORT

pytestmark = pytest.mark.root

_UDP = 34  # behind Ethernet and IPv4
_ETH_P_IP = 0x0800


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    with Fabric(topology(), queue_pairs=1, shaped=False) as fabric:
        yield Testbed(fabric)


@pytest.mark.parametrize("payload_bytes", [64, 1024, 4096])
def test_nothing_is_lost(testbed: Testbed, payload_bytes: int) -> None:
    packets = 3000  # three turns of the transmit ring, and a part of one
    sent = send_own(testbed, payload_bytes, packets)
    assert sent.sent == packets
    assert sent.counts == {"ring": packets, "first port": packets, "last port": packets}
    assert sent.lost == 0
    # Of 16,384 ports, 3,000 draws leave 2,743 different ones, give or take 20 (birthdays).
    assert 2600 < sent.source_ports < 2900


# Linear, as short frames are sent, and with the payload in pages, as the longest are.
@pytest.mark.parametrize("payload_bytes", [64, 4096])
def test_every_frame_has_a_valid_icrc(testbed: Testbed, payload_bytes: int) -> None:
    packets = 300
    with closing(_whole_frames(testbed)) as wire:
        sent = send_own(testbed, payload_bytes, packets)
        frames = [wire.recv(9100) for _ in range(packets)]
    assert sent.lost == 0
    wrong = [frame for frame in frames if icrc(frame) != int.from_bytes(frame[-4:], "little")]
    assert not wrong
    at = _UDP + SOURCE_PORT
    ports = np.array([int.from_bytes(frame[at : at + 2], "big") for frame in frames])
    assert len(set(ports)) == sent.source_ports


def test_scapy_sends_the_same_frames(testbed: Testbed) -> None:
    before = testbed.arrived()
    with closing(_whole_frames(testbed)) as wire:
        send_scapy(testbed, 64, packets=5)
        frames = [wire.recv(9100) for _ in range(5)]
    assert testbed.arrived() == before + 5
    assert {len(frame) for frame in frames} == {testbed.templates(64).length}
    assert [icrc(frame) for frame in frames] == [
        int.from_bytes(frame[-4:], "little") for frame in frames
    ]


def _whole_frames(testbed: Testbed) -> socket.socket:
    """Open a socket that gets what arrives at the destination, whole."""
    with namespaces.inside(testbed.fabric.namespace_fds[testbed.destination.name]):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_IP))
    wire.bind((INTERFACE, _ETH_P_IP))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE, 1 << 23)
    wire.settimeout(10.0)
    return wire
