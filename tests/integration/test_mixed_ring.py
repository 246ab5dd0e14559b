"""Frames of any length through one transmit ring arrive whole, whatever was in their slots."""

import contextlib
import socket

import numpy as np
import pytest

from fabric_emu.model.topology import Topology
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.ring import MixedRing
from fabric_emu.nic.worker import Port, open_transmit_ring

pytestmark = pytest.mark.root

HEADER, FULL, SLOTS = 62, 600, 16
EXPERIMENTAL = 0x88B5  # IEEE 802 local experimental Ethertype 1
PAYLOAD = bytes(np.arange(FULL - HEADER - 4, dtype=np.uint8))


@contextlib.contextmanager
def wire():
    """Give h1's ring, and a socket that sees whole frames at the other end of its link."""
    with (
        Fabric(Topology(leaves=2, spines=1, hosts_per_leaf=1)) as fabric,
        contextlib.ExitStack() as stack,
    ):
        with namespaces.inside(fabric.namespace_fds["leaf1"]):
            listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            listener.bind(("h1", EXPERIMENTAL))
        stack.callback(listener.close)
        listener.settimeout(5)
        port = Port(fabric.namespace("h1"), "eth0")
        yield open_transmit_ring(port, stack, MixedRing, FULL, HEADER, PAYLOAD, SLOTS), listener


def frames(lengths, draw):
    """Return headers, tails, and the whole frames they should become."""
    n = len(lengths)
    headers = draw.integers(0, 256, (n, HEADER), np.uint8)
    headers[:, :6] = [0x02, 0xFE, 0, 0, 0, 1]
    headers[:, 12:14] = list(EXPERIMENTAL.to_bytes(2, "big"))
    tails = draw.integers(0, 256, (n, 4), np.uint8)
    whole = [
        (headers[i].tobytes() + PAYLOAD)[: lengths[i] - 4] + tails[i].tobytes() for i in range(n)
    ]
    return headers, tails, whole


@pytest.mark.parametrize("seed", range(4))
def test_frames_of_all_lengths_share_the_slots(seed):
    draw = np.random.default_rng(seed)
    # Acknowledgements inside the header, tails across and beyond its end, and full frames.
    choices = np.array([62, 64, 66, 67, 70, 200, 596, 599, FULL, FULL, FULL])
    with wire() as (ring, listener):
        for _ in range(20):
            lengths = draw.choice(choices, draw.integers(1, 8))
            headers, tails, whole = frames(lengths, draw)
            assert ring.room(len(lengths))
            ring.put_mixed(headers, lengths, tails)
            ring.kick()
            assert [listener.recv(2 * FULL) for _ in lengths] == whole
            assert ring.queued() == 0
