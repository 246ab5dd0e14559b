"""What a lost member moves, against RFC 2992."""

import numpy as np
import pytest

from fabric_emu.predict.failure import remove_from_hash_threshold, remove_from_resilient
from fabric_emu.predict.multipath import FiveTuples, multipath_hash

FLOWS = 100_000
DEVIATION = 0.5 / FLOWS**0.5  # of a share, at most


@pytest.fixture(scope="module")
def hashes():
    draw = np.random.default_rng(1)
    source, destination = draw.integers(0x0A000000, 0x0B000000, (2, FLOWS), np.uint32)
    ports = draw.integers(0xC000, 0x10000, FLOWS, np.uint16)
    return multipath_hash(FiveTuples(4, source, destination, sport=ports, dport=4791), 12345)


# RFC 2992: of five, 3/10 when the middle one goes, 7/20 beside it, 1/2 at the edges.
@pytest.mark.parametrize(
    ("members", "removed", "share"),
    [(5, 2, 0.3), (5, 3, 0.35), (5, 1, 0.35), (5, 0, 0.5), (5, 4, 0.5), (2, 0, 0.5), (8, 0, 0.5)],
)
def test_hash_threshold_moves_what_the_formula_says(hashes, members, removed, share):
    removal = remove_from_hash_threshold(hashes, members, removed)
    assert removal.expected == pytest.approx(share)
    assert removal.moved == pytest.approx(share, abs=5 * DEVIATION)
    assert removal.moved_needlessly == pytest.approx(share - 1 / members, abs=5 * DEVIATION)
    assert not (removal.after == removed).any()
    assert set(removal.after) == set(range(members)) - {removed}


@pytest.mark.parametrize("removed", range(4))
def test_a_resilient_group_moves_the_lost_members_flows_only(hashes, removed):
    removal = remove_from_resilient(hashes, 4, removed, buckets=64)
    assert removal.expected == 0.25
    assert removal.moved == pytest.approx(0.25, abs=5 * DEVIATION)
    assert removal.moved_needlessly == 0
    assert not (removal.after == removed).any()
    # Its 16 buckets go to three members: 5 or 6 each, beside the 16 they have.
    share = np.bincount(removal.after, minlength=4) / FLOWS
    left = np.delete(share, removed)
    assert left.min() > 21 / 64 - 5 * DEVIATION
    assert left.max() < 22 / 64 + 5 * DEVIATION


@pytest.mark.parametrize(("members", "removed"), [(1, 0), (4, 4), (4, -1)])
def test_members_that_are_not_there_cannot_go(hashes, members, removed):
    for remove in (
        lambda: remove_from_hash_threshold(hashes, members, removed),
        lambda: remove_from_resilient(hashes, members, removed, 64),
    ):
        with pytest.raises(ValueError, match="2 or more members"):
            remove()
