"""Ultra Ethernet on the wire: layers have the bytes of the specification, columns read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fabric_emu.wire.decode import decode
from fabric_emu.wire.rocev2 import Envelope, write_frame
from fabric_emu.wire.uet import (
    PdsAck,
    PdsAckCc,
    PdsControl,
    PdsNack,
    PdsPacket,
    RudCcRequest,
    RudRequest,
    SesRequest,
    SesResponse,
)
from fabric_emu.wire.uet_decode import decode_uet
from fabric_emu.wire.uet_layout import (
    DESTINATION_PDC,
    PATH_STAMP,
    UET_PORT,
    ControlType,
    NackCode,
    PdsType,
)

IPV4 = Envelope(
    source_mac="02:00:00:00:00:01",
    destination_mac="02:00:00:00:00:02",
    source="10.0.0.1",
    destination="10.0.0.2",
    source_port=0xC123,
    destination_port=UET_PORT,
)
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1")
BOTH = pytest.mark.parametrize("envelope", [IPV4, IPV6], ids=["IPv4", "IPv6"])
STAMPED = (0x0102030405060708).to_bytes(8, "big") + bytes(56)
PDC: dict[str, Any] = {"source_pdc": 0x0102, "destination_pdc": 0x0304}


def rows_of(
    frames: list[Packet] | list[bytes], width: int = 128
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return rows as a ring holds them, with stale bytes behind short frames, and lengths."""
    rows = np.full((len(frames), width), 0xEE, dtype=np.uint8)
    whole = [bytes(frame) for frame in frames]
    for row, frame in zip(rows, whole, strict=True):
        row[: len(frame)] = np.frombuffer(frame[:width], dtype=np.uint8)
    return rows, np.array([len(frame) for frame in whole])


def request(**fields: Any) -> list[Packet]:
    return [RudCcRequest(**fields, **PDC), SesRequest(length=64), Raw(STAMPED)]


# Type 5 bits, next header 4, flags 7; then as in section 3.5.10 of the specification.
@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # 13 << 11 | 14 << 7 | retransmitted 0x10 | ack request 0x08
        (
            [RudCcRequest(psn=5, retransmitted=1, clear_psn_offset=-2, credit_target=77, **PDC)],
            "6f18 fffe 00000005 0102 0304 00 00004d",
        ),
        ([RudRequest(psn=6, next_header=0, **PDC)], "1008 0000 00000006 0102 0304"),
        # 8 << 11 | 15 << 7 | marked 0x20
        (
            [
                PdsAckCc(
                    marked=1, ack_psn_offset=-3, cumulative_psn=9, sack_psn_offset=1,
                    sack_bitmap=0x8000000000000001, received=0xABCDEF, out_of_order=2, **PDC,
                ),
                SesResponse(entropy=0xC123),
            ],
            "47a0 fffd 00000009 0102 0304 00 00 0001 8000000000000001 0000 00 abcdef 0002"
            "00 00 c123",
        ),
        # 10 << 11 | 15 << 7
        (
            [PdsNack(code=2, psn=7, **PDC), SesResponse(entropy=1)],
            "5780 02 00 00000007 0102 0304 00000000 00 00 0001",
        ),
        # 11 << 11 | 7 << 7
        ([PdsControl(control_payload=300, **PDC)], "5b80 0000 00000000 0102 0304 0000012c"),
        # 7 << 11 | 15 << 7 | probe 0x08
        (
            [PdsAck(probe=1, ack_psn_offset=0x123, **PDC), SesResponse()],
            "3f88 0123 00000000 0102 0304 00 00 0000",
        ),
        # Opcode 1; end and start of message in the low bits of the second byte.
        (
            [SesRequest(message=3, offset=4096, length=100, end_of_message=1)],
            "01 02 0003 00001000 00000064",
        ),
    ],
    ids=lambda value: value[0].name if isinstance(value, list) else "",
)  # fmt: skip
def test_layers_have_the_bytes_of_the_specification(layers: list[Packet], expected: str) -> None:
    assert b"".join(map(bytes, layers)) == bytes.fromhex(expected)


