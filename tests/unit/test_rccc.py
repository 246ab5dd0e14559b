"""Receiver credit: values worked out by hand, and that none is minted or lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.congestion.rccc import CreditScheduler
from fabric_emu.nic.congestion.rccc_account import CreditAccount

LINE = 50e6


def column(*values):
    return np.array(values, np.int64)


PACKETS_PER_S = 1000.0
PACKET = LINE / 8 / PACKETS_PER_S


def scheduler(host_of_pair, **options):
    """Return a scheduler that grants 1000 packets a second."""
    return CreditScheduler(column(*host_of_pair), LINE, PACKET, utilisation=1.0, **options)


def hear(credit, rows, target):
    credit.hear(rows, target, np.zeros(len(rows), bool))


def test_credit_is_paced_and_never_more_than_wanted():
    credit = scheduler([0, 0])
    hear(credit, column(0, 1, 0), column(5, 6, 3))
    rows, packets = credit.grant(0.0)
    assert (rows.tolist(), packets.tolist()) == ([0], [4])  # one pull at once
    rows, packets = credit.grant(0.0039)
    assert len(rows) == 0
    rows, packets = credit.grant(0.004)
    assert (rows.tolist(), packets.tolist()) == ([1], [4])
    rows, packets = credit.grant(1.0)
    assert (rows.tolist(), packets.tolist()) == ([0, 1], [1, 2])
    assert credit.granted.tolist() == [5, 6]


def test_a_host_that_was_idle_saves_no_more_than_a_pull():
    credit = scheduler([0, 0], burst_packets=100)
    credit.grant(10.0)
    hear(credit, column(0, 1), column(50, 50))
    assert credit.grant(10.0)[1].sum() == 4
    assert credit.grant(10.02)[1].sum() == 20  # but a busy one makes up for a late turn


def test_a_host_that_was_idle_beside_a_busy_one_saves_no_more_than_a_pull():
    credit = scheduler([0, 1], burst_packets=100)
    hear(credit, column(0), column(10**6))
    for now in (0.0, 0.05):
        credit.grant(now)
    hear(credit, column(1), column(50))
    credit.grant(0.05)
    assert credit.granted[1] == 4


def test_utilisation_leaves_a_share_of_the_line():
    credit = CreditScheduler(column(0), LINE, PACKET, burst_packets=10**6)
    hear(credit, column(0), column(10**6))
    credit.grant(1.0)
    # 990 in a second, and the pull a host may grant at once; in whole pulls.
    assert credit.granted[0] == (990 + 4) // 4 * 4


def test_what_was_trimmed_takes_credit_once_more():
    credit = scheduler([0])
    credit.hear(column(0, 0, 0), column(0, 2, 1), np.array([False, True, True]))
    assert credit.wanted.tolist() == [4]
    credit.hear(column(0), column(0), np.array([True]))
    assert credit.wanted.tolist() == [5]


def test_pairs_of_other_workers_get_nothing():
    credit = scheduler([-1, 0, -1])
    hear(credit, column(0, 1, 2), column(9, 9, 9))
    credit.grant(0.0)
    credit.grant(100.0)
    assert credit.granted.tolist() == [0, 9, 0]


def test_a_repeated_grant_carries_no_new_credit():
    credit = scheduler([0])
    hear(credit, column(0), column(3))
    credit.grant(0.0)
    hear(credit, column(0, 0), column(3, 3))
    rows, packets = credit.grant(0.001)
    assert (rows.tolist(), packets.tolist()) == ([0], [0])
    assert len(credit.grant(0.002)[0]) == 0


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
)
def test_grants_are_fair_and_paced(host_of_pair, waits_ms):
    burst = 12
    credit = scheduler(host_of_pair, burst_packets=burst)
    everyone = np.arange(len(host_of_pair))
    hear(credit, everyone, np.full(len(everyone), 10**6))
    now = lost = 0.0
    for wait in waits_ms:
        now += wait / 1000
        lost += max(0, wait - 8)  # at most a burst, of which up to a pull is not yet granted
        rows, packets = credit.grant(now)
        assert (packets > 0).all()
        assert len(np.unique(rows)) == len(rows)
        for host in set(host_of_pair):
            mine = credit.granted[np.array(host_of_pair) == host]
            assert mine.max() - mine.min() <= 4  # a round robin of pulls of four
            assert mine.sum() <= 4 + now * PACKETS_PER_S + 1e-3
            assert mine.sum() >= now * PACKETS_PER_S - lost - 4


def test_account_by_hand():
    account = CreditAccount(2, speculative_packets=4)
    assert account.allowance.tolist() == [4, 4]
    assert account.target(column(10, 3)).tolist() == [6, 0]
    account.spend(column(0, 0, 0, 0))
    assert account.allowance.tolist() == [0, 4]
    assert account.target(column(6, 3)).tolist() == [6, 0]
    account.renew(column(0, 1))  # 0 waits for credit: nothing for it
    assert account.allowance.tolist() == [0, 4]
    account.add(column(0, 0), column(5, 2))  # an old total overtaken by a newer one
    assert account.allowance.tolist() == [5, 4]
    with pytest.raises(ValueError, match="beyond the credit"):
        account.spend(column(0), 6)


def test_account_renews_idle_senders_and_lets_stuck_ones_ask():
    account = CreditAccount(1, speculative_packets=4)
    account.spend(column(0), 4)
    account.target(column(0))  # nothing more to send
    account.renew(column(0, 0))
    assert account.allowance[0] == 4
    account.spend(column(0), 4)
    assert account.target(column(7))[0] == 7
    account.ask(column(0, 0))
    assert account.allowance[0] == 1
    assert account.target(column(7))[0] == 6  # the one that asks needs no credit
    account.ask(column(0))
    assert account.allowance[0] == 1


lossy_turns = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=60)


@given(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(0, 6), lossy_turns)
def test_credit_is_neither_minted_nor_lost(backlogs, speculative, losses):
    """Three senders to one host over a wire that loses data, grants, and answers."""
    credit = scheduler([0, 0, 0])
    account = CreditAccount(3, speculative)
    left = column(*backlogs)
    arrived, lost, asked = np.zeros((3, 3), np.int64)
    # Beyond the list the wire is clean. A pull each four turns, one sender in three, and a
    # packet lost in no more turns than the list has: 90 + 60 packets in 4 · 150 turns.
    for turn in range(800):
        lose_data, lose_grant, lose_answer = (
            losses[turn] if turn < len(losses) else (False, False, False)
        )
        now = turn / 1000
        stuck = (left > 0) & (account.allowance == 0) & (turn % 10 == 9)
        account.ask(np.flatnonzero(stuck))
        asked += stuck
        send = np.minimum(np.minimum(left, account.allowance), 1)
        rows = np.flatnonzero(send)
        account.spend(rows)
        target = account.target(left - send)
        assert (account.allowance >= 0).all()
        assert (account.spent <= account.speculative + credit.granted).all()
        assert (account.granted <= credit.granted).all()
        assert (credit.granted <= credit.wanted).all()
        if lose_data:
            lost += send
        else:
            left = left - send
            arrived += send
            hear(credit, rows, target[rows])
        told, _ = credit.grant(now)
        if not lose_grant:
            account.add(told, credit.granted[told])
        if not lose_answer:
            account.add(rows, credit.granted[rows])
        if not left.any() and turn >= len(losses):
            break
    assert arrived.tolist() == backlogs
    assert account.spent.tolist() == (arrived + lost).tolist()
    # Left over is what was asked for and then not needed: packets sent without credit.
    assert (account.allowance <= speculative + asked).all()
