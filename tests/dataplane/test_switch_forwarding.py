"""A switch that chooses next hops itself: what it forwards, and how, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from fabric_emu.model.topology import mac_address
from fabric_emu.switch.ports import PortConstants, PortTable
from fabric_emu.switch.switches import Mode, SwitchSizes, group_of

pytestmark = pytest.mark.root

TC_ACT_OK, TC_ACT_REDIRECT = 0, 7
PORT = 8
UPLINKS = (0x10, 0x12)
LEAVES = 4
OWN_LEAF, FAR_LEAF, ONE_WAY_LEAF = 1, 2, 3
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=32,
    leaf_count=LEAVES,
    host_bits=8,
    flowlet_entries=64,
)


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS, SwitchSizes(switches=2, groups=2)) as table:
        table.configs["switch_number"][PORT] = 1
        switches = table.switches
        switches.configs["mode"][1] = Mode.PER_PACKET_RANDOM
        switches.groups[0] = group_of(UPLINKS)
        switches.groups[1] = group_of((0x14,))
        switches.routes[1] = [0, 1, 2, 1]
        yield table


# The destination is the loopback device's own address, as a router's packets have its own.
ETHERNET = Ether(src="02:00:00:00:00:01", dst="00:00:00:00:00:00")


def ipv4(leaf: int = FAR_LEAF, plane: int = 0, **fields: Any) -> Packet:
    own = {"src": "10.0.1.1", "dst": f"10.{plane << 4}.{leaf}.1", "ttl": 9}
    return ETHERNET / IP(**cast(dict[str, Any], own | fields))


def ipv6(leaf: int = FAR_LEAF, plane: int = 0, **fields: Any) -> Packet:
    own = {"src": "fd00:0:1::1", "dst": f"fd00:{plane:x}:{leaf:x}::1", "hlim": 9}
    return ETHERNET / IPv6(**cast(dict[str, Any], own | fields))


def roce(network: Packet) -> bytes:
    udp = UDP(sport=0xC123, dport=4791, chksum=0)
    return bytes(network / udp / BTH(opcode=4, dqpn=0x101, psn=7) / Raw(b"A" * 64))


def patched(frame: bytes, offset: int, new: bytes) -> bytes:
    return frame[:offset] + new + frame[offset + len(new) :]


ROCE4, ROCE6 = roce(ipv4()), roce(ipv6())
IP4, UDP4, UDP6 = 14, 14 + 20, 14 + 40


def with_checksum(wanted: int) -> bytes:
    """Return a frame whose IPv4 identification gives it a header checksum."""
    without = int.from_bytes(roce(ipv4(id=0))[IP4 + 10 : IP4 + 12], "big")
    frame = roce(ipv4(id=(without - wanted) % 0xFFFF))  # ones' complement
    assert frame[IP4 + 10 : IP4 + 12] == wanted.to_bytes(2, "big")
    return frame


FORWARDED = {
    "ipv4": ROCE4,
    "ipv6": ROCE6,
    "ipv4 last hop but one": roce(ipv4(ttl=2)),
    "ipv6 last hop but one": roce(ipv6(hlim=2)),
    # A time to live of one less adds 0x0100 to the checksum: the one that carries over.
    "ipv4 sum that carries": with_checksum(0xFEFF),
    "ipv4 do not fragment": roce(ipv4(flags="DF")),
    "control": roce(ipv4(tos=48 << 2)),
    "trimmed": bytes(ipv4(tos=46 << 2) / UDP(sport=0xC123, dport=4791) / Raw(bytes(22))),
    "udp of others": bytes(ipv4() / UDP(sport=1, dport=2) / Raw(bytes(9))),
    "udp without data": bytes(ipv4() / UDP(sport=1, dport=2)),
    "tcp": bytes(ipv4() / TCP() / Raw(bytes(40))),
    "ipv6 tcp": bytes(ipv6() / TCP() / Raw(bytes(40))),
}
ONE_WAY = {
    "to the switch's own leaf": roce(ipv4(OWN_LEAF)),
    "to its own leaf, ipv6": roce(ipv6(OWN_LEAF)),
    "to a leaf with one way": roce(ipv4(ONE_WAY_LEAF)),
    "to a leaf with one way, ttl 1": roce(ipv4(ONE_WAY_LEAF, ttl=1)),
    "to another machine": patched(ROCE4, 0, b"\x02"),
    "broadcast": patched(ROCE4, 0, b"\xff" * 6),
}
LEFT_ALONE = {
    "ttl 1": roce(ipv4(ttl=1)),
    "ttl 0": roce(ipv4(ttl=0)),
    "hop limit 1": roce(ipv6(hlim=1)),
    "hop limit 0": roce(ipv6(hlim=0)),
    "first fragment": roce(ipv4(flags="MF")),
    "later fragment": roce(ipv4(frag=100)),
    "ipv6 fragment": bytes(ipv6() / IPv6ExtHdrFragment(nh=17) / Raw(ROCE6[UDP6:])),
    "ipv6 hop by hop": bytes(ipv6() / IPv6ExtHdrHopByHop(nh=17) / Raw(ROCE6[UDP6:])),
    "options": roce(ipv4(options=[IPOption_NOP()] * 4)),
    "icmp": bytes(ipv4() / ICMP()),
    "vlan": ROCE4[:12] + bytes(Dot1Q(vlan=5, type=0x0800)) + ROCE4[14:],
    "arp": bytes(ETHERNET / ARP(psrc="10.0.0.1", hwsrc="02:00:00:00:00:01")),
    "unknown ethertype": bytes(12) + b"\x88\xb5" + bytes(50),
    "ethernet header and no more": bytes(12) + b"\x88\xb5",
    "wrong sum": patched(ROCE4, IP4 + 10, bytes([ROCE4[IP4 + 10] ^ 1])),
    "version 5": patched(ROCE4, IP4, b"\x55"),
    "version 7": patched(ROCE6, IP4, b"\x70"),
    "header of 16 bytes": patched(ROCE4, IP4, b"\x44"),
    "cut in the payload": ROCE4[:-1],
    "cut in the udp header": ROCE4[: UDP4 + 5],
    "ipv4 header and no more": ROCE4[:UDP4],
    "ipv6 header and no more": ROCE6[:UDP6],
    "cut ipv6": ROCE6[:-1],
    "padded": ROCE4 + b"\0",
    "padded ipv6": ROCE6 + b"\0",
    "ports missing": bytes(ipv4(proto=17) / Raw(bytes(3))),
    "ports missing, ipv6": bytes(ipv6(nh=17) / Raw(bytes(3))),
    "leaf 0": roce(ipv4(0)),
    "leaf too high": roce(ipv4(LEAVES + 1)),
    "leaf 0, ipv6": roce(ipv6(0)),
    "leaf too high, ipv6": roce(ipv6(LEAVES + 1)),
    "leaf 65535, ipv6": roce(ipv6(0xFFFF)),
    "other plane": roce(ipv4(plane=1)),
    "other plane, ipv6": roce(ipv6(plane=1)),
    "a switch": roce(ipv4(dst="10.241.0.2")),
    "a switch, ipv6": roce(ipv6(dst="fd00:ffff:1::2")),
    "outside": roce(ipv4(dst="192.0.2.1")),
    "outside, ipv6": roce(ipv6(dst="2001:db8:2::1")),
    "multicast": roce(ipv4(dst="224.0.0.5")),
}


def as_forwarded(frame: bytes, port: int) -> bytes:
    """Return what a router makes of a frame that it sends by a port."""
    packet = Ether(frame)
    packet.src, packet.dst = mac_address(port), mac_address(port ^ 1)
    if IP in packet:
        packet[IP].ttl -= 1
        packet[IP].chksum = None
    else:
        packet[IPv6].hlim -= 1
    return bytes(packet)


def counted(table: PortTable) -> dict[str, int]:
    return {name: count for name, count in table.switches.totals().items() if count}


@pytest.mark.parametrize("frame", FORWARDED.values(), ids=FORWARDED.keys())
@pytest.mark.parametrize("port", UPLINKS)
def test_forwards_as_a_router_does(table: PortTable, frame: bytes, port: int) -> None:
    table.switches.groups[0] = group_of((port, port))
    run = table.bpf.test_run("switch_ingress", frame)
    assert run.verdict == TC_ACT_REDIRECT
    assert run.frame == as_forwarded(frame, port)
    assert counted(table) == {"balanced": 1}
    assert table.switches.counters["balanced"].tolist() == [0, 1]


@pytest.mark.parametrize("frame", ONE_WAY.values(), ids=ONE_WAY.keys())
def test_leaves_to_the_kernel_where_there_is_nothing_to_choose(
    table: PortTable, frame: bytes
) -> None:
    run = table.bpf.test_run("switch_ingress", frame)
    assert (run.verdict, run.frame) == (TC_ACT_OK, frame)
    assert counted(table) == {}


@pytest.mark.parametrize("frame", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
@pytest.mark.parametrize("mode", [Mode.PER_PACKET_RANDOM, Mode.FLOWLET_QUALITY, Mode.ROUND_ROBIN])
def test_leaves_to_the_kernel_and_counts(table: PortTable, mode: Mode, frame: bytes) -> None:
    table.switches.configs["mode"] = mode
    run = table.bpf.test_run("switch_ingress", frame)
    assert (run.verdict, run.frame) == (TC_ACT_OK, frame)
    assert counted(table) == {"fallbacks": 1}


@pytest.mark.parametrize("frame", [*FORWARDED.values(), *ONE_WAY.values(), *LEFT_ALONE.values()])
def test_every_frame_departs(table: PortTable, frame: bytes) -> None:
    table.bpf.test_run("switch_ingress", frame)
    peer = table.ports[PORT ^ 1]
    assert (peer["departed_packets"], peer["departed_bytes"]) == (1, len(frame))


def test_a_switch_without_a_policy_leaves_all_to_the_kernel(table: PortTable) -> None:
    table.switches.configs["mode"] = Mode.KERNEL
    for frame in (ROCE4, LEFT_ALONE["ttl 1"]):
        run = table.bpf.test_run("switch_ingress", frame)
        assert (run.verdict, run.frame) == (TC_ACT_OK, frame)
    assert counted(table) == {}


@pytest.mark.parametrize("setting", ["switch", "route", "group", "size"])
def test_settings_that_lead_nowhere(table: PortTable, setting: str) -> None:
    switches = table.switches
    if setting == "switch":
        table.configs["switch_number"][PORT] = 2
    elif setting == "route":
        switches.routes[1, FAR_LEAF - 1] = 99
    elif setting == "group":
        switches.groups[0] = group_of((9999, 0xFFFFFFFF))
    else:
        switches.groups["size"][0] = 2**32 - 1
        switches.groups["ports"][0] = 0x10
    run = table.bpf.test_run("switch_ingress", ROCE4)
    if setting == "size":  # no more than a group holds are looked at
        assert (run.verdict, run.frame) == (TC_ACT_REDIRECT, as_forwarded(ROCE4, 0x10))
    else:
        assert (run.verdict, run.frame) == (TC_ACT_OK, ROCE4)


def test_planes_and_wide_leaves() -> None:
    # A plane's number is its switch's; a leaf of a thousand hosts has ten bits for them.
    constants = PortConstants(
        ifindex_base=CONSTANTS.ifindex_base, port_count=32, leaf_count=3, host_bits=10
    )
    with PortTable(constants, SwitchSizes(switches=1, groups=1)) as table:
        table.switches.configs["mode"] = Mode.ROUND_ROBIN
        table.switches.configs["plane"] = 5
        table.switches.groups[0] = group_of(UPLINKS)
        table.switches.routes[0] = [0, 0, 1]
        frame = roce(ipv4(dst=f"10.{5 << 4}.{3 << 2 | 3}.255"))  # host 1023 of leaf 3
        assert table.bpf.test_run("switch_ingress", frame).verdict == TC_ACT_REDIRECT
        frame = roce(ipv6(3, plane=5))
        assert table.bpf.test_run("switch_ingress", frame).verdict == TC_ACT_REDIRECT
        assert table.bpf.test_run("switch_ingress", roce(ipv4(3))).verdict == TC_ACT_OK


def is_runnable(frame: bytes) -> bool:
    """Tell whether the kernel takes the frame for a test run: not without its whole IP header."""
    header_bytes = {b"\x08\x00": 20, b"\x86\xdd": 40}.get(frame[12:14], 0)
    return len(frame) >= 14 + header_bytes


def cut_and_overwritten(frame: bytes) -> st.SearchStrategy[bytes]:
    """Return frames like `frame` with up to four bytes replaced and, at times, the end cut off."""
    changes = st.dictionaries(st.integers(0, len(frame) - 1), st.integers(0, 255), max_size=4)

    def change(new: dict[int, int], length: int) -> bytes:
        return bytes(new.get(at, byte) for at, byte in enumerate(frame))[:length]

    lengths = st.just(len(frame)) | st.integers(14, len(frame))
    return st.builds(change, changes, lengths)


ANY_FRAME = st.one_of(
    st.binary(min_size=14, max_size=256),
    *(cut_and_overwritten(FORWARDED[name]) for name in ("ipv4", "ipv6", "tcp", "trimmed")),
).filter(is_runnable)


@dataclass
class Seen:
    """How often each thing happened."""

    forwarded: int = 0
    left: int = 0


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.KERNEL])
def test_no_garbage_is_forwarded(table: PortTable, mode: Mode) -> None:
    table.switches.configs["mode"] = mode
    table.switches.configs["table_entries"] = 64
    seen = Seen()

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(ANY_FRAME)
    def check(frame: bytes) -> None:
        before = table.switches.totals()
        run = table.bpf.test_run("switch_ingress", frame)
        added = {name: count - before[name] for name, count in table.switches.totals().items()}
        if run.verdict == TC_ACT_OK:
            seen.left += 1
            assert run.frame == frame
            assert added["balanced"] == 0
            assert added["fallbacks"] <= 1
            return
        seen.forwarded += 1
        assert run.verdict == TC_ACT_REDIRECT
        assert (added["balanced"], added["fallbacks"]) == (1, 0)
        assert is_sound(frame)
        port = int.from_bytes(run.frame[8:12], "big")
        assert port in UPLINKS
        assert run.frame == as_forwarded(frame, port)

    check()
    assert seen.forwarded > 20
    assert seen.left > 20


def is_sound(frame: bytes) -> bool:
    """Tell whether a router may forward a frame to the far leaf: by the standards, byte by byte."""
    packet = memoryview(frame)[14:]
    if frame[:6] != bytes(6):
        return False
    if frame[12:14] == b"\x08\x00":
        words = np.frombuffer(frame, ">u2", 10, 14).astype(int).sum()
        while words >> 16:
            words = (words & 0xFFFF) + (words >> 16)
        return bool(
            packet[0] == 0x45
            and words == 0xFFFF
            and int.from_bytes(packet[2:4], "big") == len(packet)
            and int.from_bytes(packet[6:8], "big") & 0x3FFF == 0
            and packet[8] > 1
            and packet[9] in (6, 17)
            and len(packet) >= 24
            and bytes(packet[16:18]) == b"\x0a\x00"
            and packet[18] in (FAR_LEAF, 4)
        )
    return bool(
        frame[12:14] == b"\x86\xdd"
        and packet[0] >> 4 == 6
        and int.from_bytes(packet[4:6], "big") == len(packet) - 40
        and packet[6] in (6, 17)
        and packet[7] > 1
        and len(packet) >= 44
        and bytes(packet[24:28]) == b"\xfd\x00\x00\x00"
        and int.from_bytes(packet[28:30], "big") in (FAR_LEAF, 4)
    )
