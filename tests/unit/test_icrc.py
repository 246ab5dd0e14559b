"""The invariant CRC: against scapy's, against known bytes, and in bulk against one by one."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_emu.wire.icrc import byte_tables, icrc
from fabric_emu.wire.layout import ip_layout
from fabric_emu.wire.rocev2 import BTH, Envelope, Opcode, acknowledge_frame, cnp_frame, write_frame
from fabric_emu.wire.row_icrc import BatchIcrc, fillings, icrc_masks, row_icrc

IPV4 = Envelope(
    source_mac="02:00:00:00:00:01",
    destination_mac="02:00:00:00:00:02",
    source="10.0.0.1",
    destination="10.0.0.2",
    source_port=0xC123,
)
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1")
BOTH = pytest.mark.parametrize("envelope", [IPV4, IPV6], ids=["IPv4", "IPv6"])


def stored(frame: bytes) -> int:
    return int.from_bytes(frame[-4:], "little")


def test_known_frame() -> None:
    # IPv4 10.0.0.1 to 10.0.0.2, identification 1, do not fragment, TTL 64; UDP 0xc123 to 4791;
    # BTH SEND ONLY to queue pair 0x11, PSN 0x1234 with AckReq; 64 times "A".
    frame = bytes.fromhex(
        "020000000002 020000000001 0800"
        "4500006c 00014000 40110000 0a000001 0a000002"
        "c123 12b7 0058 0000"
        "0400ffff 00000011 80001234"
    )
    frame += b"A" * 64 + bytes(4)
    assert icrc(frame).to_bytes(4, "little") == bytes.fromhex("c198ce21")


def test_pseudo_header_gives_the_crc_state_that_rxe_starts_from() -> None:
    # drivers/infiniband/sw/rxe/rxe_icrc.c, RXE_CRC_SEED: without the final complement.
    assert zlib.crc32(b"\xff" * 8) ^ 0xFFFFFFFF == 0xDEBB20E3


@BOTH
@settings(max_examples=40, deadline=None)
@given(
    payload=st.binary(max_size=300),
    port=st.integers(0, 0xFFFF),
    psn=st.integers(0, 0xFFFFFF),
    opcode=st.sampled_from([Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_SEND_MIDDLE]),
)
def test_icrc_is_scapys(
    envelope: Envelope, payload: bytes, port: int, psn: int, opcode: Opcode
) -> None:
    frame = write_frame(envelope, opcode=opcode, qpn=7, psn=psn, payload=payload)
    frame["UDP"].sport = port
    wire = bytes(frame)
    assert icrc(wire) == stored(wire)


@BOTH
def test_icrc_of_acknowledge_and_cnp_is_scapys(envelope: Envelope) -> None:
    for frame in (acknowledge_frame(envelope, qpn=7, psn=1), cnp_frame(envelope, qpn=7)):
        wire = bytes(frame)
        assert icrc(wire) == stored(wire)


@BOTH
def test_path_stamp_congestion_bits_and_what_routers_change_leave_the_icrc_alone(
    envelope: Envelope,
) -> None:
    frame = write_frame(envelope, qpn=7, psn=1, payload=b"x" * 64)
    before = icrc(bytes(frame))
    bth = frame[BTH]
    bth.fecn, bth.becn, bth.resv6 = 1, 1, 0x2A
    ip = frame.payload
    if envelope is IPV4:
        ip.ttl, ip.tos = 3, 0xFF
    else:
        ip.hlim, ip.tc, ip.fl = 3, 0xFF, 0x98765
    changed = bytes(frame)
    assert icrc(changed) == stored(changed) == before


@BOTH
def test_source_port_and_padding_count_towards_the_icrc_but_ethernet_padding_does_not(
    envelope: Envelope,
) -> None:
    wire = bytes(write_frame(envelope, qpn=7, psn=1, payload=b"x" * 5))
    assert icrc(wire + bytes(6)) == icrc(wire)
    udp = 34 if envelope is IPV4 else 54
    for offset in (udp, len(wire) - 5):
        other = bytearray(wire)
        other[offset] ^= 1
        assert icrc(other) != icrc(wire)


def test_only_whole_rocev2_frames_have_an_icrc() -> None:
    wire = bytes(write_frame(IPV4, qpn=7, psn=1, payload=b"x" * 64))
    with pytest.raises(ValueError, match="of 138 bytes"):
        icrc(wire[:-1])
    with pytest.raises(ValueError, match="too few"):
        icrc(wire[:50])
    with pytest.raises(ValueError, match="port 4791"):
        icrc(wire[:36] + b"\x12\xb8" + wire[38:])
    with pytest.raises(ValueError, match="not a RoCEv2 frame"):
        icrc(wire[:12] + b"\x08\x06" + wire[14:])


@settings(max_examples=50, deadline=None)
@given(message=st.binary(min_size=8, max_size=8), tail=st.integers(0, 5000))
def test_byte_tables_give_the_difference_from_zero(message: bytes, tail: int) -> None:
    tables = byte_tables([7 + tail, tail])
    blank = bytes(1) + message[1:7] + bytes(1 + tail)
    whole = message + bytes(tail)
    change = int(tables[0, message[0]] ^ tables[1, message[-1]])
    assert zlib.crc32(blank) ^ change == zlib.crc32(whole)


@BOTH
def test_batch_equals_one_by_one(envelope: Envelope) -> None:
    rng = np.random.default_rng(11)
    frames = np.stack(
        [
            np.frombuffer(bytes(write_frame(envelope, qpn=q, psn=0, payload=b"x" * 257)), np.uint8)
            for q in range(5)
        ]
    )
    places = [34, 35, 52, 71, 120] if envelope is IPV4 else [54, 55, 72, 91, 140]
    batch = BatchIcrc(frames, places)
    flow = rng.integers(0, 5, size=200)
    rows = frames[flow]
    for place in places:
        rows[:, place] = rng.integers(0, 256, size=200)
    assert batch.icrc(flow, rows).tolist() == [icrc(row.tobytes()) for row in rows]
    sent = pickle.dumps(batch)
    assert len(sent) < 1 << 16
    assert pickle.loads(sent).icrc(flow, rows).tolist() == batch.icrc(flow, rows).tolist()


@BOTH
@settings(max_examples=40, deadline=None)
@given(
    words=st.integers(0, 1100),
    row_words=st.integers(0, 20),
    fill=st.integers(0, 0xFF),
    port=st.integers(0, 0xFFFF),
)
def test_of_filled_frames_the_first_bytes_tell(
    envelope: Envelope, words: int, row_words: int, fill: int, port: int
) -> None:
    frame = write_frame(envelope, qpn=7, psn=1, payload=bytes([fill]) * 4 * words)
    frame["UDP"].sport = port
    wire = bytes(frame)
    layout = ip_layout(wire)
    headers = len(wire) - 4 * words - 4
    row = np.full(headers + 4 * row_words, 0xEE, np.uint8)
    kept = wire[:-4][: len(row)]
    row[: len(kept)] = np.frombuffer(kept, np.uint8)
    masks = icrc_masks(layout, len(row))
    assert row_icrc(row, len(wire), masks, fillings(1100, fill)) == stored(wire)
