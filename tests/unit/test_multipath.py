"""The kernel's multipath hash and its choice of next hop, against a plain byte-by-byte reading."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.predict.multipath import (
    DST_IP,
    DST_PORT,
    FLOW_LABEL,
    PROTO,
    SRC_IP,
    SRC_PORT,
    FiveTuples,
    multipath_hash,
    rebalance_resilient,
    resilient_buckets,
    select_by_threshold,
    select_resilient,
    thresholds,
)
from fabric_emu.predict.siphash import last_block, new_lanes, siphash24

MASK64 = (1 << 64) - 1

# What Linux 6.18 itself answered: policy, seed, source, destination, source port, destination
# port, hash, and the next hop among 4, 2, 3 and 8 equal ones.
KERNEL_ANSWERS = [
    (0, 1, "10.0.0.1", "10.0.1.1", 0, 0, 0x5E9328BD, (2, 1, 2, 5)),
    (0, 12345, "10.0.0.1", "10.0.1.1", 0, 0, 0x0348E10B, (0, 0, 0, 0)),
    (1, 1, "10.0.0.1", "10.0.1.1", 49152, 4791, 0x01641D0D, (0, 0, 0, 0)),
    (1, 1, "10.0.0.1", "10.0.1.1", 49153, 4791, 0x57175F6C, (2, 1, 2, 5)),
    (1, 1, "10.0.1.1", "10.0.0.1", 4791, 49152, 0x01641D0D, (0, 0, 0, 0)),
    (1, 12345, "10.0.0.1", "10.0.1.1", 49152, 4791, 0x3AEA38BC, (1, 0, 1, 3)),
    (1, 0xFFFFFFFF, "192.168.1.2", "10.0.0.9", 65535, 4791, 0x7476BD55, (3, 1, 2, 7)),
    (1, 1, "fd00::1", "fd00:1::1", 49152, 4791, 0x7DBBBDCD, (3, 1, 2, 7)),
    (1, 12345, "fd00::1", "fd00:1::1", 49152, 4791, 0x44046FDB, (2, 1, 1, 4)),
]


# A second implementation, one packet at a time and from bytes, to compare with.


def reference_siphash24(key: bytes, message: bytes) -> int:
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def mix(a: int, b: int, rotation: int) -> None:
        v[a] = (v[a] + v[b]) & MASK64
        v[b] = ((v[b] << rotation) | (v[b] >> (64 - rotation))) & MASK64
        v[b] ^= v[a]

    def swap_halves(a: int) -> None:
        v[a] = ((v[a] << 32) | (v[a] >> 32)) & MASK64

    def rounds(count: int) -> None:
        for _ in range(count):
            mix(0, 1, 13)
            swap_halves(0)
            mix(2, 3, 16)
            mix(0, 3, 21)
            mix(2, 1, 17)
            swap_halves(2)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def reference_jhash_2words(a: int, b: int) -> int:
    c = 0xDEADBEEF + 8
    a, b = a + c, b + c
    words = {"a": a & 0xFFFFFFFF, "b": b & 0xFFFFFFFF, "c": c}
    for into, other, rotation in (
        ("c", "b", 14),
        ("a", "c", 11),
        ("b", "a", 25),
        ("c", "b", 16),
        ("a", "c", 4),
        ("b", "a", 14),
        ("c", "b", 24),
    ):
        turned = words[other]
        turned = turned << rotation | turned >> (32 - rotation)
        words[into] = ((words[into] ^ words[other]) - turned) & 0xFFFFFFFF
    return words["c"]


def reference_hash(
    packet: tuple[bytes, bytes, int, int, int, int],
    seed: int,
    policy: int,
    fields: int,
    forwarded: bool,
) -> int:
    src, dst, proto, sport, dport, label = packet
    ipv6 = len(src) == 16
    if policy in (0, 2):
        fields = SRC_IP | DST_IP | ((PROTO | FLOW_LABEL) if ipv6 else 0)
    elif policy == 1:
        fields = SRC_IP | DST_IP | PROTO | SRC_PORT | DST_PORT
    nothing_outer = not fields & 0x3F
    if not ipv6:
        fields &= ~FLOW_LABEL
    ends = [
        src if fields & SRC_IP else bytes(len(src)),
        dst if fields & DST_IP else bytes(len(dst)),
    ]
    # IPv4 addresses and ports compare as the integers a little-endian machine reads.
    ends.sort(key=None if ipv6 else lambda end: end[::-1])
    ports = [
        struct.pack("!H", sport if fields & SRC_PORT else 0),
        struct.pack("!H", dport if fields & DST_PORT else 0),
    ]
    ports.sort(key=lambda port: port[::-1])
    label = label if fields & FLOW_LABEL else 0
    host_order = policy in (2, 3) and forwarded
    flow_keys = struct.pack("<HBx", 0, proto if fields & PROTO else 0)
    flow_keys += struct.pack("<I" if host_order else ">I", label)
    flow_keys += bytes(20) + b"".join(ports) + bytes(4) + b"".join(ends) + bytes(4)
    key = struct.pack("<4I", seed, seed, seed, seed)
    value = reference_siphash24(key, flow_keys) & 0xFFFFFFFF or 1
    if nothing_outer:
        value = 0
    if policy == 3 and forwarded:
        value = reference_jhash_2words(value, 0)
    return value >> 1


@st.composite
def packets(draw: st.DrawFn, family: int) -> tuple[bytes, bytes, int, int, int, int]:
    size = 4 if family == 4 else 16
    # Few different bytes make equal and nearly equal addresses likely.
    address = st.one_of(
        st.binary(min_size=size, max_size=size),
        st.lists(st.sampled_from([0, 1, 0x80, 0xFF]), min_size=size, max_size=size).map(bytes),
    )
    port = st.integers(0, 0xFFFF)
    label = draw(st.integers(0, 0xFFFFF)) if family == 6 else 0
    return (
        draw(address),
        draw(address),
        draw(st.integers(0, 255)),
        draw(port),
        draw(port),
        label,
    )


def as_tuples(rows: list[tuple[bytes, bytes, int, int, int, int]]) -> FiveTuples:
    src, dst, proto, sport, dport, label = zip(*rows, strict=True)
    columns = {"proto": proto, "sport": sport, "dport": dport, "flow_label": label}
    if len(src[0]) == 4:
        ends = [[int.from_bytes(address) for address in end] for end in (src, dst)]
        return FiveTuples(4, ends[0], ends[1], **columns)
    packed = [np.array([list(address) for address in end], np.uint8) for end in (src, dst)]
    return FiveTuples(6, packed[0], packed[1], **columns)


def random_tuples(family: int, rows: int, seed: int) -> FiveTuples:
    rng = np.random.default_rng(seed)
    shape, dtype = ((rows,), np.uint32) if family == 4 else ((rows, 16), np.uint8)
    top = 1 << (32 if family == 4 else 8)
    return FiveTuples(
        family,
        rng.integers(0, top, shape, dtype),
        rng.integers(0, top, shape, dtype),
        rng.integers(0, 256, rows),
        rng.integers(0, 1 << 16, rows),
        rng.integers(0, 1 << 16, rows),
        rng.integers(0, 1 << 20, rows),
    )


# SipHash


@pytest.mark.parametrize(
    ("length", "digest"),
    [(0, 0x726FDB47DD0E0E31), (8, 0x93F5F5799A932462), (15, 0xA129CA6149BE45E5)],
)
def test_siphash_vectors(length, digest):
    # Of lib/test_siphash.c: key 00 to 0f, message 00, 01, 02, ...
    key = struct.unpack("<2Q", bytes(range(16)))
    message = bytes(range(length))
    whole = length - length % 8
    blocks = [word for (word,) in struct.iter_unpack("<Q", message[:whole])]
    blocks.append(last_block(length, int.from_bytes(message[whole:], "little")))
    assert siphash24(key, blocks, new_lanes(1)) == [digest]
    assert reference_siphash24(bytes(range(16)), message) == digest


# The hash of a packet


@pytest.mark.parametrize("answer", KERNEL_ANSWERS)
def test_kernel_answers(answer):
    policy, seed, src, dst, sport, dport, value, picked = answer
    tuples = FiveTuples.from_text(src, dst, sport=sport, dport=dport)
    hashes = multipath_hash(tuples, seed, policy)
    assert hashes == [value]
    assert tuple(select_by_threshold(hashes, [1] * m)[0] for m in (4, 2, 3, 8)) == picked


@given(
    st.sampled_from([4, 6]).flatmap(lambda family: st.lists(packets(family), min_size=1)),
    st.integers(1, 0xFFFFFFFF),
    st.integers(0, 3),
    st.integers(1, 0xFFF),
    st.booleans(),
)
def test_same_as_one_packet_at_a_time(rows, seed, policy, fields, forwarded):
    expected = [reference_hash(row, seed, policy, fields, forwarded) for row in rows]
    hashes = multipath_hash(as_tuples(rows), seed, policy, fields, forwarded=forwarded)
    assert hashes.tolist() == expected


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("policy", [0, 1, 2, 3])
def test_columns_scalars_and_many_rows_agree(family, policy):
    rows = 20_000  # more than two of the chunks that are hashed at a time
    many = random_tuples(family, rows, seed=policy)
    hashes = multipath_hash(many, 99, policy, 0x3F)
    for row in (0, 8191, 8192, 16384, rows - 1):
        columns = (many.src, many.dst, many.proto, many.sport, many.dport, many.flow_label)
        one = FiveTuples(family, *(np.asarray(column)[row] for column in columns))
        assert len(one) == 1
        assert multipath_hash(one, 99, policy, 0x3F) == [hashes[row]]
        filled = replace(one, sport=np.repeat(one.sport, 3))
        assert multipath_hash(filled, 99, policy, 0x3F).tolist() == [hashes[row]] * 3


@pytest.mark.parametrize("family", [4, 6])
def test_a_seed_per_row(family):
    tuples = random_tuples(family, 10_000, seed=5)
    seeds = np.resize(np.array([1, 2, 0xFFFFFFFF], np.uint32), len(tuples))
    hashes = multipath_hash(tuples, seeds)
    for seed in (1, 2, 0xFFFFFFFF):
        assert np.array_equal(hashes[seeds == seed], multipath_hash(tuples, seed)[seeds == seed])


def test_both_directions_hash_alike():
    there = random_tuples(6, 1000, seed=1)
    back = FiveTuples(
        6, there.dst, there.src, there.proto, there.dport, there.sport, there.flow_label
    )
    for policy in range(4):
        assert np.array_equal(multipath_hash(there, 7, policy), multipath_hash(back, 7, policy))


def test_no_packets():
    none = FiveTuples(4, np.empty(0, np.uint32), np.empty(0, np.uint32))
    assert multipath_hash(none, 1).shape == (0,)


def test_addresses_as_text():
    mixed = FiveTuples.from_text("10.0.0.1", ["10.0.1.1", "255.0.0.2"], sport=[1, 2])
    assert np.asarray(mixed.src).tolist() == [0x0A000001]
    assert np.asarray(mixed.dst).tolist() == [0x0A000101, 0xFF000002]
    six = FiveTuples.from_text(["fd00::1", "::2"], "fd00:1::1")
    assert np.asarray(six.src)[1].tobytes() == socket.inet_pton(socket.AF_INET6, "::2")
    assert len(mixed) == len(six) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"family": 5},
        {"src": -1},
        {"dst": 1 << 32},
        {"proto": 256},
        {"sport": 65536},
        {"dport": -1},
        {"flow_label": 1 << 20},
        {"sport": 1.5},
        {"src": [1, 2], "sport": [1, 2, 3]},
        {"src": [[1, 2]]},
        {"family": 6, "src": [1, 2], "dst": [1, 2]},
    ],
)
def test_impossible_headers_are_refused(wrong):
    with pytest.raises(ValueError):  # noqa: PT011 numpy words some of them
        FiveTuples(**({"family": 4, "src": 1, "dst": 2} | wrong))


@pytest.mark.parametrize("ends", [("10.0.0.1", "fd00::1"), ("10.0.0.256", "10.0.0.1"), ([], [])])
def test_impossible_addresses_are_refused(ends):
    with pytest.raises(ValueError, match=r"expected|permitted|appear"):
        FiveTuples.from_text(*ends)


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": 4},
        {"policy": -1},
        {"policy": 3, "fields": 0},
        {"policy": 3, "fields": 0x1000},
        {"seed": 0},
        {"seed": 1 << 32},
        {"seed": np.array([1, 0], np.uint32)},
        {"seed": np.array([1, 2, 3], np.uint32)},
    ],
)
def test_settings_the_kernel_refuses_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        multipath_hash(FiveTuples(4, [1, 2], 3), **({"seed": 1} | wrong))


# From hash to next hop


def test_bounds_of_four_equal_next_hops():
    assert thresholds([1] * 4).tolist() == [536870911, 1073741823, 1610612735, 2147483647]


def test_bounds_follow_weights_and_skip_the_unusable():
    # Cumulative weights 3, 4, 6 of 6, and 3, 5 of 5, of 2^31.
    assert thresholds([3, 1, 2]).tolist() == [(1 << 30) - 1, 1431655764, (1 << 31) - 1]
    assert thresholds([3, 1, 2], [True, False, True]).tolist() == [1288490188, -1, (1 << 31) - 1]


@given(st.lists(st.integers(1, 0xFFFF), min_size=1, max_size=64), st.data())
def test_every_hash_finds_the_first_bound_not_below_it(weights, data):
    usable = data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    usable[data.draw(st.integers(0, len(weights) - 1))] = True
    bounds = thresholds(weights, usable).tolist()
    edges = {edge for bound in bounds for edge in (bound, bound + 1) if 0 <= edge < 1 << 31}
    hashes = np.array(sorted(edges | {0, (1 << 31) - 1}), np.uint32)
    expected = [next(i for i, bound in enumerate(bounds) if value <= bound) for value in hashes]
    assert select_by_threshold(hashes, weights, usable).tolist() == expected


def test_an_unreachable_next_hop_leaves_its_share_to_the_one_after_it():
    hashes = np.array([(quarter << 29) + 1 for quarter in range(4)], np.uint32)
    equal = [1] * 4

    def picked(*reachable: int, usable: list[int] | None = None) -> list[int]:
        return select_by_threshold(hashes, equal, usable, reachable=reachable).tolist()

    assert picked(1, 0, 1, 1) == [0, 2, 2, 3]
    assert picked(1, 0, 0, 1) == [0, 3, 3, 3]
    assert picked(1, 1, 1, 0) == [0, 1, 2, 0]
    assert picked(0, 0, 1, 0) == [2, 2, 2, 2]
    assert picked(0, 0, 0, 0) == [0, 0, 0, 0]
    assert picked(0, 0, 0, 0, usable=[0, 1, 1, 1]) == [1, 1, 1, 1]
    # Without the first, thirds: the hashes just above 0, 1/4, 1/2 and 3/4 lie in 0, 0, 1 and 2.
    assert picked(1, 1, 0, 1, usable=[0, 1, 1, 1]) == [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("weights", "usable"),
    [([], None), ([1, 0], None), ([65536], None), ([1, 1], [False, False]), ([1, 1], [True])],
)
def test_impossible_groups_are_refused(weights, usable):
    hashes = np.array([1], np.uint32)
    with pytest.raises(ValueError, match="expected"):
        select_by_threshold(hashes, weights, usable)
    with pytest.raises(ValueError, match="expected"):
        rebalance_resilient(np.zeros(8, np.intp), weights, usable)


# Resilient groups


def test_the_last_next_hop_takes_the_first_buckets():
    assert resilient_buckets([1] * 4, 32).tolist() == [3] * 8 + [2] * 8 + [1] * 8 + [0] * 8
    # Regions end at 8 * 3/6 = 4, 8 * 4/6 = 5.33 and 8: sizes 4, 1, 3.
    assert resilient_buckets([3, 1, 2], 8).tolist() == [2] * 3 + [1] + [0] * 4


def test_a_next_hop_may_get_no_bucket():
    # Regions of 2 buckets end at 0.5, 1, 1.5, 2, rounded up at halves: sizes 1, 0, 1, 0.
    assert resilient_buckets([1] * 4, 2).tolist() == [2, 0]


def test_bucket_is_hash_modulo_buckets():
    table = resilient_buckets([1] * 4, 6)
    hashes = np.array([0, 5, 6, 0x7FFFFFFF], np.uint32)
    assert select_resilient(hashes, table).tolist() == [table[0], table[5], table[0], table[1]]


@given(st.lists(st.integers(1, 300), min_size=2, max_size=16), st.integers(16, 400), st.data())
def test_only_a_removed_next_hop_loses_buckets(weights, buckets, data):
    removed = data.draw(st.integers(0, len(weights) - 1))
    usable = [place != removed for place in range(len(weights))]
    before = resilient_buckets(weights, buckets)
    after = rebalance_resilient(before, weights, usable)
    assert np.array_equal(before[before != removed], after[before != removed])
    assert not np.any(after == removed)


@given(st.lists(st.integers(1, 300), min_size=2, max_size=16), st.integers(16, 400), st.data())
def test_idle_buckets_restore_every_share(weights, buckets, data):
    removed = data.draw(st.integers(0, len(weights) - 1))
    usable = [place != removed for place in range(len(weights))]
    fresh = resilient_buckets(weights, buckets)
    without = rebalance_resilient(fresh, weights, usable)
    assert np.array_equal(rebalance_resilient(without, weights), without)
    restored = rebalance_resilient(without, weights, idle=np.ones(buckets, bool))
    shares, was = (np.bincount(table, minlength=len(weights)) for table in (restored, fresh))
    assert np.array_equal(shares, was)


def test_impossible_tables_are_refused():
    for buckets in (0, 65536):
        with pytest.raises(ValueError, match="expected"):
            resilient_buckets([1, 1], buckets)
    with pytest.raises(ValueError, match="expected"):
        select_resilient(np.array([1], np.uint32), np.empty(0, np.intp))
    with pytest.raises(ValueError, match="expected"):
        rebalance_resilient(resilient_buckets([1, 1], 8), [1, 1], idle=[True])
