"""Frames of any length through rings arrive whole and in order, whatever was in their slots."""

import contextlib
import select
import socket
import time
from typing import Any

import numpy as np
import pytest

from fabric_emu.model.topology import Topology
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.ring import HEADER_BYTES
from fabric_emu.nic.rings import ReceiveRings, TransmitRings
from fabric_emu.nic.worker import Port, places_of

pytestmark = pytest.mark.root

HEADER, FULL, MARK, SLOTS = 62, 600, 300, 16
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
        rings = TransmitRings(places_of([port]), FULL, HEADER, PAYLOAD, SLOTS, stack)
        _awaken(rings, 1, lambda: bool(select.select([listener], [], [], 0.01)[0]))
        while len(listener.recv(2 * FULL)) != MARK:
            pass
        yield rings, listener


def _awaken(rings, hosts, all_heard):
    """Send until frames come through: new links drop them until the kernel has seen them up.

    The last frame of each host is one of ``MARK`` bytes.
    """
    headers, tails, _ = frames([FULL] * hosts, np.random.default_rng(0))
    for _ in range(1000):
        heard = all_heard()
        if heard or not rings.queued().any():
            lengths = np.full(hosts, MARK if heard else FULL)
            rings.put(np.arange(hosts), headers, lengths, tails)
        if heard:
            return
    raise AssertionError("nothing came through")


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
    with wire() as (rings, listener):
        for _ in range(20):
            lengths = draw.choice(choices, draw.integers(1, 8))
            headers, tails, whole = frames(lengths, draw)
            assert rings.queued() + len(lengths) <= rings.slots
            rings.put(np.zeros(len(lengths), np.int64), headers, lengths, tails)
            assert [listener.recv(2 * FULL) for _ in lengths] == whole
            assert rings.queued() == 0


def test_what_many_hosts_send_comes_ring_after_ring_in_order(wait_until):
    draw = np.random.default_rng(5)
    slots = 64
    topology = Topology(leaves=2, spines=1, hosts_per_leaf=2)
    with Fabric(topology) as fabric, contextlib.ExitStack() as stack:
        hosts = ("h1", "h2", "h3", "h4")
        at_hosts = [Port(fabric.namespace(host), "eth0") for host in hosts]
        leaf_of = {"h1": "leaf1", "h2": "leaf1", "h3": "leaf2", "h4": "leaf2"}
        at_leaves = [Port(fabric.namespace(leaf_of[host]), host) for host in hosts]
        sending = TransmitRings(places_of(at_hosts), FULL, HEADER, PAYLOAD, slots, stack)
        receiving = ReceiveRings(places_of(at_leaves), slots, stack)
        heard, marked = set(), set()

        def all_heard(time_s=0.001):
            time.sleep(time_s)
            if (taken := receiving.take()) is not None:
                which, received = taken
                heard.update(which.tolist())
                marked.update(which[received.lengths == MARK].tolist())
            return len(heard) == len(hosts)

        _awaken(sending, len(hosts), all_heard)
        wait_until(lambda: all_heard(0) and len(marked) == len(hosts))
        for _ in range(12):
            # More than one look takes in, and round the rings' ends.
            count = draw.integers(0, 50, len(hosts))
            ring = np.repeat(np.arange(len(hosts)), count)
            lengths = draw.choice([HEADER + 4, FULL], len(ring))
            headers, tails, whole = frames(lengths, draw)
            sending.put(ring, headers, lengths, tails)
            parts: list[Any] = []

            def arrived(parts=parts, sent=ring):
                if (taken := receiving.take()) is not None:
                    parts.append(taken)
                return sum(len(which) for which, _ in parts) >= len(sent)

            wait_until(arrived, 10)
            for number in range(len(hosts)):
                got = [
                    (int(length), header[: min(length, HEADER_BYTES)].tobytes())
                    for which, received in parts
                    for length, header in zip(
                        received.lengths[which == number],
                        received.headers[which == number],
                        strict=True,
                    )
                ]
                sent = [whole[i] for i in np.flatnonzero(ring == number)]
                assert got == [(len(frame), frame[:HEADER_BYTES]) for frame in sent]
            assert receiving.dropped() == 0
