"""Received rows to columns: what was put into frames comes out, and nothing else passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from fabric_emu.wire.decode import MINIMUM_WIDTH, decode
from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.rocev2 import (
    BTH,
    Envelope,
    Opcode,
    acknowledge_frame,
    cnp_frame,
    write_frame,
)
from fabric_emu.wire.template import FrameTemplates

IPV4 = Envelope(
    source_mac="02:00:00:00:00:01",
    destination_mac="02:00:00:00:00:02",
    source="10.0.0.1",
    destination="10.0.0.2",
    source_port=0xC123,
)
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1")
BOTH = pytest.mark.parametrize("envelope", [IPV4, IPV6], ids=["IPv4", "IPv6"])
STAMPED = (0x0102030405060708).to_bytes(8, "big") + bytes(56)


def rows_of(
    frames: list[Packet | bytes], width: int = 128
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return rows as a ring holds them, with stale bytes behind short frames, and lengths."""
    rows = np.full((len(frames), width), 0xEE, dtype=np.uint8)
    lengths = np.empty(len(frames), dtype=np.int64)
    for row, frame in zip(range(len(frames)), map(bytes, frames), strict=True):
        rows[row, : min(width, len(frame))] = np.frombuffer(frame[:width], dtype=np.uint8)
        lengths[row] = len(frame)
    return rows, lengths


