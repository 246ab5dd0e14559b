"""Which next hop the Linux kernel picks for a packet, bit for bit, many packets at once.

`multipath_hash` gives the 31-bit hash that a switch computes over a packet's headers; the kind of
route then turns it into a next hop: `select_by_threshold` for multipath routes and hash-threshold
nexthop groups, `select_resilient` for resilient groups.

Holds for 64-bit little-endian kernels that have ``net.ipv4.fib_multipath_hash_seed`` (from 6.11).
The kernel does not promise to keep its hash: check predictions against the running kernel. Under
policy 1 the kernel takes over a hash that the packet already carries (TCP and connected UDP
sockets, receive packet steering, several veth queues) and looks at neither headers nor seed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric_emu.predict.siphash import Block, jhash_2words, last_block, new_lanes, siphash24

# Bits of fib_multipath_hash_fields; six more, from 0x40 on, name the same fields of inner headers.
SRC_IP, DST_IP, PROTO, FLOW_LABEL, SRC_PORT, DST_PORT = (1 << bit for bit in range(6))
_FIELDS_L3_IPV6 = SRC_IP | DST_IP | PROTO | FLOW_LABEL
_OUTER_FIELDS = 0x3F
_FIELDS_L4 = SRC_IP | DST_IP | PROTO | SRC_PORT | DST_PORT

_CHUNK = 8192  # rows hashed at a time: the working set, 5 x 64 KiB, fits a core's L2 cache
_HASHES = 1 << 31


@dataclass(frozen=True, eq=False)
class FiveTuples:
    """Header fields of many packets, each a column of n rows or one value for all of them.

    Attributes:
        family: 4 or 6.
        src, dst: IPv4 as host-order integers, (n,) uint32, 10.0.0.1 being 0x0a000001;
            IPv6 as bytes, (n, 16) uint8. One address for all rows: () or (16,).
        proto: IP protocol or next header.
        sport, dport: 0 for protocols without ports.
        flow_label: 20 bits; IPv6 only.

    Raises:
        ValueError: a value out of range, or columns of different lengths.
    """

    family: int
    src: ArrayLike
    dst: ArrayLike
    proto: ArrayLike = socket.IPPROTO_UDP
    sport: ArrayLike = 0
    dport: ArrayLike = 0
    flow_label: ArrayLike = 0

    def __post_init__(self) -> None:
        if self.family not in (4, 6):
            raise ValueError(f"family: expected 4 or 6, not {self.family!r}")
        address = 32 if self.family == 4 else 8
        bits = {"src": address, "dst": address, "proto": 8, "sport": 16, "dport": 16}
        for name, width in (bits | {"flow_label": 20}).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), width))
        if self.family == 6 and not np.shape(self.src)[-1:] == np.shape(self.dst)[-1:] == (16,):
            raise ValueError("src, dst: expected rows of 16 bytes")
        len(self)  # refuses columns that do not fit together

    def __len__(self) -> int:
        columns = (self.src, self.dst, self.proto, self.sport, self.dport, self.flow_label)
        shapes = [np.shape(column) for column in columns]
        if self.family == 6:
            shapes[:2] = [shape[:-1] for shape in shapes[:2]]
        (rows,) = np.broadcast_shapes((1,), *shapes)
        return cast(int, rows)

    @classmethod
    def from_text(
        cls, src: str | Sequence[str], dst: str | Sequence[str], **columns: ArrayLike
    ) -> FiveTuples:
        """Return tuples with addresses given as text; a single one stands for all rows.

        Raises:
            ValueError: no valid address, both families at once, or as the class.
        """
        ends = [
            [ipaddress.ip_address(text) for text in ([end] if isinstance(end, str) else end)]
            for end in (src, dst)
        ]
        versions = {address.version for end in ends for address in end}
        if len(versions) != 1:
            raise ValueError(f"src, dst: expected addresses of one family, not {versions}")
        family = versions.pop()
        packed = [np.array([list(address.packed) for address in end], np.uint8) for end in ends]
        if family == 4:
            packed = [end.view(">u4")[:, 0] for end in packed]
        return cls(family, packed[0], packed[1], **columns)


def multipath_hash(
    tuples: FiveTuples,
    seed: int | NDArray[np.uint32],
    policy: int = 1,
    fields: int = 0x0007,
    *,
    forwarded: bool = True,
) -> NDArray[np.uint32]:
    """Return the kernel's 31-bit multipath hash of each packet, (n,).

    Args:
        tuples: the packets; for policies 2 and 3, packets without a tunnel header.
        seed: ``fib_multipath_hash_seed``, 1 to 2^32 - 1; one per row for packets that meet
            different switches.
        policy: ``fib_multipath_hash_policy``, 0 to 3.
        fields: ``fib_multipath_hash_fields``, used by policy 3.
        forwarded: False for what the kernel decides without a packet at hand: where its own
            traffic goes, and a route query (for IPv6 even one with an input interface).

    Raises:
        ValueError: a policy or fields that the kernel refuses; a seed of 0, which makes the
            kernel use a random one of its own.

    Source: ``fib_multipath_hash`` in ``net/ipv4/route.c``, ``rt6_multipath_hash`` in
        ``net/ipv6/route.c``, ``fib_multipath_hash_from_keys`` in ``include/net/ip_fib.h``.
    """
    rows = len(tuples)
    seeds = _checked("seed", seed, 32)
    if not seeds.all():
        raise ValueError("seed: expected 1 or more; 0 is a random one nobody can see")
    if seeds.shape not in ((), (1,), (rows,)):
        raise ValueError(f"seed: expected 1 or {rows} values, not {seeds.shape}")
    halves = seeds.astype(np.uint64) * np.uint64(1 << 32 | 1)
    chosen = _chosen_fields(tuples.family, policy, fields)
    hashed = _without_other_fields(tuples, chosen)
    label_swapped = policy == 0 or not forwarded

    hashes = np.empty(rows, np.uint32)
    lanes = new_lanes(min(rows, _CHUNK))
    for start in range(0, rows, _CHUNK):
        chunk = slice(start, min(start + _CHUNK, rows))
        half = _block(_rows(halves, chunk))
        blocks = _flow_keys(hashed, chunk, label_swapped)
        part = siphash24((half, half), blocks, lanes[:, : chunk.stop - start]).astype(np.uint32)
        np.maximum(part, 1, out=part)
        if policy == 3 and not fields & _OUTER_FIELDS:
            part.fill(0)
        if policy == 3 and forwarded:
            part = jhash_2words(part, np.uint32(0))  # the hash of no inner header is 0
        np.right_shift(part, 1, out=hashes[chunk])
    return hashes


def thresholds(weights: Sequence[int], usable: ArrayLike | None = None) -> NDArray[np.int64]:
    """Return each next hop's bound: the highest hash it takes.

    Args:
        weights: of all next hops, in route or group order.
        usable: (m,) bool; False for a next hop that is dead, without carrier under
            ``ignore_routes_with_linkdown``, or removed. Its bound is -1, the others share.

    Raises:
        ValueError: no usable next hop, or a weight outside 1 to 65535.

    Source: ``fib_rebalance`` in ``net/ipv4/fib_semantics.c``, ``rt6_upper_bound_set`` in
        ``net/ipv6/route.c``, ``nh_hthr_group_rebalance`` in ``net/ipv4/nexthop.c``.
    """
    shares = _shares(weights, usable)
    return np.where(shares > 0, _region_ends(shares, _HASHES) - 1, -1)


def select_by_threshold(
    hashes: NDArray[np.uint32],
    weights: Sequence[int],
    usable: ArrayLike | None = None,
    *,
    reachable: ArrayLike | None = None,
) -> NDArray[np.intp]:
    """Return the next hop of each hash, (n,), as its place in `weights`.

    Args:
        hashes: from `multipath_hash`.
        weights, usable: as for `thresholds`: an unusable next hop's packets go to all others.
        reachable: (m,) bool; False for a next hop whose neighbour entry is there but not valid
            (incomplete, failed). The bounds stay, so its packets go to the next reachable one,
            or to the first if none follows. Nexthop groups do this, and IPv4 multipath
            routes under ``fib_multipath_use_neigh``.

    Raises:
        ValueError: as `thresholds`.

    Source: ``fib_select_multipath``, ``nexthop_select_path_hthr``, ``fib6_select_path``.
    """
    bounds = thresholds(weights, usable)
    good = np.flatnonzero((bounds >= 0) & _mask("reachable", reachable, len(bounds)))
    if not good.size:
        return np.full(len(hashes), np.argmax(bounds >= 0))
    places = np.searchsorted(bounds[good].astype(np.uint32), hashes)
    return np.append(good, good[0])[places]


def resilient_buckets(weights: Sequence[int], buckets: int) -> NDArray[np.intp]:
    """Return a new resilient group's table: the next hop of each bucket, (buckets,).

    Raises:
        ValueError: no next hop, a weight outside 1 to 65535, or buckets outside 1 to 65535.
    """
    if not 1 <= buckets <= 0xFFFF:
        raise ValueError(f"buckets: expected 1 to 65535, not {buckets}")
    return rebalance_resilient(np.full(buckets, -1, np.intp), weights)


def rebalance_resilient(
    table: NDArray[np.intp],
    weights: Sequence[int],
    usable: ArrayLike | None = None,
    *,
    idle: ArrayLike | None = None,
) -> NDArray[np.intp]:
    """Return the table after next hops were removed, put back or given other weights.

    A removed next hop's buckets move at once; of the others, only idle buckets of next hops
    that hold more than their share.

    Args:
        table: the table before.
        weights: as for `thresholds`; places mean the same next hops as in `table`.
        usable: (m,) bool; False for a removed next hop.
        idle: (buckets,) bool; True where no packet came since the bucket last moved, or
            none for ``idle_timer``. Default: every bucket is busy.

    Raises:
        ValueError: as `thresholds`.

    Source: ``nh_res_group_rebalance``, ``nh_res_table_upkeep`` in ``net/ipv4/nexthop.c``.
    """
    shares = _shares(weights, usable)
    wanted = np.diff(_region_ends(shares, len(table)), prepend=0)
    occupied = (table >= 0) & (shares > 0)[table]
    held = np.bincount(table[occupied], minlength=len(shares))
    # The kernel pushes each next hop that lacks buckets on the front of a list: the last one
    # of the group gets the lowest buckets.
    lacking = list(np.flatnonzero(held < wanted))
    after = table.copy()
    for bucket in np.flatnonzero(~occupied | _mask("idle", idle, len(table), missing=False)):
        if occupied[bucket]:
            if held[table[bucket]] <= wanted[table[bucket]]:
                continue
            held[table[bucket]] -= 1
        after[bucket] = lacking[-1]
        held[lacking[-1]] += 1
        if held[lacking[-1]] == wanted[lacking[-1]]:
            lacking.pop()
    return after


def select_resilient(hashes: NDArray[np.uint32], table: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the next hop of each hash, (n,), from a resilient group's table.

    Raises:
        ValueError: an empty table.

    Source: ``nexthop_select_path_res`` in ``net/ipv4/nexthop.c``.
    """
    if not len(table):
        raise ValueError("table: expected at least one bucket")
    return np.asarray(table[hashes % np.uint32(len(table))])


