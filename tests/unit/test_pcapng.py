"""Blocks of pcapng files, read back by scapy."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scapy.utils import PcapNgReader, RawPcapNgReader

from fabric_emu.capture.captures import Captures
from fabric_emu.capture.pcapng import INBOUND, OUTBOUND, interface, packets, section, statistics
from fabric_emu.errors import ScenarioError
from fabric_emu.model.topology import Topology

TIME_NS = 1_790_000_000_123_456_789


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def blocks(content: bytes) -> list[tuple[int, bytes]]:
    """Return the kinds and bodies of blocks, having checked both of their lengths."""
    found = []
    while content:
        kind, length = struct.unpack_from("<II", content)
        assert length % 4 == 0
        assert struct.unpack_from("<I", content, length - 4) == (length,)
        found.append((kind, content[8 : length - 4]))
        content = content[length:]
    return found


def opened(content: bytes) -> Any:  # scapy's readers take files, but their annotations do not
    return io.BytesIO(content)


@given(st.data())
def test_packets_of_any_length_come_back(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=20))
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    # What stands behind a packet's end in its row must not get into the file.
    rows = rng.integers(1, 256, (len(sizes), 72), np.uint8)
    captured = ints(*sizes)
    number = rng.integers(0, 2, len(sizes))
    time_ns = TIME_NS + np.arange(len(sizes)) * 1001
    flags = np.where(number == 0, INBOUND, OUTBOUND).astype(np.int64)
    content = section("test", "none") + b"".join(
        interface(name, "an end", 10**8, 0) for name in ("leaf1:spine1", "spine1:leaf1")
    )
    body = packets(number, rows, captured, captured + 3, time_ns, flags).tobytes()
    for (kind, block), size in zip(blocks(body), sizes, strict=True):
        assert kind == 6
        padding = -size % 4
        assert block[20 + size : 20 + size + padding] == bytes(padding)
    content += body + statistics(1, TIME_NS, len(sizes), 7)
    found: list[Any] = list(RawPcapNgReader(opened(content)))
    assert [packet for packet, _ in found] == [
        rows[i, :size].tobytes() for i, size in enumerate(sizes)
    ]
    for i, (_, about) in enumerate(found):
        ticks = about.tshigh << 32 | about.tslow
        assert (ticks, about.tsresol, about.wirelen) == (time_ns[i], 10**9, sizes[i] + 3)
        assert about.ifname.decode() == ("leaf1:spine1", "spine1:leaf1")[number[i]]
        assert about.direction == flags[i]


def test_times_are_those_of_the_kernel_to_the_nanosecond() -> None:
    content = section("test", "none") + interface("h1:eth0", "a NIC", 10**8, 0)
    row = np.zeros((1, 60), np.uint8)
    packet_block = packets(ints(0), row, ints(60), ints(60), ints(TIME_NS), ints(INBOUND))
    content += packet_block.tobytes()
    (packet,) = list(PcapNgReader(opened(content)))
    assert int(packet.time * 10**9) == TIME_NS


def test_statistics_tell_what_the_kernel_lost() -> None:
    ((kind, body),) = blocks(statistics(1, TIME_NS, 1000, 7))
    assert kind == 5
    assert struct.unpack_from("<I", body) == (1,)
    assert struct.unpack_from("<HHQHHQ", body, 12) == (4, 8, 1000, 5, 8, 7)


@pytest.mark.parametrize("name", ["leaf1-spine2", "spine2-leaf1", "h2-leaf1", "h4"])
def test_links_by_either_end_and_hosts_can_be_captured(name: str, tmp_path: Any) -> None:
    Captures(Topology(), [name, name], several_seeds=False, near=tmp_path).close()


@pytest.mark.parametrize(("name", "near"), [("leaf1-spin1", "leaf1-spine1"), ("h11", "h1")])
def test_what_cannot_be_captured_is_refused_with_a_near_name(
    name: str, near: str, tmp_path: Any
) -> None:
    with pytest.raises(ScenarioError, match="a link such as leaf2-spine2, or a host") as caught:
        Captures(Topology(), [name], several_seeds=False, near=tmp_path)
    assert str(caught.value).endswith(f"did you mean {near!r}?")
