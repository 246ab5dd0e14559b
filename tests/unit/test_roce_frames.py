"""RoCEv2 frames of transports' packets: what is encoded is valid on the wire and comes back."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import wrpcap

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Ends, FrameFormat
from fabric_emu.nic.roce_frames import roce_frames
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.wire.icrc import icrc
from fabric_emu.wire.mrc import MrcNack, MrcProbe, MrcSack
from fabric_emu.wire.mrc_layout import MrcOpcode
from fabric_emu.wire.replicate import set_lengths
from fabric_emu.wire.rocev2 import AETH, BTH, RETH, CNPPadding, Envelope, Opcode

PAYLOAD = 64
FILL = b"\xa5"
TRIMMED, LAST_HOP = 49, 50
NOW_NS = 0x0123456789ABCDEF
# Parts of one packet, of several, with last packets of every padding, with and without a time.
SIZES = np.array([64, 128, 1, 63, 200, 7, 8, 9, 10, 11, 66, 129, 300, 4])
SPACE = PacketSpace.of(
    np.arange(len(SIZES)) % 3, (np.arange(len(SIZES)) % 3 + 1) % 4, SIZES, PAYLOAD, queue_pairs=2
)
RC_KINDS = (Kind.DATA, Kind.ACK, Kind.NAK, Kind.CNP)
MRC_KINDS = (Kind.DATA, Kind.SACK, Kind.TRIM_NACK, Kind.PROBE, Kind.PROBE_ACK)
FORTH = (Kind.DATA, Kind.PROBE)
COMPARED = {
    Kind.DATA: (),
    Kind.ACK: (),
    Kind.NAK: (),
    Kind.CNP: (),
    Kind.SACK: ("echo_psn", "echo", "echo_marked", "bitmap", "value"),
    Kind.TRIM_NACK: ("echo_psn", "echo", "last_hop"),
    Kind.PROBE: ("echo",),
    Kind.PROBE_ACK: ("echo",),
}
BOTH = pytest.mark.parametrize("family", [4, 6])
EITHER = pytest.mark.parametrize("mrc", [False, True], ids=["rc", "mrc"])


def ends(row: int, family: int) -> Ends:
    def envelope(source: int, destination: int, dscp: int) -> Envelope:
        prefix = "10.0.0." if family == 4 else "fd00::"
        return Envelope(
            source_mac=f"02:00:00:00:00:{source + 1:02x}",
            destination_mac=f"02:00:00:00:01:{source + 1:02x}",
            source=f"{prefix}{source + 1}",
            destination=f"{prefix}{destination + 1}",
            source_port=0xC000,
            dscp=dscp,
        )

    source, destination = int(SPACE.source[row]), int(SPACE.destination[row])
    return Ends(envelope(source, destination, 8), envelope(destination, source, 48))


@cache
def made(family: int, mrc: bool) -> FrameFormat:
    rows = np.arange(SPACE.queue_pairs)
    return roce_frames(SPACE, rows, [ends(int(row), family) for row in rows], mrc, FILL)


@st.composite
def sent(draw: st.DrawFn, kinds: tuple[Kind, ...]) -> Packets:
    """Draw packets such as transports hand over."""
    rows = []
    occupied = np.flatnonzero(np.diff(SPACE.first))
    for _ in range(draw(st.integers(1, 8))):
        pair = int(draw(st.sampled_from(occupied.tolist())))
        count = int(SPACE.count(np.array([pair]))[0])
        kind = draw(st.sampled_from(kinds))
        psn = draw(st.integers(0, count - (kind != Kind.SACK)))
        rows.append(
            {
                "kind": kind,
                "queue_pair": pair,
                "psn": psn,
                "echo_psn": draw(st.integers(0, count - 1)),
                "entropy": draw(st.integers(0, 0xFFFF)),
                "echo": draw(st.integers(0, 0xFFFF)),
                "bitmap": draw(st.integers(0, (1 << min(count - psn, 64)) - 1)),
                "echo_marked": draw(st.booleans()),
                "last_hop": draw(st.booleans()),
                "value": draw(st.integers(0, (1 << 63) - 1)),
            }
        )
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns["bitmap"] = np.array([row["bitmap"] for row in rows], np.uint64)
    return Packets.of(columns.pop("kind"), columns.pop("queue_pair"), **columns)


def either(family: int, mrc: bool) -> st.SearchStrategy[tuple[FrameFormat, Packets]]:
    return st.tuples(st.just(made(family, mrc)), sent(MRC_KINDS if mrc else RC_KINDS))


anything = st.one_of([either(family, mrc) for family in (4, 6) for mrc in (False, True)])


def on_the_wire(frames: FrameFormat, packets: Packets) -> list[bytes]:
    return frames.writer.write(packets, NOW_NS).assemble(frames.payload)


def received(frames: FrameFormat, wire: list[bytes]) -> Packets:
    headers = np.full((len(wire), 98), 0xEE, np.uint8)
    for row, frame in zip(headers, wire, strict=True):
        row[: len(frame)] = np.frombuffer(frame[:98], np.uint8)
    lengths = np.array([len(frame) for frame in wire], np.uint32)
    return frames.reader.read(headers, lengths, TRIMMED, LAST_HOP)


def some(frames: FrameFormat, kind: Kind, pair: int = 0, psn: int = 0, **columns: Any) -> bytes:
    packets = Packets.of(kind, np.array([pair]), psn=psn, **columns)
    return on_the_wire(frames, packets)[0]


def trimmed(frame: bytes, size: int, dscp: int) -> bytes:
    """Cut a frame as a switch that trims does."""
    cut = np.frombuffer(frame[:size], np.uint8).copy()[np.newaxis]
    if frame[14] >> 4 == 4:
        cut[0, 15] = dscp << 2
    else:
        cut[0, 14:16] = 0x60 | dscp >> 2, (dscp & 3) << 6
    set_lengths(cut, 34 if frame[14] >> 4 == 4 else 54, np.array([size]))
    return cut.tobytes()


@settings(max_examples=150, deadline=None)
@given(anything)
def test_what_is_sent_is_received(case: tuple[FrameFormat, Packets]) -> None:
    frames, packets = case
    got = received(frames, on_the_wire(frames, packets))
    assert got.kind.tolist() == packets.kind.tolist()
    assert got.queue_pair.tolist() == packets.queue_pair.tolist()
    assert got.entropy.tolist() == packets.entropy.tolist()
    nack = packets.kind == Kind.TRIM_NACK
    assert got.psn.tolist() == np.where(nack, packets.echo_psn, packets.psn).tolist()
    assert not got.marked.any()
    assert not got.trimmed.any()
    for row, kind in enumerate(packets.kind.tolist()):
        for name in COMPARED[Kind(kind)]:
            assert getattr(got, name)[row] == getattr(packets, name)[row], (Kind(kind), name)


@settings(max_examples=60, deadline=None)
@given(anything)
def test_every_frame_is_what_scapy_builds(case: tuple[FrameFormat, Packets]) -> None:
    frames, packets = case
    for frame in on_the_wire(frames, packets):
        assert icrc(frame) == int.from_bytes(frame[-4:], "little")
        rebuilt = Ether(frame)
        assert rebuilt[BTH].icrc is not None
        for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len",))):
            if layer in rebuilt:
                for name in names:
                    rebuilt[layer].delfieldval(name)
        rebuilt[BTH].icrc = None
        assert bytes(rebuilt) == frame


@BOTH
@EITHER
def test_every_packet_of_the_run_carries_its_part_of_a_message(family: int, mrc: bool) -> None:
    frames = made(family, mrc)
    pair = SPACE.part_queue_pair[SPACE.part_of]
    psn = np.arange(SPACE.packets) - SPACE.first[pair]
    wire = on_the_wire(frames, Packets.of(Kind.DATA, pair, psn=psn, entropy=0xC001))
    stops = set((SPACE.first[SPACE.part_queue_pair] + SPACE.part_end).tolist())
    for flat, frame in enumerate(wire):
        size = int(SPACE.size_bytes[flat])
        shown = Ether(frame)
        bth = shown[BTH]
        body = bytes(shown[RETH].payload if mrc else bth.payload)
        assert (bth.dqpn, bth.psn, bth.padcount) == (QPN_BASE + pair[flat], psn[flat], -size % 4)
        assert len(body) == size + -size % 4
        time = NOW_NS.to_bytes(8, "big") if size >= 8 else b""
        assert body == time + FILL * (len(body) - len(time))
        first, last = flat == 0 or flat in stops, flat + 1 in stops
        assert bth.opcode == opcode(first, last, mrc)
        if mrc:
            assert (shown[RETH].address, shown[RETH].dma_length) == (psn[flat] * PAYLOAD, size)
    assert received(frames, wire).psn.tolist() == psn.tolist()


def opcode(first: bool, last: bool, mrc: bool) -> int:
    if mrc:
        ends_at = MrcOpcode.WRITE_ONLY if first else MrcOpcode.WRITE_LAST
        return ends_at if last else MrcOpcode.WRITE_FIRST if first else MrcOpcode.WRITE_MIDDLE
    ends_at_rc = Opcode.RC_SEND_ONLY if first else Opcode.RC_SEND_LAST
    return ends_at_rc if last else Opcode.RC_SEND_FIRST if first else Opcode.RC_SEND_MIDDLE


@BOTH
def test_control_packets_go_back_to_the_requester(family: int) -> None:
    layers: dict[Kind, type[Packet]] = {
        Kind.ACK: AETH, Kind.NAK: AETH, Kind.CNP: CNPPadding, Kind.SACK: MrcSack,
        Kind.TRIM_NACK: MrcNack, Kind.PROBE: MrcProbe, Kind.PROBE_ACK: MrcProbe,
    }  # fmt: skip
    for kind, layer in layers.items():
        shown = Ether(some(made(family, kind in MRC_KINDS), kind, pair=3))
        forth = kind in FORTH
        way = ends(3, family).there if forth else ends(3, family).back
        ip = shown[IP if family == 4 else IPv6]
        assert layer in shown, kind
        assert (shown.src, ip.src, ip.dst) == (way.source_mac, way.source, way.destination)
        assert shown[BTH].dqpn == QPN_BASE + 3 + (0 if forth else SPACE.queue_pairs)
        assert shown[BTH].becn == (kind == Kind.CNP)


@BOTH
@EITHER
def test_marks_and_path_stamps_of_the_way_are_seen_and_harmless(family: int, mrc: bool) -> None:
    frames = made(family, mrc)
    frame = bytearray(some(frames, Kind.DATA, pair=1, entropy=0xC002))
    frame[15] |= 3 if family == 4 else 0x30
    frame[(34 if family == 4 else 54) + 12] |= 0x15
    assert icrc(frame) == int.from_bytes(frame[-4:], "little")
    got = received(frames, [bytes(frame)])
    assert (got.kind[0], got.queue_pair[0], got.marked[0]) == (Kind.DATA, 1, True)


@pytest.mark.parametrize(("family", "shortest"), [(4, 54), (6, 74)])
@EITHER
def test_trimmed_data_is_known_by_its_dscp(family: int, shortest: int, mrc: bool) -> None:
    frames = made(family, mrc)
    pair = int(SPACE.part_queue_pair[SPACE.part_of[np.argmax(SPACE.size_bytes)]])
    frame = some(frames, Kind.DATA, pair=pair, psn=0, entropy=0xD00D)
    assert len(frame) == frames.length
    sizes = [shortest, 76, 64 if family == 4 else 84]
    wire = [trimmed(frame, size, dscp) for size in sizes for dscp in (TRIMMED, LAST_HOP)]
    assert [len(each) for each in wire] == [size for size in sizes for _ in range(2)]
    got = received(frames, wire)
    assert got.trimmed.tolist() == [True] * 6
    assert got.last_hop.tolist() == [False, True] * 3
    assert got.kind.tolist() == [Kind.DATA] * 6
    assert (got.queue_pair == pair).all()
    assert (got.entropy == 0xD00D).all()
    assert not len(received(frames, [trimmed(frame, shortest - 1, TRIMMED)]))


@BOTH
@EITHER
def test_what_is_not_of_the_run_is_left_out(family: int, mrc: bool) -> None:
    frames = made(family, mrc)
    udp = 34 if family == 4 else 54
    good = some(frames, Kind.DATA, pair=1)
    answer = some(frames, Kind.SACK if mrc else Kind.ACK, pair=1)

    def changed(frame: bytes, offset: int, *values: int) -> bytes:
        return frame[: udp + offset] + bytes(values) + frame[udp + offset + len(values) :]

    beyond = QPN_BASE + 2 * SPACE.queue_pairs
    bad = [
        changed(good, 13, *beyond.to_bytes(3, "big")),
        changed(good, 13, *(QPN_BASE - 1).to_bytes(3, "big")),
        changed(good, 17, *int(SPACE.count(np.array([1]))[0]).to_bytes(3, "big")),
        changed(good, 2, 4793 >> 8, 4793 & 0xFF),
        changed(good, 8, 0x0C),
        changed(good, 8, Opcode.RC_SEND_ONLY if mrc else MrcOpcode.WRITE_ONLY),
        # Data to a requester, an answer to a responder.
        changed(good, 13, *(QPN_BASE + 1 + SPACE.queue_pairs).to_bytes(3, "big")),
        changed(answer, 13, *(QPN_BASE + 1).to_bytes(3, "big")),
        answer[: udp + 23],
        changed(answer, 4, 0, 23),
    ]
    got = received(frames, [good, *bad, answer])
    assert got.kind.tolist() == [Kind.DATA, Kind.SACK if mrc else Kind.ACK]


@settings(max_examples=100, deadline=None)
@given(case=anything, seed=st.integers(0, 1 << 32))
def test_garbage_gives_packets_of_the_run_or_none(
    case: tuple[FrameFormat, Packets], seed: int
) -> None:
    frames, packets = case
    rng = np.random.default_rng(seed)
    wire = [bytearray(frame) for frame in on_the_wire(frames, packets)]
    for frame in wire:
        for _ in range(rng.integers(1, 6)):
            frame[rng.integers(12, len(frame))] = rng.integers(256)
        del frame[rng.integers(14, len(frame) + 1) :]
    noise = [rng.bytes(int(rng.integers(1, 98))) for _ in range(4)]
    check_sound(received(frames, [*map(bytes, wire), *noise]))


def check_sound(got: Packets) -> None:
    """Assert that packets name only what there is, whatever they were decoded from."""
    count = SPACE.count(got.queue_pair)
    assert ((got.queue_pair >= 0) & (got.queue_pair < SPACE.queue_pairs)).all()
    assert (got.kind < len(Kind)).all()
    assert ((got.psn >= 0) & (got.psn < count + (got.kind == Kind.SACK))).all()
    answers = ~np.isin(got.kind, FORTH)
    assert ((got.echo_psn >= 0) & (~answers | (got.echo_psn < count))).all()
    spoken = [int(bitmap).bit_length() for bitmap in got.bitmap]
    assert (got.psn + spoken <= count).all()


def test_bitmaps_lose_what_lies_behind_the_last_packet() -> None:
    frames = made(4, True)
    pair = int(np.argmax(SPACE.count(np.arange(SPACE.queue_pairs))))
    count = int(SPACE.count(np.array([pair]))[0])
    assert 2 <= count < 64
    all_ones = np.array([2**64 - 1], np.uint64)
    wire = [some(frames, Kind.SACK, pair=pair, psn=psn, bitmap=all_ones) for psn in (0, 1, count)]
    assert received(frames, wire).bitmap.tolist() == [
        (1 << count) - 1, (1 << (count - 1)) - 1, 0
    ]  # fmt: skip


def test_a_worker_encodes_only_its_own_queue_pairs() -> None:
    rows = np.array([1, 4])
    few = roce_frames(SPACE, rows, [ends(1, 4), ends(4, 4)], True, FILL)
    packets = Packets.of(np.array([0, 3, 0]), np.array([4, 1, 1]), psn=0, entropy=7)
    assert on_the_wire(few, packets) == on_the_wire(made(4, True), packets)


def test_limits_are_named() -> None:
    rows, of_one = np.array([0]), [ends(0, 4)]
    with pytest.raises(ValueError, match="2\\^24"):
        roce_frames(replace(SPACE, first=np.array([0, (1 << 24) + 1])), rows, of_one, True, FILL)
    # A CNP has 16 bytes more than a SEND's headers.
    small = PacketSpace.of(np.array([0]), np.array([1]), np.array([30]), 12)
    with pytest.raises(ValueError, match="12 bytes are too short"):
        roce_frames(small, rows, of_one, False, FILL)


def test_packets_that_have_no_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="of this kind have no frames"):
        some(made(4, True), Kind.CREDIT)


def test_no_packets_make_no_frames() -> None:
    frames = made(4, False)
    assert on_the_wire(frames, Packets.none()) == []
    empty: npt.NDArray[np.uint8] = np.empty((0, 98), np.uint8)
    assert len(frames.reader.read(empty, np.empty(0, np.uint32), TRIMMED, LAST_HOP)) == 0


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@BOTH
def test_wireshark_finds_nothing_wrong_with_rc_frames(family: int, tmp_path: Path) -> None:
    frames = made(family, False)
    pair = np.repeat(np.arange(SPACE.queue_pairs), 4)[: 4 * 6]
    kind = np.tile([Kind.DATA, Kind.ACK, Kind.NAK, Kind.CNP], 6)
    wire = on_the_wire(frames, Packets.of(kind, pair, psn=0, entropy=0xC123))
    capture = str(tmp_path / "rc.pcap")
    wrpcap(capture, [Ether(frame) for frame in wire])

    def shown(condition: str) -> int:
        # Its guess that a SEND of a few bytes carries remote procedure calls is not our fault.
        command = ["tshark", "-r", capture, "--disable-protocol", "rpcordma", "-Y", condition]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return len(result.stdout.splitlines())

    assert shown("infiniband.bth") == len(wire)
    assert shown("_ws.malformed or _ws.short") == 0


@BOTH
def test_only_probes_are_probes(family: int) -> None:
    frames = made(family, mrc=True)
    for kind in MRC_KINDS:
        frame = some(frames, kind).ljust(98, b"\0")[:98]
        headers = np.frombuffer(frame, np.uint8)[np.newaxis]
        columns = frames.columns(headers, np.array([len(frame)], np.uint32))
        assert columns.probe.tolist() == [kind == Kind.PROBE], kind
