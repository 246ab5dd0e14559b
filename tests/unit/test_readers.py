"""Frames as compiled readers take them, held against their columns, whatever was done to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.nic.formats import Ends, FrameFormat
from fabric_emu.nic.ring import HEADER_BYTES
from fabric_emu.nic.roce_frames import roce_frames
from fabric_emu.nic.transport.packets import DTYPE, Kind, Packets
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.uet_frames import uet_frames
from fabric_emu.wire.decode import HeaderColumns
from fabric_emu.wire.layout import Opcode
from fabric_emu.wire.mrc_layout import MrcOpcode
from fabric_emu.wire.rocev2 import Envelope
from fabric_emu.wire.uet_decode import UetColumns
from fabric_emu.wire.uet_layout import ControlType, PdsType

TRIMMED, LAST_HOP = 49, 50
FILL = b"\xa5"
SIZES = np.array([64, 128, 1, 200, 9, 300, 64 * 70])
SPACE = PacketSpace.of(np.arange(7) % 3, (np.arange(7) % 3 + 1) % 4, SIZES, 64, queue_pairs=2)
TOTAL = SPACE.queue_pairs
FORTH = (Kind.DATA, Kind.PROBE)
KINDS = {
    "rc": (Kind.DATA, Kind.ACK, Kind.NAK, Kind.CNP),
    "mrc": (Kind.DATA, Kind.SACK, Kind.TRIM_NACK, Kind.PROBE, Kind.PROBE_ACK),
    "uet": (Kind.DATA, Kind.SACK, Kind.TRIM_NACK, Kind.CREDIT, Kind.PROBE, Kind.PROBE_ACK),
}
UDP = {4: 34, 6: 54}
Row = dict[str, int]


def made(transport: str, family: int) -> Any:
    prefix = "10.0.0." if family == 4 else "fd00::"

    def way(source: int, destination: int) -> Envelope:
        return Envelope(
            source_mac="02:00:00:00:00:01",
            destination_mac="02:00:00:00:00:02",
            source=f"{prefix}{source + 1}",
            destination=f"{prefix}{destination + 1}",
            source_port=0xC000,
        )

    both = zip(SPACE.source.tolist(), SPACE.destination.tolist(), strict=True)
    ends = [Ends(way(here, there), way(there, here)) for here, there in both]
    rows = np.arange(TOTAL)
    if transport == "uet":
        return uet_frames(SPACE, rows, ends, FILL)
    return roce_frames(SPACE, rows, ends, transport == "mrc", FILL)


def sent(frames: FrameFormat, kinds: tuple[Kind, ...], draw: np.random.Generator) -> list[bytes]:
    """Return one frame of each of some packets."""
    n = 200
    pair = draw.choice(np.flatnonzero(np.diff(SPACE.first)), n)
    kind, count = draw.choice(kinds, n), SPACE.count(pair)
    packets = Packets.of(
        kind,
        pair,
        psn=draw.integers(0, count + (kind == Kind.SACK)),
        echo_psn=draw.integers(0, count),
        value=draw.integers(0, 1 << 24, n),
        bitmap=draw.integers(0, 1 << 64, n, np.uint64),
        **{name: draw.integers(0, 1 << 16, n) for name in ("entropy", "echo")},
        **{
            name: draw.integers(0, 2, n, np.uint8).astype(bool)
            for name in ("echo_marked", "last_hop", "retransmission")
        },
    )
    built = frames.writer.write(packets, 1)
    return built.assemble(frames.payload)


def damaged(frame: bytes, udp: int, draw: np.random.Generator) -> bytes:
    """Change some bytes of the headers, set a code point, cut the frame: each now and then."""
    changed = bytearray(frame)
    for _ in range(draw.integers(0, 4)):
        at = draw.integers(12, min(udp + 44, len(frame)))
        old = changed[at]
        changed[at] = int(draw.choice([old + 1, old - 1, int(draw.integers(256))])) & 0xFF
    if draw.random() < 0.4:
        dscp, ecn = int(draw.choice([TRIMMED, LAST_HOP, 8])), int(draw.integers(4))
        tos = dscp << 2 | ecn
        changed[14:16] = bytes([0x45, tos]) if udp == UDP[4] else (0x6000 | tos << 4).to_bytes(2)
    if draw.random() < 0.4:
        size = int(draw.integers(12, min(udp + 48, len(frame))))
        if size > udp and draw.random() < 0.8:
            changed[udp + 4 : udp + 6] = (size - udp).to_bytes(2)
        del changed[size:]
    return bytes(changed)


def expected(columns: Any, i: int, transport: str) -> Row | None:
    """Return what a frame's columns say that its packet is."""
    if not columns.found[i]:
        return None
    read = expected_uet if transport == "uet" else expected_roce
    dscp = int(columns.dscp[i])
    row = {
        "entropy": int(columns.source_port[i]),
        "marked": int(columns.ecn[i] == 3),
        "trimmed": int(dscp in (TRIMMED, LAST_HOP)),
        "last_hop": int(dscp == LAST_HOP),
        "psn": int(columns.psn[i]),
    }
    held = bytes(columns.transport[i, : min(columns.held[i], columns.udp_length[i])])
    more = read(columns, i, held, transport, bool(row["trimmed"]))
    if more is None:
        return None
    row |= more
    end = int(SPACE.count(np.array([row["queue_pair"]]))[0])
    sack = row["kind"] == Kind.SACK
    if row["psn"] >= end + sack or row.get("echo_psn", 0) >= end:
        return None
    if sack:
        row["bitmap"] &= (1 << end - row["psn"]) - 1
    return row


