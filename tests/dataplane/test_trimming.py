"""Trimming: what is left of a packet, when, and how it is counted."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from fabric_emu.switch.columns import Records, map_entries
from fabric_emu.switch.ports import (
    PORT_DTYPE,
    DropReason,
    PortConstants,
    PortTable,
    dscp_bits,
)
from fabric_emu.wire.rocev2 import RETH

pytestmark = pytest.mark.root

TC_ACT_OK, TC_ACT_SHOT, TC_ACT_STOLEN, TC_ACT_REDIRECT = 0, 2, 4, 7
PORT = 0
TRIMMABLE, ALSO_TRIMMABLE, TRIMMED, CONTROL = 10, 12, 46, 48
CONSTANTS = PortConstants(
    ifindex_base=1,
    port_count=2,
    flow_count=2,
    qpn_base=0x100,
    control_dscps=dscp_bits(CONTROL, TRIMMED),
    control_classid=0x10010,
    data_classid=0x10020,
)
QUEUE = 10_000


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        for name, value in {
            "trim_above_bytes": QUEUE,
            "trim_to_bytes": 64,
            "trimmable_dscps": dscp_bits(TRIMMABLE, ALSO_TRIMMABLE),
            "trimmed_dscp": TRIMMED,
            "drop_at_bytes": 2 * QUEUE,
            "control_limit_bytes": 1000,
        }.items():
            table.configs[name] = value
        yield table


@pytest.fixture
def ports(table: PortTable) -> Records:
    mappings: list[mmap.mmap] = []
    ports: Records = map_entries(table.bpf.map_fds["ports"], PORT_DTYPE, 2, mappings)
    ports["enqueued_bytes"][PORT] = QUEUE
    ports["enqueued_packets"][PORT] = 5
    return ports


ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def network(family: int, tos: int, **fields: Any) -> Packet:
    if family == 6:
        return ETHERNET / IPv6(src="fd00::1", dst="fd00::2", tc=tos, fl=0x12345, **fields)
    return ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", tos=tos, **fields)


def roce(
    family: int = 4,
    dscp: int = TRIMMABLE,
    ecn: int = 2,
    payload: int = 1000,
    udp_checksum: int | None = 0,
    **fields: Any,
) -> bytes:
    """Return a RoCEv2 WRITE; a `udp_checksum` of None is computed."""
    udp = UDP(sport=0xC123, dport=4791, chksum=udp_checksum)
    bth = BTH(opcode=0x0A, dqpn=0x101, psn=7) / RETH(address=0x1122334455667788, dma_length=9)
    return bytes(network(family, dscp << 2 | ecn, **fields) / udp / bth / Raw(b"A" * payload))


def trimmed(frame: bytes, kept: int, dscp: int = TRIMMED) -> bytes:
    """Return what must be left of a frame: by scapy, from the frame's own fields."""
    packet = Ether(frame[:kept])
    if IP in packet:
        packet[IP].tos = dscp << 2 | packet[IP].tos & 3
        packet[IP].len = kept - 14
        packet[IP].chksum = None
        udp = 14 + packet[IP].ihl * 4
    else:
        packet[IPv6].tc = dscp << 2 | packet[IPv6].tc & 3
        packet[IPv6].plen = kept - 54
        udp = 54
    left = bytearray(bytes(packet)[:udp] + frame[udp:kept])
    left[udp + 4 : udp + 8] = (kept - udp).to_bytes(2, "big") + bytes(2)
    return bytes(left)


