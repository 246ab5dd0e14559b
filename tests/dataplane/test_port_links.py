"""The port programs on a real veth pair: frames as the kernel's own paths hand them over."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pyroute2 import NetNS, netns
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fabric_emu.switch.ports import DropReason, PortConstants, PortTable

pytestmark = pytest.mark.root

IFINDEX_BASE = 500_000
SENDER, RECEIVER = 0, 1
INTERFACE, ADDRESSES = "link0", ("10.0.0.1", "10.0.0.2")
SIOCETHTOOL, ETHTOOL_STSO, ETHTOOL_SGRO = 0x8946, 0x1F, 0x2C
CLSACT_INGRESS, CLSACT_EGRESS = "ffff:fff2", "ffff:fff3"
ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR = 263, 15
LINEAR_BYTES = 14
# struct virtio_net_hdr: flags, GSO type, bytes to put into the linear area, and GSO's fields.
VNET_HEADER = struct.pack("=BBHHHH", 0, 0, LINEAR_BYTES, 0, 0, 0)
BTH_STAMP = 14 + 20 + 8 + 4


@dataclass
class Link:
    """A veth pair between two namespaces, its ends with the programs of a switch and a host."""

    table: PortTable
    namespaces: tuple[str, str]
    sender: socket.socket
    receiver: socket.socket

    def send(self, frame: bytes) -> None:
        self.sender.send(VNET_HEADER + frame)

    def wait_for_departures(self, packets: int) -> None:
        port = self.table.ports[SENDER]
        wait_until(lambda: bool(port["departed_packets"] == packets))


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        os.sched_yield()


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


def set_offload(interface: str, command: int, value: int) -> None:
    """Set an offload with the ETHTOOL_S... command of linux/ethtool.h, in this namespace."""
    request = ctypes.create_string_buffer(struct.pack("=II", command, value))
    argument = struct.pack("16sP", interface.encode(), ctypes.addressof(request))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, argument)


@pytest.fixture
def link() -> Iterator[Link]:
    names = f"fe-ports-a-{os.getpid()}", f"fe-ports-b-{os.getpid()}"
    constants = PortConstants(ifindex_base=IFINDEX_BASE, port_count=2, flow_count=2, qpn_base=0x100)
    with ExitStack() as stack:
        table = stack.enter_context(PortTable(constants))
        for name in names:
            netns.create(name)
            stack.callback(netns.remove, name)
        ends = [stack.enter_context(NetNS(name)) for name in names]
        _make_veth(ends[SENDER], names[RECEIVER])
        packet_sockets = []
        for port, name in enumerate(names):
            with inside(name):
                # No router solicitations or the like between the packets that the tests count.
                with open(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6", "w") as setting:
                    setting.write("1")
                set_offload(INTERFACE, ETHTOOL_STSO, 0)
                set_offload(INTERFACE, ETHTOOL_SGRO, 1)
                packet_sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            stack.enter_context(packet_sockets[port])
            _attach(ends[port], port, table)
        for port, end in enumerate(ends):
            wait_until(partial(_sends, end, IFINDEX_BASE + port))
        sender, receiver = packet_sockets
        sender.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sender.bind((INTERFACE, 0))
        receiver.bind((INTERFACE, ETH_P_ALL))
        receiver.settimeout(60)
        yield Link(table, names, sender, receiver)


def _make_veth(namespace: NetNS, peer_namespace: str) -> None:
    with open(f"/run/netns/{peer_namespace}") as peer_file:
        peer = [["IFLA_IFNAME", INTERFACE], ["IFLA_NET_NS_FD", peer_file.fileno()]]
        veth = [["VETH_INFO_PEER", {"index": IFINDEX_BASE + RECEIVER, "attrs": peer}]]
        information = [["IFLA_INFO_KIND", "veth"], ["IFLA_INFO_DATA", {"attrs": veth}]]
        namespace.link(
            "add",
            ifname=INTERFACE,
            index=IFINDEX_BASE + SENDER,
            IFLA_LINKINFO={"attrs": information},
        )


def _attach(namespace: NetNS, port: int, table: PortTable) -> None:
    index = IFINDEX_BASE + port
    ingress = ("port_ingress", "host_ingress")[port]
    namespace.tc("add", "clsact", index)
    for program, parent in (("port_egress", CLSACT_EGRESS), (ingress, CLSACT_INGRESS)):
        namespace.tc(
            "add-filter",
            "bpf",
            index,
            ":1",
            fd=table.bpf.program_fds[program],
            name=program,
            parent=parent,
            classid=1,
            direct_action=True,
        )
    namespace.addr("add", index=index, address=ADDRESSES[port], prefixlen=30)
    namespace.link("set", index=index, mtu=9000, state="up")


def _sends(namespace: NetNS, index: int) -> bool:
    """Whether the kernel has replaced the discipline that drops all, as it does on a carrier."""
    return bool(namespace.get_links(index)[0].get_attr("IFLA_QDISC") != "noop")


def roce(payload: int, **fields: Any) -> bytes:
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    udp = ethernet / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=0xC123, dport=4791, chksum=0)
    return bytes(udp / BTH(opcode=4, dqpn=0x101, psn=7, **fields) / Raw(b"A" * payload))


def test_headers_outside_the_linear_area(link: Link) -> None:
    # A frame of a page or more gets a linear area of just the bytes that its sender asks for
    # (packet_alloc_skb in net/packet/af_packet.c), as every frame from a packet ring does.
    link.table.configs[SENDER]["path_stamp"] = 21
    frame = roce(5000)
    link.send(frame)

    received = link.receiver.recv(9000)
    assert received == frame[:BTH_STAMP] + bytes([21]) + frame[BTH_STAMP + 1 :]
    port = link.table.ports[SENDER]
    wait_until(lambda: bool(port["delivered_packets"] == 1))
    assert port["enqueued_bytes"] == port["departed_bytes"] == len(frame)
    assert port["delivered_bytes"] == len(frame)
    assert link.table.flow_ports[1, SENDER]["offered_bytes"] == len(frame)
    assert port["unknown_flow_packets"] == 0


def test_the_queue_empties_as_packets_arrive(link: Link) -> None:
    frame = roce(1000)
    link.table.configs[SENDER]["drop_at_bytes"] = len(frame)  # room for one at a time
    port = link.table.ports[SENDER]
    for count in range(1, 21):
        link.send(frame)
        link.wait_for_departures(count)
        assert link.table.depth_bytes.tolist() == [0, 0]

    wait_until(lambda: bool(port["delivered_packets"] == 20))
    assert port["enqueued_packets"] == 20
    assert port["dropped_packets"].sum() == 0
    assert port["high_water_bytes"] == len(frame)


def test_a_drop_is_an_error_to_the_sender(link: Link) -> None:
    # TC_ACT_SHOT at egress is NET_XMIT_DROP (sch_handle_egress in net/core/dev.c): whoever sends
    # from a packet socket must expect ENOBUFS of a port that drops.
    link.table.configs[SENDER]["drop_at_bytes"] = 1
    with pytest.raises(OSError, match="No buffer space"):
        link.send(roce(100))
    assert link.table.ports[SENDER]["dropped_packets"][DropReason.QUEUE_LIMIT] == 1


def test_the_sender_does_not_know_of_a_blackhole(link: Link) -> None:
    # A ring that was told would send the same frame again, and count it dropped twice.
    link.table.configs[SENDER]["blackhole"] = 1
    link.send(roce(100))
    assert link.table.ports[SENDER]["dropped_packets"][DropReason.BLACKHOLE] == 1


@pytest.mark.parametrize("ethertype", [b"\x08\x00", b"\x86\xdd"], ids=["ipv4", "ipv6"])
def test_frames_cut_in_the_ip_header(link: Link, ethertype: bytes) -> None:
    # A test run refuses such frames, so they are seen on a link only.
    link.table.configs[SENDER]["path_stamp"] = 21
    addresses, first_ip_byte = bytes(12), b"\x45" if ethertype == b"\x08\x00" else b"\x60"
    frames = [(addresses + ethertype + first_ip_byte * 40)[:length] for length in range(15, 34)]
    for frame in frames:
        link.send(frame)
    assert [link.receiver.recv(9000) for _ in frames] == frames

    port = link.table.ports[SENDER]
    link.wait_for_departures(len(frames))
    assert port["enqueued_bytes"] == port["departed_bytes"] == sum(map(len, frames))
    assert port["delivered_packets"] == 0


def test_a_vlan_tag_counts_the_same_at_both_ends(link: Link) -> None:
    # The sender's end sees the tag in the frame, the receiver's beside it (skb_vlan_untag).
    frame = roce(100)
    tagged = frame[:12] + b"\x81\x00\x00\x05" + frame[12:]
    link.send(tagged)
    port = link.table.ports[SENDER]
    link.wait_for_departures(1)
    assert port["enqueued_bytes"] == port["departed_bytes"] == len(tagged)
    assert port["delivered_packets"] == 0


def test_tcp_counts_the_same_at_both_ends(link: Link) -> None:
    # TCP hands down many segments at a time, the receiving end's GRO merges what it finds.
    with ExitStack() as stack:
        with inside(link.namespaces[RECEIVER]):
            server = stack.enter_context(socket.create_server((ADDRESSES[RECEIVER], 0)))
        with inside(link.namespaces[SENDER]):
            client = stack.enter_context(socket.create_connection(server.getsockname(), timeout=60))
        connection = stack.enter_context(server.accept()[0])
        connection.settimeout(60)
        for _ in range(50):
            client.sendall(bytes(60_000))
            remaining = 60_000
            while remaining:
                remaining -= len(connection.recv(remaining))

    ports = link.table.ports
    wait_until(lambda: bool((ports["departed_packets"] == ports["enqueued_packets"]).all()))
    wait_until(lambda: not link.table.depth_bytes.any())
    # 3 MB in segments of at most 8,960 bytes.
    assert ports[SENDER]["enqueued_packets"] >= 3_000_000 / 8_960
    assert ports[SENDER]["enqueued_bytes"] > 3_000_000