@BOTH
def test_dissection_shows_the_layer_of_each_type(envelope: Envelope) -> None:
    stacks: list[list[Packet]] = [
        request(psn=1),
        [RudRequest(), SesRequest(), Raw(b"data")],
        [PdsAck(), SesResponse()],
        [PdsAckCc(), SesResponse()],
        [PdsNack(), SesResponse()],
        [PdsControl()],
        [PdsPacket(type=int(PdsType.UUD_REQ)), Raw(b"\x00\x00")],
    ]
    for stack in stacks:
        shown = Ether(bytes(envelope.frame(*stack)))
        assert shown[UDP].dport == UET_PORT
        assert shown.layers()[-len(stack) :] == [type(layer) for layer in stack]
        assert not shown.haslayer("BTH")


def test_every_type_leaves_the_path_stamp_at_zero_and_the_context_id_where_it_is() -> None:
    stacks: list[list[Packet]] = [
        request(credit_target=0xFFFFFF),
        [PdsAckCc(**PDC), SesResponse(entropy=0xFFFF)],
        [PdsAck(**PDC), SesResponse(entropy=0xFFFF)],
        [PdsNack(**PDC), SesResponse(entropy=0xFFFF)],
        [PdsControl(**PDC, control_payload=0xFFFFFF)],
    ]
    for stack in stacks:
        datagram = bytes(IPV4.frame(*stack))[34:]
        assert datagram[PATH_STAMP] & 0x3F == 0
        assert datagram[DESTINATION_PDC : DESTINATION_PDC + 2] == b"\x03\x04"


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.fixed_dictionaries(
            {
                "envelope": st.sampled_from([IPV4, IPV6]),
                "port": st.integers(0, 0xFFFF),
                "dscp": st.integers(0, 63),
                "ecn": st.integers(0, 3),
                "psn": st.integers(0, 2**32 - 1),
                "offset": st.integers(-(2**15), 2**15 - 1),
                "source": st.integers(0, 0xFFFF),
                "destination": st.integers(0, 0xFFFF),
                "stamp": st.integers(0, 63),
                "credit": st.integers(0, 0xFFFFFF),
                "send_ns": st.integers(0, 2**64 - 1),
                "size": st.integers(8, 100),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_field_of_a_request_comes_back(data: list[dict[str, Any]]) -> None:
    frames: list[Packet] = []
    for each in data:
        envelope = replace(
            each["envelope"], source_port=each["port"], dscp=each["dscp"], ecn=each["ecn"]
        )
        head = RudCcRequest(
            psn=each["psn"], clear_psn_offset=each["offset"], source_pdc=each["source"],
            destination_pdc=each["destination"], congestion_context=each["stamp"],
            credit_target=each["credit"],
        )  # fmt: skip
        payload = each["send_ns"].to_bytes(8, "big") + bytes(each["size"] - 8)
        frames.append(envelope.frame(head, SesRequest(length=each["size"]), Raw(payload)))
    columns = decode_uet(*rows_of(frames))
    assert columns.is_uet.all()
    for row, each in enumerate(data):
        assert columns.is_ipv6[row] == (each["envelope"] is IPV6)
        assert columns.type[row] == PdsType.RUD_CC_REQ
        assert columns.source_port[row] == each["port"]
        assert columns.dscp[row] == each["dscp"]
        assert columns.ecn[row] == each["ecn"]
        assert columns.psn[row] == each["psn"]
        assert columns.psn_offset[row] == each["offset"]
        assert columns.source_pdc[row] == each["source"]
        assert columns.destination[row] == each["destination"]
        assert columns.path_stamp[row] == each["stamp"]
        assert columns.credit[row] == each["credit"]
        assert columns.send_ns[row] == each["send_ns"]
        assert columns.payload_length[row] == each["size"]


@BOTH
def test_fields_of_answers_come_back(envelope: Envelope) -> None:
    sack = PdsAckCc(
        cumulative_psn=2**32 - 1, ack_psn_offset=12, sack_psn_offset=1, sack_bitmap=2**63 | 5
    )
    nack = PdsNack(code=int(NackCode.TRIMMED_LAST_HOP), psn=77)
    probe = PdsControl(control_type=int(ControlType.PROBE), probe_opaque=0xBEEF)
    stacks: list[list[Packet]] = [
        [sack, SesResponse(entropy=0xC0DE)], [nack, SesResponse(entropy=0xC0FE)], [probe]
    ]  # fmt: skip
    columns = decode_uet(*rows_of([envelope.frame(*stack) for stack in stacks]))
    assert columns.type.tolist() == [PdsType.ACK_CC, PdsType.NACK, PdsType.CONTROL]
    assert columns.psn.tolist() == [2**32 - 1, 77, 0]
    assert columns.psn_offset[0] == 12
    assert columns.sack_offset[0] == 1
    assert columns.sack_bitmap[0] == 2**63 | 5
    assert columns.answer_entropy(40)[0] == 0xC0DE
    assert columns.answer_entropy(24)[1] == 0xC0FE
    assert columns.second_half[1] >> 8 == NackCode.TRIMMED_LAST_HOP
    assert columns.second_half[2] == 0xBEEF
    assert columns.send_ns.tolist() == columns.payload_length.tolist() == [0, 0, 0]


def test_other_traffic_is_not_uet() -> None:
    good = bytes(IPV4.frame(*request()))
    fragment, other_port, hollow = (bytearray(good) for _ in range(3))
    fragment[20] |= 0x20
    other_port[36:38] = (4791).to_bytes(2, "big")
    hollow[38:40] = (19).to_bytes(2, "big")
    roce = write_frame(replace(IPV4, destination_port=4791), qpn=1, psn=2, payload=STAMPED)
    bad = [bytes(fragment), bytes(other_port), bytes(hollow), bytes(roce)]
    rows, lengths = rows_of([good, *bad, good])
    columns = decode_uet(rows, lengths)
    assert columns.is_uet.tolist() == [True, False, False, False, False, True]
    assert columns.send_ns[1:-1].tolist() == [0] * 4
    assert decode(rows, lengths).is_rocev2.tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize(("envelope", "udp"), [(IPV4, 34), (IPV6, 54)])
def test_rows_cut_short_lose_what_they_no_longer_hold(envelope: Envelope, udp: int) -> None:
    frame = bytes(envelope.frame(*request(psn=3, congestion_context=9)))
    # UDP 8 + PDS 12 = 20; the stamp is the next byte; the send time ends 8 + 16 + 12 + 8 on.
    rows, lengths = rows_of([frame] * 5, width=98)
    lengths[:] = [udp + 19, udp + 20, udp + 21, udp + 43, udp + 44]
    # Who cuts a packet on its way says so in its length; else it is no whole datagram.
    assert not decode_uet(rows, lengths).is_uet.any()
    rows[:, udp + 4 : udp + 6] = (lengths - udp).astype(">u2").view(np.uint8).reshape(-1, 2)
    columns = decode_uet(rows, lengths)
    assert columns.is_uet.tolist() == [False, True, True, True, True]
    assert columns.psn[1:].tolist() == [3] * 4
    assert columns.path_stamp[1:].tolist() == [0, 9, 9, 9]
    assert columns.send_ns.tolist() == [0, 0, 0, 0, 0x0102030405060708]


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.binary(min_size=98, max_size=98), max_size=6), cut=st.integers(0, 200))
def test_any_bytes_can_be_decoded(rows: list[bytes], cut: int) -> None:
    matrix = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), 98)
    columns = decode_uet(matrix, np.full(len(rows), cut))
    for name in ("psn", "send_ns", "path_stamp", "payload_length", "credit", "sack_bitmap"):
        assert len(getattr(columns, name)) == len(rows)