MINIMUM4, MINIMUM6 = 14 + 20 + 8 + 12, 14 + 40 + 8 + 12
CASES = {
    "ipv4": (roce(), 64, 64),
    "ipv6": (roce(6), 64, MINIMUM6),
    "ipv4 to 128": (roce(), 128, 128),
    "ipv6 to 128": (roce(6), 128, 128),
    "ipv4 to its headers": (roce(), 1, MINIMUM4),
    "ipv6 to its headers": (roce(6), 1, MINIMUM6),
    "options": (roce(options=[IPOption_NOP()] * 12), 64, MINIMUM4 + 12),
    "most options": (roce(options=[IPOption_NOP()] * 40), 64, MINIMUM4 + 40),
    "another dscp": (roce(dscp=ALSO_TRIMMABLE), 64, 64),
    "not ECT": (roce(ecn=0), 64, 64),
    "CE": (roce(6, ecn=3), 64, MINIMUM6),
    "udp checksum": (roce(udp_checksum=None), 64, 64),
    "udp checksum, ipv6": (roce(6, udp_checksum=None), 64, MINIMUM6),
    "do not fragment": (roce(flags="DF"), 64, 64),
    "a byte too long": (roce(payload=0), 73, 73),
    "other udp": (
        bytes(network(4, TRIMMABLE << 2) / UDP(dport=4793, chksum=0) / Raw(b"B" * 300)),
        1,
        14 + 20 + 8 + 16,
    ),
    "large": (roce(payload=3000), 64, 64),
}


@pytest.mark.parametrize(("frame", "trim_to", "kept"), CASES.values(), ids=CASES.keys())
def test_cuts_to_headers(
    table: PortTable, ports: Records, frame: bytes, trim_to: int, kept: int
) -> None:
    table.configs["trim_to_bytes"] = trim_to
    run = table.bpf.test_run("port_egress", frame)
    assert run.verdict == TC_ACT_REDIRECT
    assert run.frame == trimmed(frame, kept)
    port = ports[PORT]
    assert (port["trimmed_packets"], port["trimmed_bytes"]) == (1, len(frame) - kept)
    assert port["enqueued_packets"] == 5  # it joins the queue when it comes by again

    again = table.bpf.test_run("port_egress", run.frame, mark=run.mark)
    assert (again.verdict, again.frame, again.mark) == (TC_ACT_OK, run.frame, 0)
    assert again.priority == CONSTANTS.control_classid
    assert (port["enqueued_packets"], port["enqueued_bytes"]) == (6, QUEUE + kept)
    assert port["control_enqueued_bytes"] == kept
    assert not port["dropped_packets"].any()
    assert table.offered_bytes[PORT] == QUEUE + len(frame)


def test_a_flow_asks_once_and_is_trimmed_once(table: PortTable, ports: Records) -> None:
    frame = roce()
    run = table.bpf.test_run("port_egress", frame)
    table.bpf.test_run("port_egress", run.frame, mark=run.mark)
    flow = table.flow_ports[1, PORT]
    assert (flow["offered_packets"], flow["offered_bytes"]) == (1, len(frame))
    assert (flow["trimmed_packets"], flow["dropped_packets"]) == (1, 0)


def test_the_path_stamp_is_in_what_is_left(table: PortTable, ports: Records) -> None:
    table.configs["path_stamp"] = 21
    run = table.bpf.test_run("port_egress", roce())
    again = table.bpf.test_run("port_egress", run.frame, mark=run.mark)
    assert again.frame[14 + 20 + 8 + 4] == 21


UNTOUCHED = {
    "dscp": roce(dscp=0),
    "dscp next to it": roce(dscp=11),
    "ipv6 dscp": roce(6, dscp=0),
    "trimmed before": trimmed(roce(), 64),
    "control": roce(dscp=CONTROL, payload=100),
    "as short as what would be left": trimmed(roce(), 64, TRIMMABLE),
    "shorter": trimmed(roce(), 60, TRIMMABLE),
    "tcp": bytes(network(4, TRIMMABLE << 2) / TCP() / Raw(bytes(1000))),
    "first fragment": roce(flags="MF"),
    "later fragment": roce(frag=100),
    "ipv6 fragment": bytes(
        network(6, TRIMMABLE << 2) / IPv6ExtHdrFragment(nh=17) / Raw(roce(6)[54:])
    ),
    "vlan": roce()[:12] + bytes(Dot1Q(vlan=5, type=0x0800)) + roce()[14:],
    "not ip": bytes(12) + b"\x88\xb5" + bytes(1000),
}