def _shares(weights: Sequence[int], usable: ArrayLike | None) -> NDArray[np.int64]:
    """Return the weights, 0 for a next hop that is not usable."""
    shares = np.asarray(weights, np.int64)
    if np.any(shares < 1) or np.any(shares > 0xFFFF):
        raise ValueError(f"weights: expected 1 to 65535, not {list(weights)}")
    shares = np.where(_mask("usable", usable, len(shares)), shares, 0)
    if not shares.any():
        raise ValueError("next hops: expected at least one that is usable")
    return shares


def _region_ends(shares: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return where each next hop's region of `size` ends, rounded as DIV_ROUND_CLOSEST_ULL does."""
    total = int(shares.sum())
    return np.asarray((np.cumsum(shares) * size + total // 2) // total)


def _mask(
    name: str, values: ArrayLike | None, length: int, *, missing: bool = True
) -> NDArray[np.bool_]:
    mask = np.full(length, missing) if values is None else np.asarray(values, np.bool_)
    if mask.shape != (length,):
        raise ValueError(f"{name}: expected {length} values, not {mask.shape}")
    return mask


def _chosen_fields(family: int, policy: int, fields: int) -> int:
    if policy in (0, 2):
        return _FIELDS_L3_IPV6 if family == 6 else SRC_IP | DST_IP
    if policy == 1:
        return _FIELDS_L4
    if policy != 3:
        raise ValueError(f"policy: expected 0 to 3, not {policy!r}")
    if not 1 <= fields <= 0xFFF:
        raise ValueError(f"fields: expected 1 to 0xfff, not {fields:#x}")
    return fields & (_OUTER_FIELDS if family == 6 else _FIELDS_L4)


def _without_other_fields(tuples: FiveTuples, chosen: int) -> FiveTuples:
    fields = {"proto": PROTO, "sport": SRC_PORT, "dport": DST_PORT, "flow_label": FLOW_LABEL}
    zeros: dict[str, Any] = {name: 0 for name, bit in fields.items() if not chosen & bit}
    no_address = 0 if tuples.family == 4 else np.zeros(16, np.uint8)
    addresses = {"src": SRC_IP, "dst": DST_IP}
    zeros |= {name: no_address for name, bit in addresses.items() if not chosen & bit}
    return replace(tuples, **zeros)


def _flow_keys(tuples: FiveTuples, chunk: slice, label_swapped: bool) -> list[Block]:
    """Return what the kernel hashes, as little-endian words.

    That is ``struct flow_keys`` from ``basic`` on: protocol at byte 2, flow label at 4, ports at
    28, addresses at 36, zeros elsewhere; 48 bytes for IPv4, 72 for IPv6. Ports and addresses
    stand in network order, the lower of each pair first, so that both directions hash alike.
    """
    columns = (tuples.proto, tuples.flow_label, tuples.sport, tuples.dport)
    proto, label, sport, dport = (_rows(np.asarray(column), chunk) for column in columns)
    src, dst = (
        _rows(np.asarray(end), chunk, tuples.family == 6) for end in (tuples.src, tuples.dst)
    )
    label = label.byteswap() if label_swapped else label
    ports = _sorted(sport.byteswap(), dport.byteswap())
    words = [_wide(proto, 16) | _wide(label, 32), 0, 0, _wide(ports[0], 32) | _wide(ports[1], 48)]
    if tuples.family == 4:
        low, high = _sorted(src.byteswap(), dst.byteswap())
        words += [_wide(low, 32), _wide(high)]
    else:
        words += _ipv6_addresses(src, dst)
    return [*(_block(word) for word in words), last_block(8 * len(words))]


def _ipv6_addresses(src: NDArray[np.uint8], dst: NDArray[np.uint8]) -> list[Any]:
    """Return bytes 32 to 71: zeros, the two addresses as ``memcmp`` sorts them, zeros."""
    (s0, s1), (d0, d1) = [
        (words[..., 0], words[..., 1])
        for words in (np.ascontiguousarray(end).view(np.uint64) for end in (src, dst))
    ]
    big_s0, big_d0 = s0.byteswap(), d0.byteswap()
    swapped = (big_d0 < big_s0) | ((big_d0 == big_s0) & (d1.byteswap() < s1.byteswap()))
    a0, b0 = np.where(swapped, d0, s0), np.where(swapped, s0, d0)
    a1, b1 = np.where(swapped, d1, s1), np.where(swapped, s1, d1)
    half = np.uint64(32)
    words = [a0 << half, a0 >> half | a1 << half, a1 >> half | b0 << half]
    return [*words, b0 >> half | b1 << half, b1 >> half]


def _sorted(one: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.minimum(one, other), np.maximum(one, other)


def _wide(column: NDArray[Any], shift: int = 0) -> NDArray[np.uint64]:
    return column.astype(np.uint64) << np.uint64(shift)


def _rows(column: NDArray[Any], chunk: slice, row_ndim: int = 0) -> NDArray[Any]:
    return column if column.ndim == row_ndim or len(column) == 1 else column[chunk]


def _block(words: Any) -> Block:
    return int(np.asarray(words).item()) if np.size(words) == 1 else words


def _checked(name: str, values: ArrayLike, bits: int) -> NDArray[Any]:
    """Return the values as the smallest unsigned type that holds `bits`."""
    array = np.asarray(values)
    dtype = {8: np.uint8, 16: np.uint16}.get(bits, np.uint32)
    if array.size and (array.dtype != dtype or bits == 20):
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name}: expected integers, not {array.dtype}")
        for value in (int(array.min()), int(array.max())):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name}: expected 0 to {(1 << bits) - 1}, not {value}")
    return array.astype(dtype, copy=False)
