"""Frames in bulk: byte for byte what scapy builds, whatever the columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.packet import Packet

from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.rocev2 import (
    AETH,
    BTH,
    RETH,
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
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1", flow_label=0x12345)
BOTH = pytest.mark.parametrize("envelope", [IPV4, IPV6], ids=["IPv4", "IPv6"])


def payload(size: int, send_ns: int = 0) -> bytes:
    """Return a payload of ``size`` bytes that opens with the send time."""
    return send_ns.to_bytes(8, "big") + bytes(index * 7 % 256 for index in range(size - 8))


def flow_frame(envelope: Envelope, flow: int, size: int, opcode: int) -> Packet:
    """Return flow number ``flow``'s template, different from the others in every header."""
    last = ":" if ":" in envelope.destination else "."
    source = f"{envelope.source.rpartition(last)[0]}{last}{flow + 1}"
    own = replace(envelope, source=source, destination_mac=f"02:00:00:00:01:{flow:02x}", dscp=flow)
    return write_frame(
        own,
        opcode=opcode,
        qpn=100 + flow,
        psn=flow,
        payload=payload(size, 99),
        address=flow << 32,
        r_key=flow,
        ack_request=flow % 2 == 1,
    )


@BOTH
@pytest.mark.parametrize("size", [64, 1024, 4096, 8, 9, 61, 1023])
@pytest.mark.parametrize("opcode", [Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_RDMA_WRITE_MIDDLE])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_batch_is_byte_for_byte_what_scapy_builds(
    envelope: Envelope, size: int, opcode: Opcode, data: st.DataObject
) -> None:
    frames = [flow_frame(envelope, flow, size, opcode) for flow in range(3)]
    templates = FrameTemplates(frames)
    packets = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 2),
                st.integers(0, 0xFFFF),
                st.integers(0, 0xFFFFFF),
                st.integers(0, 2**64 - 1),
            ),
            min_size=1,
            max_size=4,
        )
    )
    flow, port, psn = np.array([packet[:3] for packet in packets]).T
    send_ns = np.array([packet[3] for packet in packets], dtype=np.uint64)
    built = templates.assemble(*templates.build(flow, port, psn, send_ns))
    for row, packet in zip(built, packets, strict=True):
        expected = frames[packet[0]].copy()
        expected["UDP"].sport = packet[1]
        expected[BTH].psn = packet[2]
        pad = bytes(-size % 4)
        expected["Raw"].load = payload(size, packet[3]) + pad
        assert row.tobytes() == bytes(expected)
        assert icrc(row.tobytes()) == int.from_bytes(row[-4:].tobytes(), "little")


@pytest.mark.parametrize(
    ("envelope", "opcode", "header_length"),
    [
        (IPV4, Opcode.RC_RDMA_WRITE_ONLY, 78),
        (IPV6, Opcode.RC_RDMA_WRITE_ONLY, 98),
        (IPV4, Opcode.RC_RDMA_WRITE_MIDDLE, 62),
        (IPV6, Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 102),
    ],
)
def test_header_reaches_to_the_end_of_the_send_time(
    envelope: Envelope, opcode: Opcode, header_length: int
) -> None:
    frame = write_frame(envelope, opcode=opcode, qpn=1, psn=0, payload=payload(1024))
    templates = FrameTemplates([frame, frame])
    whole = bytes(frame)
    assert templates.header_length == header_length
    assert templates.length == len(whole)
    assert templates.headers.tobytes() == whole[:header_length] * 2
    assert templates.payload.tobytes() == whole[header_length:-4] == payload(1024)[8:]


@BOTH
def test_address_ack_request_and_flow_label_columns(envelope: Envelope) -> None:
    frames = [flow_frame(envelope, flow, 256, Opcode.RC_RDMA_WRITE_ONLY) for flow in range(2)]
    templates = FrameTemplates(frames)
    flow = np.array([1, 0, 1])
    address = np.array([0, 2**64 - 1, 0x0123456789ABCDEF], dtype=np.uint64)
    ack = np.array([True, False, False])
    label = np.array([0xFFFFF, 0, 0x54321])
    built = templates.assemble(
        *templates.build(
            flow, 0xD000, np.arange(3), 5, address=address, ack_request=ack,
            flow_label=label if envelope is IPV6 else None,
        )
    )  # fmt: skip
    for index, row in enumerate(built):
        expected = frames[flow[index]].copy()
        expected["UDP"].sport = 0xD000
        expected[BTH].psn, expected[BTH].ackreq = index, int(ack[index])
        expected[RETH].address = int(address[index])
        expected["Raw"].load = payload(256, 5)
        if envelope is IPV6:
            expected["IPv6"].fl = int(label[index])
        assert row.tobytes() == bytes(expected)


@BOTH
def test_columns_left_out_keep_the_templates_bytes(envelope: Envelope) -> None:
    frame = flow_frame(envelope, 1, 256, Opcode.RC_RDMA_WRITE_ONLY)
    templates = FrameTemplates([frame])
    rows, crc = templates.build(np.zeros(1, dtype=int), None, frame[BTH].psn, None)
    assert templates.assemble(rows, crc)[0].tobytes() == bytes(frame)


