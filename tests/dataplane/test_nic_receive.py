"""What a NIC takes of what comes: RoCEv2 frames with the right ICRC, and all that has none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_emu.switch.ports import PortConstants, PortTable, dscp_bits
from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.layout import IPV4, IPV4_FRAGMENT, IPV6, PAYLOAD_BYTE, Opcode, ip_layout
from fabric_emu.wire.mrc_layout import MrcOpcode
from fabric_emu.wire.rocev2 import Envelope, acknowledge_frame, cnp_frame, write_frame

pytestmark = pytest.mark.root

PORT, PEER = 2, 3
TRIMMED_DSCP = 5
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=4,
    trimmed_dscps=dscp_bits(TRIMMED_DSCP),
)
LONGEST = 3000
"""A test run takes what fits a page."""


@pytest.fixture(scope="module", params=[0, 1], ids=["trusting", "reading"])
def table(request: pytest.FixtureRequest) -> Iterator[PortTable]:
    values = {**vars(CONSTANTS), "check_payloads": request.param}
    with PortTable(PortConstants(**values)) as table:
        yield table


def takes(table: PortTable, frame: bytes) -> bool:
    """Tell whether the NIC takes a frame; what it refuses it counts at the other end's port."""
    before = table.ports["icrc_errors"].copy()
    # A socket's filter is run on what follows the Ethernet header, but a packet socket's on all.
    kept = table.bpf.test_run("nic_receive", bytes(14) + frame).verdict
    assert kept in (0, len(frame))
    counted = np.zeros(4, np.uint64)
    counted[PEER] = not kept
    assert (table.ports["icrc_errors"] - before == counted).all()
    return kept > 0


def envelope(version: int, dscp: int = 10) -> Envelope:
    first, second = ("10.0.0.1", "10.0.0.2") if version == 4 else ("fd00::1", "fd00::2")
    return Envelope(
        source_mac="02:00:00:00:00:01",
        destination_mac="02:00:00:00:00:02",
        source=first,
        destination=second,
        source_port=0xC123,
        dscp=dscp,
        flow_label=0x12345,
    )


def data(version: int, size: int, opcode: int = Opcode.RC_SEND_MIDDLE, dscp: int = 10) -> bytes:
    payload = bytes(range(8)) + PAYLOAD_BYTE * LONGEST
    way = envelope(version, dscp)
    return bytes(write_frame(way, qpn=0x123, psn=77, payload=payload[:size], opcode=opcode))


VERSIONS = pytest.mark.parametrize("version", [4, 6])
OPCODES = (Opcode.RC_SEND_LAST, Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, MrcOpcode.WRITE_FIRST)


@VERSIONS
@pytest.mark.parametrize("size", [0, 1, 4, 8, 27, 32, 36, 252, 2047, 2048, 2304, LONGEST])
def test_right_frames_are_taken_and_wrong_ones_not(
    table: PortTable, version: int, size: int
) -> None:
    for opcode in OPCODES:
        frame = data(version, size, int(opcode))
        assert takes(table, frame)
        for bit in range(32):
            wrong = int.from_bytes(frame[-4:], "little") ^ 1 << bit
            assert not takes(table, frame[:-4] + wrong.to_bytes(4, "little"))


@VERSIONS
def test_control_packets_are_taken(table: PortTable, version: int) -> None:
    for frame in (
        acknowledge_frame(envelope(version), qpn=5, psn=6),
        cnp_frame(envelope(version), qpn=5),
    ):
        assert takes(table, bytes(frame))
        assert not takes(table, bytes(frame)[:-1] + b"\0")


@VERSIONS
def test_every_bit_of_the_headers_counts_but_those_that_change_on_the_way(
    table: PortTable, version: int
) -> None:
    frame = data(version, 100)
    layout = IPV4 if version == 4 else IPV6
    variant = dict(layout.masked)
    ports = range(layout.udp + 2, layout.udp + 4)  # another port: no RoCEv2
    # Parts of a datagram are none either: "more fragments" and the offset.
    fragment = {IPV4_FRAGMENT: 0x3F, IPV4_FRAGMENT + 1: 0xFF} if version == 4 else {}
    for at in range(14, layout.udp + 8 + 12):
        for bit in range(8):
            changed = bytearray(frame)
            changed[at] ^= 1 << bit
            try:
                ip_layout(changed)
            except ValueError:
                assert at < layout.udp or at in ports  # what it has become is no RoCEv2
                continue
            free = variant.get(at, 0) | fragment.get(at, 0)
            assert takes(table, bytes(changed)) is bool(free & 1 << bit)


@VERSIONS
def test_payload_bytes_count_where_they_are_read(table: PortTable, version: int) -> None:
    frame = data(version, 1000)
    start = len(frame) - 4 - 1000
    for at in range(start, start + 1000):
        changed = bytearray(frame)
        changed[at] ^= 1
        # The send time and what comes with it is read at all times.
        unread = at >= start + 32 and not table.constants.check_payloads
        assert takes(table, bytes(changed)) is unread


@VERSIONS
@settings(max_examples=30, deadline=None)
@given(payload=st.binary(max_size=600))
def test_any_payload_with_its_icrc_is_taken(table: PortTable, version: int, payload: bytes) -> None:
    frame = bytes(write_frame(envelope(version), qpn=1, psn=2, payload=payload))
    assert int.from_bytes(frame[-4:], "little") == icrc(frame)
    assert takes(table, frame)


@VERSIONS
def test_no_length_leads_astray(table: PortTable, version: int) -> None:
    frame = data(version, 100)
    at = (IPV4 if version == 4 else IPV6).udp + 4
    right = int.from_bytes(frame[at : at + 2], "big")
    for length in [*range(200), 0x7FFF, 0xFFFC, 0xFFFF]:
        changed = frame[:at] + length.to_bytes(2, "big") + frame[at + 2 :]
        assert takes(table, changed) is (length == right)
    for cut in range(at + 4, len(frame)):
        assert not takes(table, frame[:cut])


@VERSIONS
def test_what_has_no_icrc_is_taken(table: PortTable, version: int) -> None:
    trimmed = data(version, 100, dscp=TRIMMED_DSCP)[:-60]
    assert takes(table, trimmed)
    udp = (IPV4 if version == 4 else IPV6).udp
    whole = data(version, 100)
    other_port = whole[: udp + 2] + (4793).to_bytes(2, "big") + whole[udp + 4 : -1] + b"\0"
    assert takes(table, other_port)
    assert takes(table, bytes(12) + b"\x88\xb5" + bytes(50))
    assert takes(table, bytes(14))
