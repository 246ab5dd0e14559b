"""Ultra Ethernet frames of transports' packets: what is encoded comes back, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Ends, FrameFormat
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.uet_frames import MOST_PACKETS, MOST_QUEUE_PAIRS, uet_frames
from fabric_emu.wire.replicate import set_lengths
from fabric_emu.wire.rocev2 import Envelope
from fabric_emu.wire.uet import (
    PdsAck,
    PdsAckCc,
    PdsControl,
    PdsNack,
    RudCcRequest,
    SesRequest,
    SesResponse,
)
from fabric_emu.wire.uet_layout import DESTINATION_PDC, PATH_STAMP, PROLOGUE

PAYLOAD = 64
FILL = b"\xa5"
TRIMMED, LAST_HOP = 49, 50
NOW_NS = 0x0123456789ABCDEF
# Parts of one packet, of several, with last packets of every padding, with and without a time.
SIZES = np.array([64, 128, 1, 63, 200, 7, 8, 9, 10, 11, 66, 129, 300, 4, 16])
SPACE = PacketSpace.of(
    np.arange(len(SIZES)) % 3, (np.arange(len(SIZES)) % 3 + 1) % 4, SIZES, PAYLOAD, queue_pairs=2
)
LAYERS: dict[Kind, tuple[type[Packet], ...]] = {
    Kind.DATA: (RudCcRequest, SesRequest, Raw),
    Kind.SACK: (PdsAckCc, SesResponse),
    Kind.TRIM_NACK: (PdsNack, SesResponse),
    Kind.CREDIT: (PdsControl,),
    Kind.PROBE: (PdsControl,),
    Kind.PROBE_ACK: (PdsAck, SesResponse),
}
COMPARED = {
    Kind.DATA: ("psn", "value", "retransmission"),
    Kind.SACK: ("psn", "echo_psn", "echo", "echo_marked", "bitmap"),
    Kind.TRIM_NACK: ("echo_psn", "echo", "echo_marked", "last_hop"),
    Kind.CREDIT: ("value",),
    Kind.PROBE: ("psn", "echo"),
    Kind.PROBE_ACK: ("psn", "echo"),
}
FORTH = (Kind.DATA, Kind.PROBE)
BOTH = pytest.mark.parametrize("family", [4, 6])


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
def made(family: int) -> FrameFormat:
    rows = np.arange(SPACE.queue_pairs)
    return uet_frames(SPACE, rows, [ends(int(row), family) for row in rows], FILL)


@st.composite
def sent(draw: st.DrawFn) -> Packets:
    """Draw packets such as a transport hands over."""
    rows: list[dict[str, Any]] = []
    occupied = np.flatnonzero(np.diff(SPACE.first))
    for _ in range(draw(st.integers(1, 8))):
        pair = int(draw(st.sampled_from(occupied.tolist())))
        count = int(SPACE.count(np.array([pair]))[0])
        kind = draw(st.sampled_from(list(LAYERS)))
        psn = draw(st.integers(0, count - (kind != Kind.SACK)))
        row = {
            "kind": kind,
            "queue_pair": pair,
            "psn": psn,
            "echo_psn": draw(st.integers(0, count - 1)),
            "entropy": draw(st.integers(0, 0xFFFF)),
            "echo": draw(st.integers(0, 0xFFFF)),
            "bitmap": draw(st.integers(0, (1 << min(count - psn, 64)) - 1)),
            "value": draw(st.integers(0, 0xFFFFFF)),
        }
        flags = ("echo_marked", "last_hop", "retransmission")
        rows.append(row | {name: draw(st.booleans()) for name in flags})
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Packets.of(columns.pop("kind"), columns.pop("queue_pair"), **columns)


families = st.sampled_from([4, 6])


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


def count_of(pair: int) -> int:
    return int(SPACE.count(np.array([pair]))[0])


def full_pair() -> int:
    """Return a queue pair whose first packet is a full one."""
    return int(SPACE.part_queue_pair[SPACE.part_of[np.argmax(SPACE.size_bytes)]])


def trimmed(frame: bytes, size: int, dscp: int) -> bytes:
    """Cut a frame as a switch that trims does."""
    cut = np.frombuffer(frame[:size], np.uint8).copy()[np.newaxis]
    if frame[14] >> 4 == 4:
        cut[0, 15] = dscp << 2
    else:
        cut[0, 14:16] = 0x60 | dscp >> 2, (dscp & 3) << 6
    set_lengths(cut, 34 if frame[14] >> 4 == 4 else 54, np.array([size]))
    return cut.tobytes()


@settings(max_examples=200, deadline=None)
@given(family=families, packets=sent())
def test_what_is_sent_is_received(family: int, packets: Packets) -> None:
    frames = made(family)
    got = received(frames, on_the_wire(frames, packets))
    assert got.kind.tolist() == packets.kind.tolist()
    assert got.queue_pair.tolist() == packets.queue_pair.tolist()
    assert got.entropy.tolist() == packets.entropy.tolist()
    assert not got.marked.any()
    assert not got.trimmed.any()
    for row, kind in enumerate(packets.kind.tolist()):
        for name in COMPARED[Kind(kind)]:
            assert getattr(got, name)[row] == getattr(packets, name)[row], (Kind(kind), name)


@settings(max_examples=60, deadline=None)
@given(family=families, packets=sent())
def test_every_frame_is_what_scapy_builds(family: int, packets: Packets) -> None:
    frames = made(family)
    for kind, frame in zip(packets.kind, on_the_wire(frames, packets), strict=True):
        rebuilt = Ether(frame)
        assert tuple(rebuilt.layers()[3:]) == LAYERS[Kind(kind)]
        for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len",))):
            if layer in rebuilt:
                for name in names:
                    rebuilt[layer].delfieldval(name)
        assert bytes(rebuilt) == frame


@BOTH
def test_every_packet_of_the_run_carries_its_part_of_a_message(family: int) -> None:
    frames = made(family)
    pair = SPACE.part_queue_pair[SPACE.part_of]
    psn = np.arange(SPACE.packets) - SPACE.first[pair]
    wire = on_the_wire(frames, Packets.of(Kind.DATA, pair, psn=psn, entropy=0xC001))
    carried = np.zeros(len(SIZES), np.int64)
    for flat, frame in enumerate(wire):
        shown = Ether(frame)
        ses, message = shown[SesRequest], int(SPACE.part_message[SPACE.part_of[flat]])
        request = shown[RudCcRequest]
        assert (request.psn, request.destination_pdc) == (psn[flat], QPN_BASE + pair[flat])
        assert request.source_pdc == QPN_BASE + pair[flat] + SPACE.queue_pairs
        assert (ses.message, ses.offset) == (message, carried[message])
        assert ses.start_of_message == (carried[message] == 0)
        carried[message] += ses.length
        assert ses.end_of_message == (carried[message] == SIZES[message])
        time = NOW_NS.to_bytes(8, "big")[: len(shown[Raw].load)]
        assert len(shown[Raw].load) == (ses.length + 3) // 4 * 4
        assert shown[Raw].load == time + FILL * (len(shown[Raw].load) - len(time))
    assert carried.tolist() == SIZES.tolist()
    lengths = np.array([len(frame) for frame in wire])
    assert (lengths[SPACE.size_bytes == PAYLOAD] == frames.length).all()
    assert received(frames, wire).psn.tolist() == psn.tolist()


@BOTH
def test_answers_go_back_to_the_initiator(family: int) -> None:
    for kind in LAYERS:
        shown = Ether(some(made(family), kind, pair=3))
        forth = kind in FORTH
        way = ends(3, family).there if forth else ends(3, family).back
        ip, head = shown[IP if family == 4 else IPv6], shown[LAYERS[kind][0]]
        assert (shown.src, ip.src, ip.dst) == (way.source_mac, way.source, way.destination)
        assert shown[UDP].dport == 4793
        target, initiator = QPN_BASE + 3, QPN_BASE + 3 + SPACE.queue_pairs
        ids = (initiator, target) if forth else (target, initiator)
        assert (head.source_pdc, head.destination_pdc) == ids


@settings(max_examples=60, deadline=None)
@given(family=families, packets=sent(), stamp=st.integers(1, 63))
def test_path_stamps_and_marks_of_the_way_change_nothing_else(
    family: int, packets: Packets, stamp: int
) -> None:
    frames = made(family)
    wire = [bytearray(frame) for frame in on_the_wire(frames, packets)]
    before = received(frames, [bytes(frame) for frame in wire])
    for frame in wire:
        assert frame[(34 if family == 4 else 54) + PATH_STAMP] & 0x3F == 0
        frame[(34 if family == 4 else 54) + PATH_STAMP] |= stamp
        frame[15] |= 3 if family == 4 else 0x30
    headers = np.array([list(bytes(frame).ljust(98, b"\0")[:98]) for frame in wire], np.uint8)
    lengths = np.array([len(frame) for frame in wire], np.uint32)
    assert frames.columns(headers, lengths).path_stamp.tolist() == [stamp] * len(wire)
    after = frames.reader.read(headers, lengths, TRIMMED, LAST_HOP)
    assert after.marked.all()
    after.marked[:] = False
    assert after.rows.tobytes() == before.rows.tobytes()


@pytest.mark.parametrize(("family", "least", "with_credit"), [(4, 54, 58), (6, 74, 78)])
def test_trimmed_data_is_known_by_its_dscp(family: int, least: int, with_credit: int) -> None:
    frames, pair = made(family), full_pair()
    frame = some(frames, Kind.DATA, pair, entropy=0xD00D, value=12345)
    sizes = [least, with_credit - 1, with_credit, 64 if family == 4 else 84]
    wire = [trimmed(frame, size, dscp) for size in sizes for dscp in (TRIMMED, LAST_HOP)]
    got = received(frames, wire)
    assert got.trimmed.tolist() == [True] * 8
    assert got.last_hop.tolist() == [False, True] * 4
    assert got.kind.tolist() == [Kind.DATA] * 8
    assert (got.queue_pair == pair).all()
    assert (got.entropy == 0xD00D).all()
    assert got.value.tolist() == [0] * 4 + [12345] * 4
    assert not len(received(frames, [trimmed(frame, least - 1, TRIMMED)]))


@BOTH
def test_data_that_lost_its_payload_unmarked_has_not_arrived(family: int) -> None:
    frames = made(family)
    frame = some(frames, Kind.DATA, full_pair())
    assert len(received(frames, [frame])) == 1
    assert not len(received(frames, [trimmed(frame, len(frame) - 1, dscp=8)]))


@BOTH
def test_what_is_not_of_the_run_is_left_out(family: int) -> None:
    frames, total = made(family), SPACE.queue_pairs
    udp = 34 if family == 4 else 54
    good, sack = some(frames, Kind.DATA, 1), some(frames, Kind.SACK, 1, psn=1)

    def changed(frame: bytes, offset: int, value: int, size: int = 2) -> bytes:
        head, rest = frame[: udp + offset], frame[udp + offset + size :]
        return head + value.to_bytes(size, "big") + rest

    reserved_type = 0x7F08
    bad = [
        # Unknown contexts, contexts that do not belong together, the other end's.
        changed(good, DESTINATION_PDC, QPN_BASE + 2 * total),
        changed(good, DESTINATION_PDC, 1),
        changed(good, DESTINATION_PDC, QPN_BASE + 2),
        changed(good, DESTINATION_PDC - 2, QPN_BASE + 1 << 16 | QPN_BASE + total + 1, 4),
        changed(sack, DESTINATION_PDC - 2, QPN_BASE + total + 1 << 16 | QPN_BASE + 1, 4),
        # As far apart as they should be, behind the last.
        changed(good, DESTINATION_PDC - 2, QPN_BASE + 2 * total << 16 | QPN_BASE + total, 4),
        changed(sack, DESTINATION_PDC - 2, QPN_BASE + total << 16 | QPN_BASE + 2 * total, 4),
        # Numbers that there are not: data's, a SACK's first missing and answered one.
        changed(good, 12, count_of(1), 4),
        changed(sack, 12, count_of(1), 4),
        changed(sack, 10, count_of(1)),
        # A bitmap that begins elsewhere, types unknown or not expected, a set-up packet.
        changed(sack, 22, 0),
        changed(good, PROLOGUE, reserved_type),
        changed(good, PROLOGUE, int.from_bytes(good[udp + 8 : udp + 10], "big") | 0x04),
        changed(some(frames, Kind.TRIM_NACK, 1), 10, 0x0700),
        changed(some(frames, Kind.CREDIT, 1), PROLOGUE, 11 << 11 | 9 << 7),
        changed(good, 2, 4791),
        # Short frames, by their own length and by the ring's.
        sack[: udp + 43],
        changed(sack, 4, 43),
        some(frames, Kind.CREDIT, 1)[:-1],
    ]
    for each in bad:
        assert received(frames, [good, each, sack]).kind.tolist() == [Kind.DATA, Kind.SACK]


@settings(max_examples=150, deadline=None)
@given(family=families, packets=sent(), seed=st.integers(0, 1 << 32))
def test_garbage_gives_packets_of_the_run_or_none(family: int, packets: Packets, seed: int) -> None:
    frames, rng = made(family), np.random.default_rng(seed)
    wire = [bytearray(frame) for frame in on_the_wire(frames, packets)]
    for frame in wire:
        for _ in range(rng.integers(1, 6)):
            frame[rng.integers(12, len(frame))] = rng.integers(256)
        del frame[rng.integers(14, len(frame) + 1) :]
    noise = [rng.bytes(int(rng.integers(1, 98))) for _ in range(4)]
    got = received(frames, [*map(bytes, wire), *noise])
    count = SPACE.count(got.queue_pair)
    assert ((got.queue_pair >= 0) & (got.queue_pair < SPACE.queue_pairs)).all()
    assert np.isin(got.kind, list(LAYERS)).all()
    assert ((got.psn >= 0) & (got.psn < count + (got.kind == Kind.SACK))).all()
    assert ((got.echo_psn >= 0) & (got.echo_psn < count)).all()
    assert ((got.value >= 0) & (got.value <= 0xFFFFFF)).all()
    spoken = [int(bitmap).bit_length() for bitmap in got.bitmap]
    assert (got.psn + spoken <= count).all()


def test_bitmaps_lose_what_lies_behind_the_last_packet() -> None:
    frames = made(4)
    pair = int(np.argmax(SPACE.count(np.arange(SPACE.queue_pairs))))
    count = count_of(pair)
    assert 2 <= count < 64
    all_ones = np.array([2**64 - 1], np.uint64)
    wire = [some(frames, Kind.SACK, pair, psn=psn, bitmap=all_ones) for psn in (0, 1, count)]
    expected = [(1 << count) - 1, (1 << (count - 1)) - 1, 0]
    assert received(frames, wire).bitmap.tolist() == expected


def test_an_answered_number_too_far_away_is_replaced_by_one_that_has_arrived() -> None:
    many = PacketSpace.of(np.array([0]), np.array([1]), np.array([70_000 * 16]), 16)
    frames = uet_frames(many, np.array([0]), [ends(0, 4)], FILL)
    first_missing, answered = np.array([40_000, 40_000, 40_000, 0]), [40_000, 0, 39_999, 1]
    packets = Packets.of(Kind.SACK, np.zeros(4, np.int64), psn=first_missing, echo_psn=answered)
    # 40,000 from the last in order: out of reach of 16 signed bits.
    got = received(frames, on_the_wire(frames, packets))
    assert got.psn.tolist() == [40_000, 40_000, 40_000, 0]
    assert got.echo_psn.tolist() == [40_000, 39_999, 39_999, 1]
    # Nothing is in order yet and the packet answered is out of reach: there is nothing to say.
    far = Packets.of(Kind.SACK, np.array([0]), psn=0, echo_psn=60_000)
    assert not len(received(frames, on_the_wire(frames, far)))


def test_a_worker_encodes_only_its_own_queue_pairs() -> None:
    few = uet_frames(SPACE, np.array([1, 4]), [ends(1, 4), ends(4, 4)], FILL)
    packets = Packets.of(np.array([0, 3, 0]), np.array([4, 1, 1]), psn=0, entropy=7)
    assert on_the_wire(few, packets) == on_the_wire(made(4), packets)


def test_limits_are_named() -> None:
    rows, of_one = np.array([0]), [ends(0, 4)]
    most = np.zeros(MOST_QUEUE_PAIRS + 1, np.int64)
    assert uet_frames(replace(SPACE, first=most), rows, of_one, FILL).length == 34 + 36 + PAYLOAD
    with pytest.raises(ValueError, match="32513 queue pairs; 32512 are the most"):
        uet_frames(replace(SPACE, first=np.append(most, 0)), rows, of_one, FILL)
    with pytest.raises(ValueError, match="8388608 packets at most"):
        uet_frames(replace(SPACE, first=np.array([0, MOST_PACKETS + 1])), rows, of_one, FILL)
    with pytest.raises(ValueError, match="11 bytes are too short"):
        uet_frames(replace(SPACE, payload=11), rows, of_one, FILL)


def test_packets_that_have_no_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="of this kind have no frames"):
        some(made(4), Kind.CNP)


def test_no_packets_make_no_frames() -> None:
    frames = made(6)
    assert on_the_wire(frames, Packets.none()) == []
    empty = np.empty((0, 98), np.uint8)
    assert len(frames.reader.read(empty, np.empty(0, np.uint32), TRIMMED, LAST_HOP)) == 0


@BOTH
def test_only_probes_are_probes(family: int) -> None:
    frames = made(family)
    for kind in LAYERS:
        frame = some(frames, kind).ljust(98, b"\0")[:98]
        headers = np.frombuffer(frame, np.uint8)[np.newaxis]
        columns = frames.columns(headers, np.array([len(frame)], np.uint32))
        assert columns.probe.tolist() == [kind == Kind.PROBE], kind
