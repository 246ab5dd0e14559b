"""One frame in many envelopes: byte for byte what scapy builds in each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.packet import Raw

from fabric_emu.wire.replicate import heads_of, replicate, set_lengths
from fabric_emu.wire.rocev2 import Envelope

IPV4 = Envelope(
    source_mac="02:00:00:00:00:01",
    destination_mac="02:00:00:00:00:02",
    source="10.0.0.1",
    destination="10.0.0.2",
    source_port=0xC123,
)
IPV6 = replace(IPV4, source="fd00::1", destination="fd00:1::1")


@st.composite
def envelopes(draw: st.DrawFn) -> list[Envelope]:
    like = draw(st.sampled_from([IPV4, IPV6]))
    prefix = "10.255." if like is IPV4 else "fd00::"
    separator = "." if like is IPV4 else ":"
    number = st.integers(0, 255)
    return [
        replace(
            like,
            source=f"{prefix}{draw(number)}{separator}{draw(number)}",
            destination_mac=f"02:00:00:00:00:{draw(number):02x}",
            source_port=draw(st.integers(0, 0xFFFF)),
            dscp=draw(st.integers(0, 63)),
            ecn=draw(st.integers(0, 3)),
            ttl=draw(st.integers(1, 255)),
            flow_label=draw(st.integers(0, 0xFFFFF)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ] * draw(st.integers(1, 2))


@settings(max_examples=80, deadline=None)
@given(among=envelopes(), size=st.integers(0, 1000), shorter=st.integers(0, 100))
def test_copies_are_what_scapy_builds(among: list[Envelope], size: int, shorter: int) -> None:
    frame = bytes(replace(among[0], ttl=7).frame(Raw(bytes(size))))
    rows = replicate(frame, heads_of(among))
    whole = [bytes(envelope.frame(Raw(bytes(size)))) for envelope in among]
    assert [row.tobytes() for row in rows] == whole

    left = max(size - shorter, 0)
    end = rows.shape[1] - size + left
    udp = 34 if ":" not in among[0].source else 54
    set_lengths(rows, udp, np.full(len(rows), end))
    cut = [bytes(envelope.frame(Raw(bytes(left)))) for envelope in among]
    assert [row[:end].tobytes() for row in rows] == cut


def test_versions_do_not_mix() -> None:
    with pytest.raises(ValueError, match="one IP version"):
        heads_of([IPV4, IPV6])
    with pytest.raises(ValueError, match="IP version of the frame"):
        replicate(bytes(IPV4.frame(Raw(b"data"))), heads_of([IPV6]))