def test_psn_wraps_at_24_bits() -> None:
    templates = FrameTemplates([flow_frame(IPV4, 0, 64, Opcode.RC_RDMA_WRITE_ONLY)])
    flow = np.zeros(2, dtype=int)
    over, over_icrc = templates.build(flow, None, np.array([1 << 24, (1 << 24) + 70_000]), 1)
    wrapped, wrapped_icrc = templates.build(flow, None, np.array([0, 70_000]), 1)
    assert (over == wrapped).all()
    assert (over_icrc == wrapped_icrc).all()


@BOTH
def test_acknowledges_and_cnps_in_bulk(envelope: Envelope) -> None:
    frames = [acknowledge_frame(envelope, qpn=qpn, psn=0) for qpn in range(2)]
    templates = FrameTemplates(frames)
    aeth = np.array([0x60 << 24 | 5, 0x1F << 24 | 0xFFFFFF])
    built = templates.assemble(
        *templates.build(np.array([1, 0]), None, np.array([7, 0xFFFFFF]), None, aeth=aeth)
    )
    for row, qpn, psn, word in zip(built, (1, 0), (7, 0xFFFFFF), aeth, strict=True):
        expected = frames[qpn].copy()
        expected[BTH].psn = psn
        expected[AETH].syndrome, expected[AETH].msn = int(word) >> 24, int(word) & 0xFFFFFF
        assert row.tobytes() == bytes(expected)
    cnp = FrameTemplates([cnp_frame(envelope, qpn=9)])
    rows, crc = cnp.build(np.zeros(3, dtype=int), None, 0, None)
    assert cnp.assemble(rows, crc).tobytes() == bytes(cnp_frame(envelope, qpn=9)) * 3


def test_rows_are_written_in_place_into_a_strided_ring() -> None:
    frames = [flow_frame(IPV4, flow, 64, Opcode.RC_RDMA_WRITE_ONLY) for flow in range(4)]
    templates = FrameTemplates(frames)
    ring = np.full((16, 256), 0xEE, dtype=np.uint8)
    slots = ring[4:10, 32 : 32 + templates.header_length]
    columns = (np.arange(6) % 4, np.arange(6) + 0xC000, np.arange(6), np.arange(6) + 10**18)
    rows, crc = templates.build(*columns, slots)
    fresh, fresh_crc = templates.build(*columns)
    assert np.shares_memory(rows, ring)
    assert (slots == fresh).all()
    assert (crc == fresh_crc).all()
    untouched = np.ones(ring.shape, dtype=bool)
    untouched[4:10, 32 : 32 + templates.header_length] = False
    assert (ring[untouched] == 0xEE).all()


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_batches_of_any_size(count: int) -> None:
    templates = FrameTemplates([flow_frame(IPV6, 0, 64, Opcode.RC_RDMA_WRITE_ONLY)])
    flow: npt.NDArray[np.int64] = np.zeros(count, dtype=np.int64)
    rows, crc = templates.build(flow, 0xC000, np.arange(count), 1)
    whole = templates.assemble(rows, crc)
    assert whole.shape == (count, templates.length)
    assert crc.dtype == np.dtype("<u4")
    assert [icrc(row.tobytes()) for row in whole[::500]] == crc[::500].tolist()


def test_frames_that_do_not_fit_together_are_refused() -> None:
    usual = write_frame(IPV4, qpn=1, psn=0, payload=payload(64))
    with pytest.raises(ValueError, match=r"\[138, 142\]"):
        FrameTemplates([usual, write_frame(IPV4, qpn=1, psn=0, payload=payload(68))])
    with pytest.raises(ValueError, match="same headers"):
        FrameTemplates([usual, write_frame(IPV6, qpn=1, psn=0, payload=payload(44))])
    send = write_frame(IPV4, opcode=Opcode.RC_SEND_ONLY, qpn=1, psn=0, payload=payload(80))
    with pytest.raises(ValueError, match="same headers"):
        FrameTemplates([usual, send])
    with pytest.raises(ValueError, match="same payload"):
        FrameTemplates([usual, write_frame(IPV4, qpn=1, psn=0, payload=b"z" * 64)])
    with pytest.raises(ValueError, match="one length"):
        FrameTemplates([])
    with pytest.raises(ValueError, match="BTH"):
        FrameTemplates([IPV4.frame()])


def test_columns_without_a_field_are_refused() -> None:
    flow = np.zeros(1, dtype=int)
    write = FrameTemplates([write_frame(IPV4, qpn=1, psn=0, payload=payload(64))])
    acknowledge = FrameTemplates([acknowledge_frame(IPV4, qpn=1, psn=0)])
    with pytest.raises(ValueError, match="RETH have no aeth"):
        write.build(flow, None, 0, None, aeth=1)
    with pytest.raises(ValueError, match="no flow_label"):
        write.build(flow, None, 0, None, flow_label=1)
    with pytest.raises(ValueError, match="AETH have no send_ns"):
        acknowledge.build(flow, None, 0, 1)
    with pytest.raises(ValueError, match="no address"):
        acknowledge.build(flow, None, 0, None, address=1)
    with pytest.raises(IndexError):
        write.build(np.array([1]), None, 0, None)