def expected_roce(
    columns: HeaderColumns, i: int, held: bytes, transport: str, trimmed: bool
) -> Row | None:
    kinds: dict[int, Kind] = (
        {
            **dict.fromkeys(range(Opcode.RC_SEND_LAST + 1), Kind.DATA),
            Opcode.RC_SEND_ONLY: Kind.DATA,
            Opcode.RC_ACKNOWLEDGE: Kind.NAK if columns.syndrome[i] >> 5 == 3 else Kind.ACK,
            Opcode.CNP: Kind.CNP,
        }
        if transport == "rc"
        else {
            **dict.fromkeys(range(MrcOpcode.WRITE_FIRST, MrcOpcode.WRITE_LAST + 1), Kind.DATA),
            MrcOpcode.WRITE_ONLY: Kind.DATA,
            MrcOpcode.SACK: Kind.SACK,
            MrcOpcode.NACK: Kind.TRIM_NACK,
            MrcOpcode.PROBE: Kind.PROBE,
            MrcOpcode.PROBE_ACK: Kind.PROBE_ACK,
        }
    )
    kind = kinds.get(int(columns.opcode[i]))
    if kind is None:
        return None
    pair = int(columns.qpn[i]) - QPN_BASE - (0 if kind in FORTH else TOTAL)
    needed = {Kind.DATA: 0, Kind.CNP: 0, Kind.SACK: 24}.get(kind, 4)
    if not 0 <= pair < TOTAL or len(held) < 20 + needed:
        return None
    row: Row = {"kind": kind, "queue_pair": pair}
    above = held[20:]
    if kind == Kind.SACK:
        row |= {
            "echo_psn": int.from_bytes(above[:4]),
            "echo": int.from_bytes(above[4:6]),
            "echo_marked": above[6] >> 7,
            "bitmap": int.from_bytes(above[8:16]),
            "value": int.from_bytes(above[16:24], signed=True),
        }
    elif transport == "mrc" and kind != Kind.DATA:
        row |= {"echo_psn": int(columns.psn[i]), "echo": int.from_bytes(above[:2])}
        if kind == Kind.TRIM_NACK:
            row["last_hop"] = above[2] == 2
    return row


