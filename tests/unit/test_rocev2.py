"""The scapy layers: bytes, dissection, and Wireshark's opinion of both."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from fabric_emu.wire.layout import EXTENSION_HEADERS, EXTENSION_LENGTH
from fabric_emu.wire.rocev2 import (
    AETH,
    BTH,
    RETH,
    CNPPadding,
    Envelope,
    ImmDt,
    Opcode,
    Syndrome,
    acknowledge_frame,
    cnp_frame,
    flow_label_to_source_port,
    source_port,
    write_frame,
)

IPV4 = Envelope(
    source_mac="02:00:00:00:00:01",
    destination_mac="02:00:00:00:00:02",
    source="10.0.0.1",
    destination="10.0.0.2",
    source_port=0xC123,
)
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1")
BOTH = pytest.mark.parametrize("envelope", [IPV4, IPV6], ids=["IPv4", "IPv6"])


@pytest.mark.parametrize(
    ("label", "port"), [(0xFFFFF, 0xFFC0), (0x12345, 0xE341), (1, 0xC001), (0, 0xC000)]
)
def test_source_port_of_a_flow_label_is_the_kernels(label: int, port: int) -> None:
    assert flow_label_to_source_port(label) == port


@pytest.mark.parametrize(
    ("qpns", "port"),
    [((0x11, 0x12), 0xC132), ((0x100, 0x200), 0xC008), ((0xABCDEF, 0x123456), 0xC3C8)],
)
def test_source_port_of_a_queue_pair_is_the_kernels_and_symmetric(
    qpns: tuple[int, int], port: int
) -> None:
    assert source_port(*qpns) == source_port(*reversed(qpns)) == port


def test_known_send_frame_has_its_known_icrc() -> None:
    frame = write_frame(
        replace(IPV4, ecn=0),
        opcode=Opcode.RC_SEND_ONLY,
        qpn=0x11,
        psn=0x1234,
        ack_request=True,
        payload=b"A" * 64,
    )
    assert bytes(frame)[-4:] == bytes.fromhex("c198ce21")


def test_cnp_is_74_bytes_and_names_the_senders_queue_pair() -> None:
    frame = bytes(cnp_frame(IPV4, qpn=0xABCDEF))
    assert len(frame) == 74
    assert frame[42:70] == bytes.fromhex("8100ffff 40abcdef 00000000") + bytes(16)
    assert CNPPadding in Ether(frame)


def test_headers_stand_where_the_envelope_puts_them() -> None:
    envelope = replace(IPV6, source_port=50000, dscp=26, ecn=1, ttl=7, flow_label=0x54321)
    frame = Ether(bytes(write_frame(envelope, qpn=1, psn=2, payload=b"12345678")))
    ip = frame["IPv6"]
    assert (ip.tc, ip.fl, ip.hlim) == (26 << 2 | 1, 0x54321, 7)
    assert (frame["UDP"].sport, frame["UDP"].dport, frame["UDP"].chksum) == (50000, 4791, 0)
    # UDP 8, BTH 12, RETH 16, payload 8, ICRC 4.
    assert frame["UDP"].len == ip.plen == 48


@pytest.mark.parametrize(
    ("size", "pad", "wire_size"), [(64, 0, 64), (65, 3, 68), (66, 2, 68), (67, 1, 68), (0, 0, 0)]
)
def test_payload_is_padded_to_four_bytes(size: int, pad: int, wire_size: int) -> None:
    payload = bytes(range(1, size + 1))
    frame = Ether(bytes(write_frame(IPV4, qpn=1, psn=2, payload=payload)))
    assert frame[BTH].padcount == pad
    assert len(bytes(frame)) == 14 + 20 + 8 + 12 + 16 + wire_size + 4
    assert frame[RETH].dma_length == size
    if size:
        assert bytes(frame[Raw]) == payload + bytes(pad)


@BOTH
@pytest.mark.parametrize(
    ("opcode", "headers"),
    [
        (Opcode.RC_SEND_FIRST, []),
        (Opcode.RC_SEND_MIDDLE, []),
        (Opcode.RC_SEND_LAST, []),
        (Opcode.RC_SEND_LAST_WITH_IMMEDIATE, [ImmDt]),
        (Opcode.RC_SEND_ONLY, []),
        (Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, [ImmDt]),
        (Opcode.RC_RDMA_WRITE_FIRST, [RETH]),
        (Opcode.RC_RDMA_WRITE_MIDDLE, []),
        (Opcode.RC_RDMA_WRITE_LAST, []),
        (Opcode.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, [ImmDt]),
        (Opcode.RC_RDMA_WRITE_ONLY, [RETH]),
        (Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, [RETH, ImmDt]),
        (Opcode.UC_RDMA_WRITE_FIRST, [RETH]),
        (Opcode.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, [RETH, ImmDt]),
        (Opcode.UC_SEND_LAST_WITH_IMMEDIATE, [ImmDt]),
    ],
)
def test_dissection_shows_the_headers_of_each_opcode(
    envelope: Envelope, opcode: Opcode, headers: list[type[Packet]]
) -> None:
    built = write_frame(
        envelope, opcode=opcode, qpn=0xABCDEF, psn=0xFEDCBA, payload=b"payload!", r_key=0x1234,
        address=0x1122334455667788, dma_length=0x99AABBCC, immediate=0xDDEEFF00,
    )  # fmt: skip
    wire = bytes(built)
    seen = Ether(wire)
    assert seen[BTH].layers() == [BTH, *headers, Raw]
    assert (seen[BTH].opcode, seen[BTH].dqpn, seen[BTH].psn) == (opcode, 0xABCDEF, 0xFEDCBA)
    if RETH in headers:
        reth = seen[RETH]
        assert (reth.address, reth.r_key) == (0x1122334455667788, 0x1234)
        assert reth.dma_length == 0x99AABBCC
    if ImmDt in headers:
        assert seen[ImmDt].immediate == 0xDDEEFF00
    assert seen[Raw].load == b"payload!"
    assert seen[BTH].icrc == int.from_bytes(wire[-4:], "big")
    seen[BTH].icrc = None
    assert bytes(seen) == wire


@BOTH
def test_read_request_and_response_and_acknowledge_round_trip(envelope: Envelope) -> None:
    request = write_frame(
        envelope, opcode=Opcode.RC_RDMA_READ_REQUEST, qpn=1, psn=2, payload=b"", dma_length=4096
    )
    assert Ether(bytes(request))[RETH].dma_length == 4096
    for opcode in (
        Opcode.RC_RDMA_READ_RESPONSE_FIRST,
        Opcode.RC_RDMA_READ_RESPONSE_LAST,
        Opcode.RC_RDMA_READ_RESPONSE_ONLY,
    ):
        response = envelope.frame(BTH(opcode=int(opcode)), AETH(syndrome=0x1F, msn=7), Raw(b"data"))
        assert Ether(bytes(response))[BTH].layers() == [BTH, AETH, Raw]
    middle = envelope.frame(BTH(opcode=int(Opcode.RC_RDMA_READ_RESPONSE_MIDDLE)), Raw(b"data"))
    assert Ether(bytes(middle))[BTH].layers() == [BTH, Raw]
    nak = Ether(
        bytes(
            acknowledge_frame(
                envelope, qpn=3, psn=9, syndrome=Syndrome.NAK_PSN_SEQUENCE_ERROR, msn=0x123456
            )
        )
    )
    assert (nak[BTH].opcode, nak[AETH].syndrome, nak[AETH].msn) == (0x11, 0x60, 0x123456)


def test_bare_layers_take_the_usual_opcodes() -> None:
    assert (BTH() / RETH()).opcode == Opcode.RC_RDMA_WRITE_ONLY
    assert (BTH() / AETH()).opcode == Opcode.RC_ACKNOWLEDGE


def test_write_frame_refuses_opcodes_with_other_headers() -> None:
    with pytest.raises(ValueError, match="AETH"):
        write_frame(IPV4, opcode=Opcode.RC_ACKNOWLEDGE, qpn=1, psn=2, payload=b"")


@BOTH
@pytest.mark.parametrize("opcode", sorted(set(EXTENSION_HEADERS) & {*range(0x0D)}))
def test_extension_lengths_are_what_scapy_builds(envelope: Envelope, opcode: int) -> None:
    frame = write_frame(envelope, opcode=opcode, qpn=1, psn=2, payload=b"")
    bare = write_frame(envelope, opcode=Opcode.RC_SEND_ONLY, qpn=1, psn=2, payload=b"")
    assert EXTENSION_LENGTH[opcode] == len(bytes(frame)) - len(bytes(bare))


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@BOTH
def test_wireshark_reads_our_frames_as_rocev2(envelope: Envelope, tmp_path: Path) -> None:
    frames = [
        write_frame(
            envelope, qpn=0xABCDEF, psn=0xFEDCBA, payload=b"x" * 65, ack_request=True,
            address=0x1122334455667788, r_key=0x1234,
        ),
        write_frame(
            envelope, opcode=Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, qpn=2, psn=3,
            payload=b"x" * 64, immediate=0xDDEEFF00,
        ),
        write_frame(envelope, opcode=Opcode.RC_RDMA_WRITE_MIDDLE, qpn=2, psn=4, payload=b"x" * 64),
        write_frame(
            envelope, opcode=Opcode.RC_SEND_LAST_WITH_IMMEDIATE, qpn=2, psn=5, payload=b"x" * 64
        ),
        acknowledge_frame(
            envelope, qpn=6, psn=7, syndrome=Syndrome.NAK_PSN_SEQUENCE_ERROR, msn=8
        ),
        cnp_frame(envelope, qpn=0x123),
    ]  # fmt: skip
    bths = [layers["infiniband.bth_tree"] for layers in _dissect(frames, tmp_path)]
    assert [int(bth["infiniband.bth.opcode"]) for bth in bths] == [10, 11, 7, 3, 17, 0x81]
    assert [int(bth["infiniband.bth.psn"]) for bth in bths] == [0xFEDCBA, 3, 4, 5, 7, 0]
    qpns = [0xABCDEF, 2, 2, 2, 6, 0x123]
    assert [int(bth["infiniband.bth.destqp"], 16) for bth in bths] == qpns
    assert [int(bth["infiniband.bth.padcnt"]) for bth in bths] == [3, 0, 0, 0, 0, 0]
    assert [bth["infiniband.bth.a"] for bth in bths] == ["1", "0", "0", "0", "0", "0"]
    first, second, *_, nak, _cnp = _dissect(frames, tmp_path)
    reth = first["infiniband.reth_tree"]
    assert int(reth["infiniband.reth.va"], 16) == 0x1122334455667788
    assert int(reth["infiniband.reth.r_key"], 16) == 0x1234
    assert int(reth["infiniband.reth.dmalen"]) == 65
    assert second["infiniband.immdt"] == "dd:ee:ff:00"
    aeth = nak["infiniband.aeth_tree"]
    assert int(aeth["infiniband.aeth.msn"]) == 8
    assert int(aeth["infiniband.aeth.syndrome_tree"]["infiniband.aeth.syndrome.error_code"]) == 0


def _dissect(frames: list[Packet], directory: Path) -> list[dict[str, Any]]:
    """Return Wireshark's InfiniBand tree of each frame, having checked that it is content."""
    capture = directory / "frames.pcap"
    wrpcap(str(capture), [Ether(bytes(frame)) for frame in frames])
    # A zero checksum is RoCEv2's rule also over IPv6, where Wireshark doubts it by default.
    command = ["tshark", "-r", str(capture), "-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
    complaints = subprocess.run(
        [*command, "-Y", "_ws.malformed || _ws.expert.severity >= warning"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert complaints.stdout == ""
    text = subprocess.run(
        [*command, "-T", "json", "--no-duplicate-keys"], capture_output=True, text=True, check=True
    )
    return [packet["_source"]["layers"]["infiniband"] for packet in json.loads(text.stdout)]
