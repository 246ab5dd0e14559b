"""Reorder density and buffer over all flows against those of RFC 5236 flow by flow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.measure.reorder_profile import reorder_profile
from fabric_emu.measure.rfc5236 import buffer_occupancy_density, reorder_density


def shares(profile: dict[str, np.ndarray], at: str, share: str) -> dict[int, float]:
    return dict(zip(profile[at].tolist(), profile[share].tolist(), strict=True))


def test_by_hand() -> None:
    # RFC 5236, example of RD: 1 4 2 5 3 6 7 8 has displacements 0 2 1 1 2 0 0 0, where those that
    # come early are negative: 4 and 5 by -2 and -1, 2 and 3 late by 1 and 2.
    profile = reorder_profile(np.zeros(8, np.int64), np.array([1, 4, 2, 5, 3, 6, 7, 8]))
    assert shares(profile, "displacement", "displacement_share") == {
        -2: 1 / 8,
        -1: 1 / 8,
        0: 4 / 8,
        1: 1 / 8,
        2: 1 / 8,
    }
    # 4 waits for 2 and 3; then 5 waits, too.
    assert shares(profile, "waiting_packets", "waiting_share") == {0: 5 / 8, 1: 2 / 8, 2: 1 / 8}


def test_nothing_received() -> None:
    profile = reorder_profile(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert {name: len(column) for name, column in profile.items()} == dict.fromkeys(profile, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=60))
def test_is_the_mean_of_the_flows(arrivals: list[tuple[int, int]]) -> None:
    flow, sequence = np.array(arrivals).T
    profile = reorder_profile(flow, sequence)
    # Displacements stay below 31: with that threshold exactly what never comes counts as lost.
    expected: dict[int, float] = {}
    counted = 0
    for one in np.unique(flow):
        found = reorder_density(sequence[flow == one], 31)
        packets = int(found.counted.sum())
        counted += packets
        for displacement, share in zip(found.displacement, found.density, strict=True):
            expected[int(displacement)] = expected.get(int(displacement), 0) + share * packets
    assert counted == len(set(arrivals))
    found_shares = shares(profile, "displacement", "displacement_share")
    for displacement, expected_packets in expected.items():
        np.testing.assert_allclose(
            found_shares.get(displacement, 0) * counted, expected_packets, atol=1e-9
        )


@given(st.permutations(range(20)))
def test_buffer_is_that_of_rfc_5236_without_loss(sequence: list[int]) -> None:
    profile = reorder_profile(np.zeros(20, np.int64), np.array(sequence))
    expected = buffer_occupancy_density(np.array(sequence), 20)
    found = shares(profile, "waiting_packets", "waiting_share")
    np.testing.assert_allclose([found.get(i, 0) for i in range(21)], expected.density)
