"""Entropy policies against scalar readings of the same rules, and their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.nic.entropy.draws import draw
from fabric_emu.nic.entropy.ev_moves import EvState
from fabric_emu.nic.entropy.ev_set import EvSet
from fabric_emu.nic.entropy.oblivious import Oblivious, RandomEntropy
from fabric_emu.nic.entropy.policy import EntropyPolicy, PortTable
from fabric_emu.nic.entropy.reps import Reps

PORTS = np.arange(0xC000, 0xC000 + 256, dtype=np.uint16)
UNUSED = (EvState.ASSUMED_BAD, EvState.DENIED)


def column(*values):
    return np.array(values, np.int64)


def flags(*values):
    return np.array(values, bool)


# --- Source ports ---


def test_ports_of_a_table_and_back():
    values = np.array([[50001, 50000, 65535], [49152, 50000, 50002]], np.uint16)
    table = PortTable(2, values)
    rows, index = column(0, 1, 1, 0, 0), column(2, 0, 2, 1, 0)
    port = table.port(rows, index)
    assert port.tolist() == [65535, 49152, 50002, 50000, 50001]
    assert table.index_of(rows, port).tolist() == index.tolist()
    with pytest.raises(ValueError, match="no entropy value"):
        table.index_of(column(0), np.array([50002], np.uint16))


def test_ports_of_the_whole_range():
    table = PortTable(2, None)
    assert table.size == 1 << 14
    assert table.port(column(0, 1), column(0, 16383)).tolist() == [0xC000, 0xFFFF]
    assert table.index_of(column(1), np.array([0xC005], np.uint16)).tolist() == [5]
    with pytest.raises(ValueError, match="outside the range"):
        table.index_of(column(1), np.array([4791], np.uint16))


def test_of_equal_ports_the_first_is_found():
    table = PortTable(1, np.array([50001, 50000, 50001], np.uint16))
    assert table.index_of(column(0), np.array([50001], np.uint16)).tolist() == [0]


# --- Random and oblivious ---


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**62))
def test_draws_are_those_of_splitmix64(seed, size):
    state = np.array([seed], np.uint64).view(np.int64)
    for step in range(1, 4):
        x = (seed + step * 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        assert draw(state, size) == (x ^ x >> 31) % 2**63 % size


def test_random_entropy_covers_the_values():
    policy = RandomEntropy(1, PORTS[:16], seed=1)
    index = policy.choose(np.zeros(16_000, np.int64), 0.0)
    count = np.bincount(index, minlength=16)
    # Binomial of mean 1000 and deviation 31: six deviations.
    assert len(count) == 16
    assert count.min() > 800
    assert count.max() < 1200


def test_oblivious_uses_each_value_once_a_lap_in_changing_order():
    policy = Oblivious(2, PORTS[:64], seed=1)
    rows = np.arange(2 * 64 * 8) % 2
    laps = policy.choose(rows, 0.0).reshape(-1, 2).T.reshape(2, 8, 64)
    assert (np.sort(laps, axis=2) == np.arange(64)).all()
    # The chance that two of 16 XORs of 6 bits coincide is high, that most do is not.
    assert len(np.unique(laps.reshape(16, 64), axis=0)) > 8


def test_oblivious_batches_are_one_at_a_time():
    one, other = Oblivious(3, PORTS[:8], seed=5), Oblivious(3, PORTS[:8], seed=5)
    rows = np.random.default_rng(0).integers(0, 3, 100)
    apart = np.concatenate([other.choose(rows[i : i + 1], 0.0) for i in range(100)])
    assert (one.choose(rows, 0.0) == apart).all()


def test_oblivious_wants_a_power_of_two():
    with pytest.raises(ValueError, match="power of two"):
        Oblivious(1, PORTS[:12], seed=1)


# --- REPS ---

DRAWN = None  # a random value, any will do


class ScalarReps:
    """The ring of one queue pair, one event at a time."""

    def __init__(self, length, freeze_s, explore_packets):
        self.length, self.freeze_s, self.explore_packets = length, freeze_s, explore_packets
        self.slots, self.head, self.fresh = [], 0, 0
        self.explore, self.thaw, self.cycle = 0, None, 0

    def advance(self, now):
        if self.thaw is not None and now >= self.thaw:
            self.slots, self.head, self.fresh, self.thaw = [], 0, 0, None
            self.explore = self.explore_packets

    def choose(self):
        if self.explore:
            self.explore -= 1
            return DRAWN
        if self.thaw is not None:
            if not self.slots:
                return DRAWN
            value = self.slots[self.cycle]
            self.cycle = (self.cycle + 1) % len(self.slots)
            return value
        if not self.fresh:
            return DRAWN
        value = self.slots[(self.head - self.fresh) % self.length]
        self.fresh -= 1
        return value

    def put(self, value):
        if len(self.slots) < self.length:
            self.slots.append(value)
        else:
            self.slots[self.head] = value
        self.head = (self.head + 1) % self.length
        self.fresh = min(self.fresh + 1, self.length)

    def timeout(self, now):
        if self.thaw is None and not self.explore:
            self.thaw, self.cycle = now + self.freeze_s, 0


row_lists = st.lists(st.integers(0, 2), max_size=25)
feedback = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500), st.booleans()), max_size=25)
reps_steps = st.lists(
    st.tuples(st.integers(0, 4), row_lists, feedback, st.lists(st.integers(0, 2), max_size=2)),
    max_size=25,
)


@given(reps_steps, st.integers(1, 8))
def test_reps_as_one_event_at_a_time(steps, length):
    policy = Reps(3, None, seed=1, buffer=length, freeze_s=5.0, explore_packets=4)
    scalars = [ScalarReps(length, 5.0, 4) for _ in range(3)]
    now, recycled = 0.0, 0
    for wait, rows, acks, timeouts in steps:
        now += wait
        for scalar in scalars:
            scalar.advance(now)
        expected = [scalars[row].choose() for row in rows]
        chosen = policy.choose(column(*rows), now)
        for value, want in zip(chosen.tolist(), expected, strict=True):
            assert want is DRAWN or value == want
        recycled += sum(want is not DRAWN for want in expected)
        assert policy.recycled == recycled
        policy.on_ack(
            column(*(row for row, _, _ in acks)),
            column(*(value for _, value, _ in acks)),
            flags(*(marked for _, _, marked in acks)),
        )
        for row, value, marked in acks:
            if not marked:
                scalars[row].put(value)
        policy.on_loss(column(*timeouts), column(*timeouts), now)
        for row in timeouts:
            scalars[row].timeout(now)
        assert policy.frozen.tolist() == [scalar.thaw is not None for scalar in scalars]


def test_reps_uses_each_returned_value_once_oldest_first():
    policy = Reps(1, None, seed=1)
    policy.on_ack(np.zeros(6, np.int64), column(10, 11, 12, 13, 14, 15), flags(0, 0, 1, 0, 0, 0))
    chosen = policy.choose(np.zeros(20, np.int64), 0.0).tolist()
    assert chosen[:5] == [10, 11, 13, 14, 15]
    assert (policy.recycled, policy.drawn) == (5, 15)
    # 15 draws among 16,384: none of them one of the five but for chance, and the seed is fixed.
    assert not {10, 11, 13, 14, 15} & set(chosen[5:])


def test_reps_ring_keeps_the_newest():
    policy = Reps(1, None, seed=1)
    policy.on_ack(np.zeros(11, np.int64), np.arange(11), np.zeros(11, bool))
    assert policy.choose(np.zeros(8, np.int64), 0.0).tolist() == list(range(3, 11))


def test_reps_freezes_on_timeout_and_then_explores():
    policy = Reps(2, None, seed=1, freeze_s=10.0)
    policy.on_ack(np.zeros(3, np.int64), column(7, 8, 9), np.zeros(3, bool))
    policy.choose(column(0, 0), 0.0)  # used, but still in the ring
    policy.on_loss(column(0), column(99), 1.0)
    assert policy.frozen.tolist() == [True, False]
    assert policy.choose(np.zeros(7, np.int64), 2.0).tolist() == [7, 8, 9, 7, 8, 9, 7]
    before = policy.drawn
    policy.choose(np.zeros(16, np.int64), 11.0)
    assert policy.drawn == before + 16
    policy.on_loss(column(0), column(99), 11.0)  # after exploring it may freeze again
    assert policy.freezes == 2


def test_reps_trim_on_the_last_hop_found_a_free_path():
    policy = Reps(1, None, seed=1)
    policy.on_trim(column(0, 0), column(3, 4), flags(False, True))
    assert policy.choose(column(0), 0.0).tolist() == [4]
    assert policy.choose(column(0), 0.0).tolist() != [3]


# --- MRC's set ---


class ScalarEvSet:
    """One queue pair, one event at a time."""

    def __init__(self, rotation, size, planes, floor):
        self.rotation, self.planes, self.floor = list(rotation), planes, floor
        self.state = [EvState.SPARE] * size
        for value in rotation:
            self.state[value] = EvState.GOOD
        self.next = 0

    def count(self, *states):
        return sum(self.state[value] in states for value in self.rotation)

    def choose(self):
        while True:
            value = self.rotation[self.next]
            self.next = (self.next + 1) % len(self.rotation)
            if self.state[value] == EvState.GOOD:
                return value
            if self.state[value] == EvState.SKIP:
                self.state[value] = EvState.GOOD

    def skip(self, value):
        if self.state[value] == EvState.GOOD and self.count(EvState.GOOD) > self.floor:
            self.state[value] = EvState.SKIP

    def lose(self, value):
        if self.state[value] not in (EvState.GOOD, EvState.SKIP):
            return
        for spare, state in enumerate(self.state):
            if state == EvState.SPARE and self.planes[spare] == self.planes[value]:
                self.rotation[self.rotation.index(value)] = spare
                self.state[spare] = EvState.GOOD
                self.state[value] = EvState.ASSUMED_BAD
                return
        if self.count(EvState.GOOD, EvState.SKIP) == self.floor:
            return
        self.state[value] = EvState.ASSUMED_BAD
        if self.count(EvState.GOOD) < self.floor:
            for other in self.rotation:
                if self.state[other] == EvState.SKIP:
                    self.state[other] = EvState.GOOD

    def answer(self, value):
        if self.state[value] != EvState.ASSUMED_BAD:
            return
        if value in self.rotation:
            self.state[value] = EvState.GOOD
            return
        alike = [v for v in range(len(self.planes)) if self.planes[v] == self.planes[value]]
        for other in alike:
            if other in self.rotation and self.state[other] in UNUSED:
                self.rotation[self.rotation.index(other)] = value
                self.state[value] = EvState.GOOD
                return
        self.state[value] = EvState.SPARE


SIZE = 8
values_of = st.lists(st.tuples(st.integers(0, 2), st.integers(0, SIZE - 1)), max_size=14)
ev_steps = st.lists(
    st.tuples(st.sampled_from(["choose", "mark", "trim", "lose", "answer"]), row_lists, values_of),
    max_size=40,
)


def split(pairs):
    return column(*(row for row, _ in pairs)), column(*(value for _, value in pairs))


@given(ev_steps, st.integers(1, 4), st.sampled_from([4, 6, 8]), st.sampled_from([1, 2]))
def test_ev_set_as_one_event_at_a_time(steps, floor, active, planes):
    plane = np.arange(SIZE) % planes
    policy = EvSet(3, PORTS[:SIZE], 7, floor, plane=plane, active=active)
    first_lap = policy.choose(np.repeat(np.arange(3), active), 0.0).reshape(3, active)
    scalars = [ScalarEvSet(lap, SIZE, plane.tolist(), floor) for lap in first_lap.tolist()]
    for step, rows, pairs in steps:
        row, index = split(pairs)
        odd = np.arange(len(pairs)) % 2 == 1
        if step == "choose":
            expected = [scalars[r].choose() for r in rows]
            assert policy.choose(column(*rows), 0.0).tolist() == expected
        elif step == "mark":
            policy.on_ack(row, index, odd)
            for r, value in pairs[1::2]:
                scalars[r].skip(value)
        elif step == "trim":
            policy.on_trim(row, index, odd)
            for r, value in pairs[::2]:
                scalars[r].skip(value)
        elif step == "lose":
            policy.on_loss(row, index, 0.0)
            for r, value in pairs:
                scalars[r].lose(value)
        else:
            policy.on_probe_answer(row, index)
            for r, value in pairs:
                scalars[r].answer(value)
        assert policy.state.tolist() == [scalar.state for scalar in scalars]
        good = (policy.state == EvState.GOOD).sum(axis=1)
        assert policy.good.tolist() == good.tolist()
        assert (good >= floor).all()


@given(ev_steps, st.integers(1, 4), st.sampled_from([4, 6, 8]))
def test_ev_set_keeps_its_books_with_an_operator_about(steps, floor, active):
    plane = np.arange(SIZE) % 2
    policy = EvSet(3, PORTS[:SIZE], 7, floor, plane=plane, active=active)
    moves = {"choose": policy.deny, "trim": policy.allow, "answer": policy.on_probe_answer}
    for now, (step, rows, pairs) in enumerate(steps):
        row, index = split(pairs)
        if step == "mark":
            policy.on_ack(row, index, np.ones(len(row), bool))
        elif step == "lose":
            policy.on_loss(row, index, float(now))
        else:
            moves[step](row, index)
        state = policy.state
        assert policy.good.tolist() == (state == EvState.GOOD).sum(axis=1).tolist()
        assert (policy.good >= floor).all()
        index = policy.choose(column(*rows), float(now))
        assert (policy.state[column(*rows), index] == EvState.GOOD).all()
        probed = policy.probes(float(now))
        assert (policy.state[probed] == EvState.ASSUMED_BAD).all()
        # A value is in at most one place, and the places are all taken.
        lap = policy.choose(np.repeat(np.arange(3), 2 * active), 0.0).reshape(3, -1)
        for row_lap, row_state in zip(lap, policy.state, strict=True):
            assert set(row_lap.tolist()) == set(np.flatnonzero(row_state == EvState.GOOD))


def test_ev_set_skips_once_and_comes_back():
    policy = EvSet(1, PORTS[:4], seed=3, floor=1)
    lap = policy.choose(np.zeros(4, np.int64), 0.0).tolist()
    policy.on_ack(column(0), column(lap[1]), flags(True))
    assert policy.choose(np.zeros(3, np.int64), 0.0).tolist() == [lap[0], lap[2], lap[3]]
    assert policy.choose(np.zeros(4, np.int64), 0.0).tolist() == lap
    policy.on_trim(column(0), column(lap[0]), flags(True))  # on the last hop
    assert policy.choose(np.zeros(4, np.int64), 0.0).tolist() == lap
    assert policy.skips == 1


def test_ev_set_rotations_differ_and_planes_take_turns():
    plane = np.repeat(np.arange(4), 16)
    policy = EvSet(8, PORTS[:64], seed=3, floor=1, plane=plane, active=48)
    laps = policy.choose(np.repeat(np.arange(8), 48), 0.0).reshape(8, 48)
    assert len(np.unique(laps, axis=0)) == 8
    assert (np.sort(plane[laps].reshape(8, 12, 4), axis=2) == np.arange(4)).all()
    assert (policy.port(np.zeros(48, np.int64), laps[0]) == PORTS[laps[0]]).all()


def test_ev_set_leaves_a_dead_plane_and_returns():
    plane = np.arange(32) % 2
    policy = EvSet(1, PORTS[:32], 3, 4, plane=plane, probe_interval_s=1.0, probe_sweep=4)
    for now in range(2):
        sent = policy.choose(np.zeros(32, np.int64), float(now))
        dead = sent[plane[sent] == 1]
        policy.on_loss(np.zeros(len(dead), np.int64), dead, float(now))
    assert len(dead) == 0
    assert policy.exclusions == 16
    rows, index = policy.probes(0.5)
    assert len(rows) == 0  # an interval after the loss at the earliest
    answered = []
    for now in range(1, 5):
        rows, index = policy.probes(float(now))
        assert len(index) == 4  # a quarter of sixteen
        answered += index.tolist()
        assert len(policy.probes(now + 0.9)[0]) == 0
    assert sorted(answered) == list(range(1, 32, 2))  # each once in a sweep of four
    policy.on_probe_answer(np.zeros(16, np.int64), column(*answered))
    assert np.bincount(plane[policy.choose(np.zeros(32, np.int64), 9.0)]).tolist() == [16, 16]
    assert len(policy.probes(10.0)[0]) == 0
    assert (policy.probed, policy.restored) == (16, 16)


def test_ev_set_replaces_from_the_same_plane():
    plane = np.arange(16) % 2
    policy = EvSet(1, PORTS[:16], 3, 8, plane=plane, active=8)
    lap = policy.choose(np.zeros(8, np.int64), 0.0)
    policy.on_loss(np.zeros(8, np.int64), lap, 0.0)
    new = policy.choose(np.zeros(8, np.int64), 0.0)
    assert not set(new.tolist()) & set(lap.tolist())
    assert (plane[new] == plane[lap]).all()
    assert policy.replacements == 8
    policy.on_loss(np.zeros(8, np.int64), new, 0.0)
    assert policy.good[0] == 8  # no spares, and already at the floor
    assert policy.held == 8


@pytest.mark.parametrize(("floor", "active"), [(0, 4), (5, 4), (1, 9)])
def test_ev_set_refuses_a_floor_out_of_bounds(floor, active):
    with pytest.raises(ValueError, match="floor"):
        EvSet(1, PORTS[:8], 1, floor, active=active)


def policies() -> list[EntropyPolicy]:
    """Return one of each; that they follow the protocol is the type checker's to say."""
    return [
        EvSet(4, PORTS, 1, 16),
        Reps(4, PORTS, 1, freeze_s=1.0),
        Oblivious(4, PORTS, 1),
        RandomEntropy(4, PORTS, 1),
    ]


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: type(policy).__name__)
def test_policies_take_empty_batches_and_map_ports_back(policy):
    nothing = column()
    assert len(policy.choose(nothing, 0.0)) == 0
    policy.on_ack(nothing, nothing, flags())
    policy.on_trim(nothing, nothing, flags())
    policy.on_loss(nothing, nothing, 0.0)
    rows = np.random.default_rng(2).integers(0, 4, 300)
    index = policy.choose(rows, 0.0)
    assert (policy.index_of(rows, policy.port(rows, index)) == index).all()
