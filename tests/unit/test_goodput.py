from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.measure.goodput import PACKETS_PER_BIN, goodput, goodput_bps


def test_goodput_by_hand():
    # 1000 bytes over 1 s, 300 at once at 2.5 s, and a message that never ends.
    found = goodput_bps(
        np.array([0.5, 2.5, 0.0]),
        np.array([1.5, 2.5, np.nan]),
        np.array([1000, 300, 10**6]),
        np.array([0.0, 1.0, 2.0, 4.0]),
    )
    assert found == pytest.approx([4000, 4000, 1200])
    nothing = np.zeros(0)
    assert goodput_bps(nothing, nothing, nothing.astype(int), np.arange(3.0)).tolist() == [0, 0]


def test_goodput_of_a_run_shows_a_stall_and_counts_what_arrived():
    # Two packets a millisecond, except for the third of four tenths of a second.
    arrived = np.sort(np.tile(np.arange(1, 401) / 1000, 2))
    stalled = (arrived > 0.2) & (arrived <= 0.3)
    arrived[stalled] = np.nan
    size = np.full(len(arrived), 1000)
    found = goodput(arrived, size)
    edges, bps = found["goodput_edges_s"], found["goodput_bps"]
    assert len(bps) == 600 // PACKETS_PER_BIN
    assert (edges[0], edges[-1]) == (0, 0.4)
    assert (bps * np.diff(edges)).sum() / 8 == pytest.approx(600 * 1000)
    inside = (edges[:-1] > 0.2) & (edges[1:] < 0.3)
    assert inside.any()
    assert not bps[inside].any()
    # 2 x 8000 bit in each millisecond; a bin of 6.67 ms has 6 of them or 7.
    lively = (edges[1:] < 0.2) | (edges[:-1] > 0.3)
    assert bps[lively] == pytest.approx(16e6, rel=1 / 6.6)
    nothing = goodput(np.full(3, np.nan), np.full(3, 1000))
    assert [len(column) for column in nothing.values()] == [0, 0]


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 5), st.integers(1, 10**6)), min_size=1, max_size=40
    )
)
def test_goodput_delivers_every_byte_once(messages):
    start, finish = (np.array(column) for column in zip(*[m[:2] for m in messages], strict=True))
    start, finish = np.minimum(start, finish), np.maximum(start, finish)
    size = np.array([m[2] for m in messages])
    edges = np.array([0.0, 1.0, 1.25, 4.0, 5.0])
    found = goodput_bps(start, finish, size, edges)
    total = float((found * np.diff(edges)).sum()) / 8
    assert total == pytest.approx(size.sum(), rel=1e-6)
    assert found.min() >= -1e-6 * size.sum()