def expected_uet(
    columns: UetColumns, i: int, held: bytes, transport: str, trimmed: bool
) -> Row | None:
    flags = int(columns.prologue[i]) & 0x7F
    following = int(columns.prologue[i]) >> 7 & 0xF
    kinds: dict[tuple[int, int], tuple[Kind, bool]] = {
        (PdsType.RUD_CC_REQ, 14): (Kind.DATA, not flags & 0x04),
        (PdsType.ACK_CC, 15): (Kind.SACK, not flags & 0x08),
        (PdsType.NACK, 15): (Kind.TRIM_NACK, not flags & 0x08),
        (PdsType.CONTROL, ControlType.CREDIT): (Kind.CREDIT, not flags & 0x04),
        (PdsType.CONTROL, ControlType.PROBE): (Kind.PROBE, not flags & 0x04),
        (PdsType.ACK, 15): (Kind.PROBE_ACK, flags & 0x08 != 0),
    }
    kind, right = kinds.get((int(columns.type[i]), following), (Kind.DATA, False))
    target, initiator = (
        int(columns.destination[i]) - QPN_BASE,
        int(columns.source_pdc[i]) - QPN_BASE,
    )
    if kind not in FORTH:
        target, initiator = initiator, target
    needed = {Kind.DATA: 36, Kind.SACK: 44, Kind.TRIM_NACK: 28}.get(kind, 24)
    cut = kind == Kind.DATA and trimmed
    if not right or not 0 <= target < TOTAL or initiator != target + TOTAL:
        return None
    if not cut and len(held) < needed:
        return None
    row: Row = {"kind": kind, "queue_pair": target}
    psn, half = int(columns.psn[i]), int(columns.second_half[i])
    if kind == Kind.DATA:
        row["retransmission"] = flags >> 4 & 1
        flat = int(SPACE.first[target]) + psn
        exists = psn < SPACE.first[target + 1] - SPACE.first[target]
        if exists and not cut and columns.udp_length[i] < 36 + SPACE.size_bytes[flat]:
            return None
    else:
        row |= {"echo": half, "echo_psn": psn}
    if kind in (Kind.DATA, Kind.CREDIT) and len(held) >= 24:
        row["value"] = int(columns.credit[i])
    if kind == Kind.SACK:
        if columns.sack_offset[i] != 1:
            return None
        row |= {
            "psn": psn + 1 & 0xFFFFFFFF,
            "echo_psn": psn + int(columns.psn_offset[i]) & 0xFFFFFFFF,
            "echo": int(columns.answer_entropy(40)[i]),
            "echo_marked": flags >> 5 & 1,
            "bitmap": int(columns.sack_bitmap[i]),
        }
    elif kind == Kind.TRIM_NACK:
        if half >> 8 not in (1, 2):
            return None
        row |= {
            "echo": int(columns.answer_entropy(24)[i]),
            "echo_marked": flags >> 5 & 1,
            "last_hop": half >> 8 == 2,
        }
    return row


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("transport", list(KINDS))
def test_packets_are_what_the_columns_of_their_frames_say(transport: str, family: int) -> None:
    draw = np.random.default_rng(family)
    frames: FrameFormat = made(transport, family)
    whole = sent(frames, KINDS[transport], draw)
    wire = whole + [damaged(frame, UDP[family], draw) for frame in whole * 15]
    headers = draw.integers(0, 256, (len(wire), HEADER_BYTES), np.uint8)
    for header, frame in zip(headers, wire, strict=True):
        header[: len(frame)] = np.frombuffer(frame[:HEADER_BYTES], np.uint8)
    lengths = np.array([len(frame) for frame in wire], np.uint32)
    columns = frames.columns(headers, lengths)
    rows = [expected(columns, i, transport) for i in range(len(wire))]
    kept = [row for row in rows if row is not None]
    assert all(row is not None for row in rows[: len(whole)])
    assert len(whole) + 100 < len(kept) < len(wire) - 100
    got = frames.reader.read(headers, lengths, TRIMMED, LAST_HOP).rows
    assert len(got) == len(kept)
    for name in DTYPE.names or ():
        if name != "padding":
            assert got[name].tolist() == [row.get(name, 0) for row in kept], name


@pytest.mark.parametrize("transport", list(KINDS))
def test_rows_that_could_be_read_beyond_are_refused(transport: str) -> None:
    rows, lengths = np.zeros((1, HEADER_BYTES - 1), np.uint8), np.array([98], np.uint32)
    with pytest.raises(ValueError, match="too short"):
        made(transport, 4).reader.read(rows, lengths, TRIMMED, LAST_HOP)