@pytest.mark.parametrize("frame", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_leaves_others_whole(table: PortTable, ports: Records, frame: bytes) -> None:
    run = table.bpf.test_run("port_egress", frame)
    assert (run.verdict, run.frame, run.mark) == (TC_ACT_OK, frame, 0)
    assert ports["trimmed_packets"][PORT] == 0
    assert ports["enqueued_packets"][PORT] == 6


def test_segments_of_one_buffer_are_not_cut(table: PortTable, ports: Records) -> None:
    run = table.bpf.test_run("port_egress", roce(), gso_size=100, gso_segs=10)
    assert (run.verdict, run.frame) == (TC_ACT_OK, roce())


def test_trims_above_the_threshold_only(table: PortTable, ports: Records) -> None:
    frame = roce()
    ports["enqueued_bytes"][PORT] = QUEUE - len(frame)
    assert table.bpf.test_run("port_egress", frame).verdict == TC_ACT_OK
    assert table.bpf.test_run("port_egress", frame).verdict == TC_ACT_REDIRECT


def test_headers_do_not_make_data_wait(table: PortTable, ports: Records) -> None:
    ports["control_enqueued_bytes"][PORT] = QUEUE  # all that is queued are headers
    assert table.bpf.test_run("port_egress", roce()).verdict == TC_ACT_OK


def test_a_port_may_not_trim_at_all(table: PortTable, ports: Records) -> None:
    table.configs["trim_above_bytes"] = 0
    assert table.bpf.test_run("port_egress", roce()).verdict == TC_ACT_OK
    ports["enqueued_bytes"][PORT] = 2 * QUEUE
    assert table.bpf.test_run("port_egress", roce()).verdict == TC_ACT_SHOT
    assert ports["dropped_packets"][PORT, DropReason.QUEUE_LIMIT] == 1


def test_a_full_control_class_drops_under_its_own_reason(table: PortTable, ports: Records) -> None:
    frame = roce()
    ports["enqueued_bytes"][PORT] += 1000 - 64
    ports["control_enqueued_bytes"][PORT] = 1000 - 64
    first = table.bpf.test_run("port_egress", frame)
    assert first.verdict == TC_ACT_REDIRECT  # there was room for just one
    table.bpf.test_run("port_egress", first.frame, mark=first.mark)

    run = table.bpf.test_run("port_egress", frame)
    assert (run.verdict, run.frame) == (TC_ACT_SHOT, frame)
    assert ports["dropped_packets"][PORT, DropReason.CONTROL_LIMIT] == 1
    assert ports["dropped_bytes"][PORT, DropReason.CONTROL_LIMIT] == len(frame)
    assert ports["trimmed_packets"][PORT] == 1
    assert table.flow_ports[1, PORT]["dropped_packets"] == 1
    # A header from elsewhere finds no room either.
    assert table.bpf.test_run("port_egress", trimmed(frame, 64)).verdict == TC_ACT_SHOT
    assert ports["dropped_packets"][PORT, DropReason.CONTROL_LIMIT] == 2


def test_the_control_class_has_no_other_limit(table: PortTable, ports: Records) -> None:
    table.configs["control_limit_bytes"] = 0
    ports["enqueued_bytes"][PORT] = 100 * QUEUE
    ports["control_enqueued_bytes"][PORT] = 50 * QUEUE
    assert table.bpf.test_run("port_egress", roce(dscp=CONTROL)).verdict == TC_ACT_OK


def test_what_cannot_be_trimmed_is_dropped_at_the_limit(table: PortTable, ports: Records) -> None:
    ports["enqueued_bytes"][PORT] = 2 * QUEUE
    for frame in (roce(dscp=0), UNTOUCHED["shorter"]):
        assert table.bpf.test_run("port_egress", frame).verdict == TC_ACT_SHOT
    assert ports["dropped_packets"][PORT, DropReason.QUEUE_LIMIT] == 2
    assert table.bpf.test_run("port_egress", roce()).verdict == TC_ACT_REDIRECT


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [("blackhole", 1, "BLACKHOLE"), ("loss_per_million", 10**6, "FAULT_LOSS")],
)
def test_faults_come_first_and_once(
    table: PortTable, ports: Records, setting: str, value: int, reason: str
) -> None:
    run = table.bpf.test_run("port_egress", roce())
    table.configs[setting] = value
    assert table.bpf.test_run("port_egress", roce()).verdict == TC_ACT_STOLEN
    # The one that was trimmed has passed the fault before it was.
    assert table.bpf.test_run("port_egress", run.frame, mark=run.mark).verdict == TC_ACT_OK
    assert ports["dropped_packets"][PORT].sum() == 1
    assert ports["dropped_packets"][PORT, DropReason[reason]] == 1


