"""The load of a port: a moving average of what it sends, made up for when somebody looks."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator

import numpy as np
import pytest

from fabric_emu.switch.columns import Records, map_entries
from fabric_emu.switch.ports import PORT_DTYPE, PortConstants, PortTable
from fabric_emu.switch.quality import discounted, full_load_bytes

pytestmark = pytest.mark.root

CONSTANTS = PortConstants(ifindex_base=1, port_count=2)
FRAME = bytes(12) + b"\x88\xb5" + bytes(986)
DAY = 86_400 * 10**9


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        yield table


@pytest.fixture
def ports(table: PortTable) -> Records:
    mappings: list[mmap.mmap] = []
    return map_entries(table.bpf.map_fds["ports"], PORT_DTYPE, 2, mappings)


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def test_bytes_add_up_within_a_tick(table: PortTable) -> None:
    table.configs["load_tick_ns"] = 1000 * DAY
    table.configs["load_shift"] = 4
    for count in range(1, 4):
        table.bpf.test_run("port_egress", FRAME)
        assert table.ports["load_bytes"].tolist() == [count * 1000, 0]


def test_what_is_dropped_is_no_load(table: PortTable) -> None:
    table.configs["load_tick_ns"] = 1000 * DAY
    table.configs["blackhole"] = 1
    table.bpf.test_run("port_egress", FRAME)
    assert table.ports["load_bytes"].tolist() == [0, 0]


def test_without_a_tick_nothing_is_measured(table: PortTable) -> None:
    table.bpf.test_run("port_egress", FRAME)
    assert (table.ports["load_bytes"].any(), table.ports["load_tick"].any()) == (False, False)


@pytest.mark.parametrize("shift", [2, 4, 6, 9])
@pytest.mark.parametrize("ticks", [0, 1, 2, 3, 7, 30, 100, 1000, 8191, 8192, 10**6])
def test_ticks_are_made_up_for(table: PortTable, ports: Records, shift: int, ticks: int) -> None:
    # With a tick a second long and that many of them behind, the next packet finds the load as
    # the ticks have left it. A tick may pass meanwhile.
    tick_ns = 10**9
    table.configs["load_tick_ns"] = tick_ns
    table.configs["load_shift"] = shift
    load = 10**9
    expected = {
        int(discounted(words(load), words(ticks + more), words(shift))[0]) + len(FRAME)
        for more in (0, 1)
    }
    ports["load_bytes"][0] = load
    ports["load_tick"][0] = np.uint64((time.monotonic_ns() // tick_ns - ticks) % 2**64)
    table.bpf.test_run("port_egress", FRAME)
    if ticks > time.monotonic_ns() // tick_ns:  # before the machine started: no tick at all
        expected = {load + len(FRAME)}
    assert int(ports["load_bytes"][0]) in expected
    assert time.monotonic_ns() // tick_ns - int(ports["load_tick"][0]) <= 1


@pytest.mark.parametrize("shift", [2, 3, 4, 6, 9])
def test_discounts_are_powers(shift: int) -> None:
    # A factor in 16 bits is rounded down at every squaring and every product. A power by squaring
    # has the sum of its parts' errors, relative: at most 2^13 times 2^-16 of the factor's own in
    # the worst case, but then the power itself is close to nothing. In absolute terms n squarings
    # leave n f^(n-1) 2^-16 of error, which is largest at n = 2^shift: below 2^(shift - 16) / e.
    ticks = np.array([*range(50), 100, 500, 1000, 4000, 8191], np.uint64)
    load = np.full(len(ticks), 10**9, np.uint64)
    found = discounted(load, ticks, np.full(len(ticks), shift, np.uint64))
    exact = 1e9 * (1 - 2.0**-shift) ** ticks.astype(float)
    assert np.abs(found - exact).max() < 1e9 * 2.0 ** (shift - 15)
    assert (np.diff(found.astype(np.int64)) <= 0).all()


def test_the_load_is_forgotten_in_the_end() -> None:
    assert discounted(words(2**40), words(2**13), words(9)).tolist() == [0]
    # 2^13 ticks at the slowest discount leave e^-16.
    assert discounted(words(10**9), words(2**13 - 1), words(9))[0] < 10**9 * 1e-6


def test_a_shorter_tick_is_no_discount(table: PortTable, ports: Records) -> None:
    # Ticks count from the machine's start: longer ones are fewer, so that time seems to go back.
    table.configs["load_shift"] = 4
    table.configs["load_tick_ns"] = 1000
    table.bpf.test_run("port_egress", FRAME)
    table.configs["load_tick_ns"] = 1000 * DAY
    table.bpf.test_run("port_egress", FRAME)
    assert ports["load_bytes"][0] == 2000
    assert ports["load_tick"][0] == 0


@pytest.mark.parametrize("shift", [2, 4, 6])
def test_a_steady_rate_settles_at_the_load_of_a_full_port(shift: int) -> None:
    # 40 Mbit/s, ticks of 1 ms: 5,000 bytes a tick, in five packets.
    load, seen = words(0), []
    for tick in range(20 << shift):
        load = discounted(load, words(1), words(shift))
        for _ in range(5):
            load = load + np.uint64(1000)
            if tick > 10 << shift:
                seen.append(int(load[0]))
    expected = full_load_bytes(40_000_000, 1_000_000, shift)
    # Seen after each packet it stands half a packet higher than in the middle of the tick; the
    # fixed point loses at most a byte a tick, kept for 2^shift ticks.
    assert np.mean(seen) == pytest.approx(expected + 500, abs=2**shift + 1)