opcodes = st.sampled_from(
    [
        Opcode.RC_RDMA_WRITE_ONLY,
        Opcode.RC_RDMA_WRITE_MIDDLE,
        Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        Opcode.RC_SEND_LAST_WITH_IMMEDIATE,
        Opcode.UC_RDMA_WRITE_FIRST,
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.fixed_dictionaries(
            {
                "envelope": st.sampled_from([IPV4, IPV6]),
                "port": st.integers(0, 0xFFFF),
                "dscp": st.integers(0, 63),
                "ecn": st.integers(0, 3),
                "label": st.integers(0, 0xFFFFF),
                "opcode": opcodes,
                "qpn": st.integers(0, 0xFFFFFF),
                "psn": st.integers(0, 0xFFFFFF),
                "ack": st.booleans(),
                "byte4": st.integers(0, 255),
                "address": st.integers(0, 2**64 - 1),
                "send_ns": st.integers(0, 2**64 - 1),
                "size": st.integers(8, 100),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_field_comes_back(data: list[dict[str, Any]]) -> None:
    frames: list[Packet | bytes] = []
    for each in data:
        envelope = replace(
            each["envelope"], source_port=each["port"], dscp=each["dscp"], ecn=each["ecn"],
            flow_label=each["label"],
        )  # fmt: skip
        frame = write_frame(
            envelope, opcode=each["opcode"], qpn=each["qpn"], psn=each["psn"],
            ack_request=each["ack"], address=each["address"],
            payload=each["send_ns"].to_bytes(8, "big") + bytes(each["size"] - 8),
        )  # fmt: skip
        bth = frame[BTH]
        bth.fecn, bth.becn, bth.resv6 = each["byte4"] >> 7, each["byte4"] >> 6, each["byte4"]
        frames.append(frame)
    columns = decode(*rows_of(frames))
    assert columns.is_rocev2.all()
    assert len(columns) == len(data)
    for row, each in enumerate(data):
        assert columns.source_port[row] == each["port"]
        assert columns.dscp[row] == each["dscp"]
        assert columns.ecn[row] == each["ecn"]
        assert columns.flow_label[row] == (each["label"] if each["envelope"] is IPV6 else 0)
        assert columns.opcode[row] == each["opcode"]
        assert columns.qpn[row] == each["qpn"]
        assert columns.psn[row] == each["psn"]
        assert columns.ack_request[row] == each["ack"]
        assert columns.fecn[row] == (each["byte4"] >= 0x80)
        assert columns.becn[row] == (each["byte4"] >> 6 & 1)
        assert columns.path_stamp[row] == each["byte4"] & 0x3F
        assert columns.send_ns[row] == each["send_ns"]
        assert columns.payload_length[row] == each["size"]
        if each["opcode"] in (Opcode.RC_RDMA_WRITE_ONLY, Opcode.UC_RDMA_WRITE_FIRST):
            assert columns.address[row] == each["address"]
            assert columns.dma_length[row] == each["size"]


def test_columns_have_the_dtypes_they_promise() -> None:
    columns = decode(*rows_of([write_frame(IPV4, qpn=1, psn=2, payload=STAMPED)]))
    expected = {
        "dscp": "u1", "ecn": "u1", "flow_label": "u4", "source_port": "u2", "opcode": "u1",
        "qpn": "u4", "psn": "u4", "ack_request": "?", "path_stamp": "u1", "fecn": "?",
        "becn": "?", "payload_length": "i4", "send_ns": "u8", "syndrome": "u1", "msn": "u4",
        "address": "u8", "dma_length": "u4",
    }  # fmt: skip
    assert {name: getattr(columns, name).dtype for name in expected} == {
        name: np.dtype(code) for name, code in expected.items()
    }


@BOTH
def test_acknowledges_and_cnps_have_no_send_time(envelope: Envelope) -> None:
    frames = [acknowledge_frame(envelope, qpn=5, psn=6, syndrome=0x60, msn=0x123456)]
    columns = decode(*rows_of([*frames, cnp_frame(envelope, qpn=7)]))
    assert columns.is_rocev2.all()
    assert (columns.syndrome[0], columns.msn[0]) == (0x60, 0x123456)
    assert columns.opcode.tolist() == [0x11, 0x81]
    assert columns.becn.tolist() == [False, True]
    assert columns.send_ns.tolist() == [0, 0]
    assert columns.payload_length.tolist() == [0, 0]


def test_other_traffic_is_not_rocev2() -> None:
    good = write_frame(IPV4, qpn=1, psn=2, payload=STAMPED)
    options, fragment, other_port = (bytearray(bytes(good)) for _ in range(3))
    options[14] = 0x46
    fragment[20] |= 0x20
    other_port[37] ^= 1
    tcp4 = good.copy()
    tcp4["IP"].payload = TCP(sport=1, dport=4791) / Raw(STAMPED)
    tcp6 = write_frame(IPV6, qpn=1, psn=2, payload=STAMPED)
    tcp6["IPv6"].payload = TCP(sport=1, dport=4791) / Raw(STAMPED)
    # A length field that leaves no room for a BTH.
    hollow = IPV4.frame()
    hollow[UDP].add_payload(Raw(bytes(4)))
    bad: list[Packet | bytes]
    bad = [Ether() / ARP(), bytes(options), bytes(fragment), bytes(other_port), tcp4, tcp6, hollow]
    columns = decode(*rows_of([good, *bad, good]))
    assert columns.is_rocev2.tolist() == [True, *[False] * len(bad), True]
    assert columns.send_ns[1:-1].tolist() == [0] * len(bad)


@pytest.mark.parametrize(("envelope", "udp"), [(IPV4, 34), (IPV6, 54)])
def test_rows_cut_short_lose_what_they_no_longer_hold(envelope: Envelope, udp: int) -> None:
    frame = bytes(write_frame(envelope, qpn=1, psn=2, payload=STAMPED))
    # UDP 8 + BTH 12 = 20; the send time ends after RETH 16 and its own 8.
    cuts = [udp + 19, udp + 20, udp + 43, udp + 44]
    rows, lengths = rows_of([frame] * 4)
    lengths[:] = cuts
    # Who cuts a packet on its way says so in its length; else it is no whole datagram.
    assert not decode(rows, lengths).is_rocev2.any()
    rows[:, udp + 4 : udp + 6] = (lengths - udp).astype(">u2").view(np.uint8).reshape(-1, 2)
    columns = decode(rows, lengths)
    assert columns.is_rocev2.tolist() == [False, True, True, True]
    assert columns.send_ns.tolist() == [0, 0, 0, 0x0102030405060708]
    assert columns.psn[1:].tolist() == [2, 2, 2]


def test_a_trimmed_packets_stale_send_time_is_not_read() -> None:
    # A switch that trims to 64 bytes mends the UDP length; the ring's slot still holds old bytes.
    frame = bytearray(bytes(write_frame(IPV4, qpn=1, psn=2, payload=STAMPED)))
    frame[38:40] = (64 - 34).to_bytes(2, "big")
    columns = decode(rows_of([bytes(frame)])[0])
    assert columns.is_rocev2.tolist() == [True]
    assert columns.send_ns.tolist() == [0]


@BOTH
def test_narrowest_rows_hold_the_send_time_behind_a_reth(envelope: Envelope) -> None:
    frame = write_frame(envelope, qpn=1, psn=2, payload=STAMPED)
    rows, lengths = rows_of([frame] * 2, width=MINIMUM_WIDTH)
    assert decode(rows, lengths).send_ns.tolist() == [0x0102030405060708] * 2
    with pytest.raises(ValueError, match="at least 98"):
        decode(rows[:, :-1])


def test_result_does_not_refer_to_the_ring() -> None:
    for envelopes in ([IPV4, IPV4], [IPV6, IPV6], [IPV4, IPV6]):
        frames = [write_frame(each, qpn=1, psn=2, payload=STAMPED) for each in envelopes]
        rows, lengths = rows_of([*frames])
        columns = decode(rows, lengths)
        rows[:] = 0
        lengths[:] = 0
        assert columns.psn.tolist() == [2, 2]
        assert columns.ecn.tolist() == [2, 2]
        assert columns.send_ns.tolist() == [0x0102030405060708] * 2


def test_no_rows_give_empty_columns() -> None:
    columns = decode(np.empty((0, 128), dtype=np.uint8))
    assert len(columns) == 0
    assert columns.send_ns.tolist() == columns.psn.tolist() == columns.dscp.tolist() == []


@BOTH
def test_what_the_templates_build_is_what_is_decoded(envelope: Envelope) -> None:
    rng = np.random.default_rng(3)
    frames = [write_frame(envelope, qpn=flow, psn=0, payload=STAMPED) for flow in range(8)]
    templates = FrameTemplates(frames)
    flow = rng.integers(0, 8, 1000)
    port = rng.integers(0, 1 << 16, 1000)
    psn = rng.integers(0, 1 << 24, 1000)
    send_ns = rng.integers(0, 1 << 62, 1000)
    address = rng.integers(0, 1 << 62, 1000)
    built = templates.build(flow, port, psn, send_ns, address=address)
    columns = decode(templates.assemble(*built))
    assert columns.is_rocev2.all()
    for got, put in (
        (columns.qpn, flow),
        (columns.source_port, port),
        (columns.psn, psn),
        (columns.send_ns, send_ns),
        (columns.address, address),
    ):
        assert (got == put).all()


@BOTH
def test_a_path_stamp_written_on_the_way_leaves_the_icrc_valid(envelope: Envelope) -> None:
    frame = bytearray(bytes(write_frame(envelope, qpn=1, psn=2, payload=STAMPED)))
    frame[(34 if envelope is IPV4 else 54) + 12] |= 0x2A
    assert icrc(frame) == int.from_bytes(frame[-4:], "little")
    columns = decode(*rows_of([bytes(frame)]))
    assert columns.path_stamp.tolist() == [0x2A]
    assert not columns.fecn.any()
    assert not columns.becn.any()