def test_a_mark_alone_does_not_pass_the_limits(table: PortTable, ports: Records) -> None:
    mark = table.bpf.test_run("port_egress", roce()).mark
    ports["enqueued_bytes"][PORT] = 2 * QUEUE
    assert table.bpf.test_run("port_egress", roce(dscp=0), mark=mark).verdict == TC_ACT_SHOT


def is_runnable(frame: bytes) -> bool:
    """Tell whether the kernel takes the frame for a test run: not without its whole IP header."""
    header_bytes = {b"\x08\x00": 20, b"\x86\xdd": 40}.get(frame[12:14], 0)
    return len(frame) >= 14 + header_bytes


def cut_and_overwritten(frame: bytes) -> st.SearchStrategy[bytes]:
    """Return frames like `frame` with up to four header bytes replaced and the end cut off."""
    changes = st.dictionaries(st.integers(12, 100), st.integers(0, 255), max_size=4)

    def change(new: dict[int, int], length: int) -> bytes:
        return bytes(new.get(at, byte) for at, byte in enumerate(frame))[:length]

    return st.builds(change, changes, st.integers(14, len(frame)))


ANY_FRAME = st.one_of(
    st.binary(min_size=14, max_size=256),
    *(cut_and_overwritten(frame) for frame in (roce(payload=100), roce(6, payload=100))),
).filter(is_runnable)


def test_any_frame_stays_whole_or_becomes_a_sound_header(table: PortTable, ports: Records) -> None:
    cut = whole = 0

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(ANY_FRAME)
    def check(frame: bytes) -> None:
        nonlocal cut, whole
        ports["enqueued_bytes"][PORT] = QUEUE
        ports["control_enqueued_bytes"][PORT] = 0
        run = table.bpf.test_run("port_egress", frame)
        if run.verdict == TC_ACT_OK:
            whole += 1
            assert run.frame == frame
            return
        cut += 1
        assert run.verdict == TC_ACT_REDIRECT
        left = run.frame
        assert 54 <= len(left) < len(frame)
        assert left == trimmed_by_hand(frame, len(left))

    check()
    assert cut > 30
    assert whole > 30


def trimmed_by_hand(frame: bytes, kept: int) -> bytes:
    """Return what is left of a frame whose headers may be nonsense, checksum differences apart."""
    left = bytearray(frame[:kept])
    if frame[12:14] == b"\x08\x00":
        udp = 14 + (frame[14] & 15) * 4
        new = {15: TRIMMED << 2 | frame[15] & 3}
        new |= dict(zip((16, 17), (kept - 14).to_bytes(2, "big"), strict=True))
    else:
        udp = 54
        new = {14: frame[14] & 0xF0 | TRIMMED >> 2}
        new[15] = (TRIMMED & 3) << 6 | frame[15] & 0x3F
        new |= dict(zip((18, 19), (kept - 54).to_bytes(2, "big"), strict=True))
    for at, byte in new.items():
        left[at] = byte
    left[udp + 4 : udp + 8] = (kept - udp).to_bytes(2, "big") + bytes(2)
    if udp != 54:
        # RFC 1624: a right checksum stays right, and a wrong one wrong by the same.
        old_sum, new_sum = (ones_sum(packet[14:24] + packet[26:udp]) for packet in (frame, left))
        checksum = int.from_bytes(frame[24:26], "big")
        fixed = folded((~checksum & 0xFFFF) + (~old_sum & 0xFFFF) + new_sum)
        left[24:26] = (~fixed & 0xFFFF).to_bytes(2, "big")
    return bytes(left)


def ones_sum(data: bytes | bytearray) -> int:
    return folded(sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)))


def folded(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
