"""How a switch chooses among equal next hops: flowlets, quality, chance, turns."""

from __future__ import annotations

import mmap
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fabric_emu.switch.columns import map_entries
from fabric_emu.switch.ports import PORT_DTYPE, PortConstants, PortTable
from fabric_emu.switch.quality import port_quality
from fabric_emu.switch.switches import (
    ADVERT_DTYPE,
    FLOWLET_DTYPE,
    GROUP_PORTS,
    Mode,
    SwitchSizes,
    group_of,
)

pytestmark = pytest.mark.root

PORT, PORTS = 2, 160
UPLINKS = (10, 12, 14, 16)
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=PORTS,
    leaf_count=2,
    flowlet_entries=512,
    advert_blocks=1,
)
SECOND = 10**9
DAY = 86_400 * SECOND


class Bench:
    """A switch with four uplinks to leaf 2, and the memory of its ports to write in."""

    def __init__(self, table: PortTable) -> None:
        self.table = table
        self.switches = table.switches
        self.config = table.switches.configs[0]
        self.config["flowlet_gap_ns"] = DAY
        self.config["table_entries"] = 512
        self.switches.groups[0] = group_of(UPLINKS)
        self.switches.routes[0] = [0, 1]
        for name, value in {"queue_high_bytes": 8000, "queue_weight": 256}.items():
            table.configs[name] = value
        self._mappings: list[mmap.mmap] = []
        fds = table.bpf.map_fds
        self.ports = map_entries(fds["ports"], PORT_DTYPE, PORTS, self._mappings)
        self.flowlets = map_entries(fds["flowlets"], FLOWLET_DTYPE, 512, self._mappings)
        self.adverts = map_entries(fds["adverts"], ADVERT_DTYPE, PORTS, self._mappings)

    def send(self, source_port: int = 0xC123) -> int | None:
        """Return the port that a packet goes by; None: left to the kernel."""
        run = self.table.bpf.test_run("switch_ingress", packet(source_port))
        return int.from_bytes(run.frame[8:12], "big") if run.verdict else None

    def send_many(self, count: int) -> Counter[int | None]:
        return Counter(self.send() for _ in range(count))

    def counters(self) -> dict[str, int]:
        return {name: count for name, count in self.switches.totals().items() if count}

    def age_flowlets(self, ns: int) -> None:
        self.flowlets["last_ns"] -= np.uint64(ns)

    def hear(self, port: int, quality: int, age_ns: int = 0) -> None:
        self.adverts["quality"][port, 1] = quality
        self.adverts["heard_ns"][port] = time.monotonic_ns() - age_ns


_PACKETS: dict[int, bytes] = {}


def packet(source_port: int) -> bytes:
    if source_port not in _PACKETS:
        ip = Ether(dst="00:00:00:00:00:00", src="02:00:00:00:00:01") / IP(
            src="10.0.1.1", dst="10.0.2.1"
        )
        udp = UDP(sport=source_port, dport=4791, chksum=0)
        _PACKETS[source_port] = bytes(ip / udp / BTH(opcode=4, dqpn=1) / Raw(bytes(64)))
    return _PACKETS[source_port]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with PortTable(CONSTANTS, SwitchSizes(switches=1, groups=2)) as table:
        yield Bench(table)


FLOWLET_MODES = [Mode.FLOWLET_QUALITY, Mode.FLOWLET_RANDOM, Mode.FIXED]


@pytest.mark.parametrize("mode", FLOWLET_MODES)
def test_a_flowlet_keeps_its_port(bench: Bench, mode: Mode) -> None:
    bench.config["mode"] = mode
    assert len(bench.send_many(50)) == 1
    assert bench.counters() == {"balanced": 50, "flowlets": 1}


@pytest.mark.parametrize("mode", [Mode.FLOWLET_QUALITY, Mode.FLOWLET_RANDOM])
def test_a_gap_begins_a_flowlet_and_a_shorter_pause_does_not(bench: Bench, mode: Mode) -> None:
    bench.config["mode"] = mode
    bench.config["flowlet_gap_ns"] = 100 * SECOND
    bench.send()
    bench.age_flowlets(90 * SECOND)
    bench.send()
    assert bench.counters()["flowlets"] == 1
    bench.age_flowlets(101 * SECOND)
    bench.send()
    assert bench.counters()["flowlets"] == 2
    bench.age_flowlets(90 * SECOND)  # since the packet before, not since the flowlet's first
    bench.send()
    bench.age_flowlets(90 * SECOND)
    bench.send()
    assert bench.counters()["flowlets"] == 2


def test_the_gap_changes_while_packets_flow(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    bench.send_many(5)
    assert bench.counters()["flowlets"] == 1
    bench.config["flowlet_gap_ns"] = 0  # two packets are never at one time
    bench.send_many(5)
    assert bench.counters()["flowlets"] == 6


def test_a_new_flowlet_leaves_a_bad_port(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    first = bench.send()
    assert first in UPLINKS
    bench.ports["enqueued_bytes"][first] = 8000
    assert bench.send() == first
    bench.age_flowlets(2 * DAY)
    assert bench.send() not in (first, None)
    assert bench.counters() == {"balanced": 3, "flowlets": 2, "reassignments": 1}


def test_a_new_flowlet_on_the_same_port_is_no_reassignment(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    bench.ports["enqueued_bytes"][[12, 14, 16]] = 8000
    for _ in range(5):
        assert bench.send() == 10
        bench.age_flowlets(2 * DAY)
    assert bench.counters() == {"balanced": 5, "flowlets": 5}


def test_a_fixed_flow_never_moves_unless_its_port_dies(bench: Bench) -> None:
    bench.config["mode"] = Mode.FIXED
    first = bench.send()
    bench.ports["enqueued_bytes"][first] = 8000
    bench.age_flowlets(2 * DAY)
    assert bench.send() == first
    bench.table.configs["dead"][first] = 1
    moved = bench.send()
    assert moved not in (first, None)
    bench.table.configs["dead"][first] = 0
    assert bench.send() == moved


def test_random_flowlets_take_no_notice_of_quality(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_RANDOM
    bench.ports["enqueued_bytes"][[10, 12, 14]] = 8000
    bench.config["flowlet_gap_ns"] = 0
    # One of four ports is idle; all 200 choices fall on it by chance once in 4^200.
    assert bench.send_many(200).keys() == set(UPLINKS)


def test_flows_that_share_an_entry_share_a_port(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    bench.config["table_entries"] = 1
    assert len({bench.send(port) for port in range(50_000, 50_040)}) == 1
    assert bench.counters()["flowlets"] == 1
    bench.config["table_entries"] = 2**32 - 1  # no more than there is memory for
    # 40 flows over four ports: all on one once in 4^39.
    assert len({bench.send(port) for port in range(50_000, 50_040)}) > 1


def test_flows_spread_over_the_table(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    for port in range(50_000, 50_512):
        bench.send(port)
    used = np.flatnonzero(bench.flowlets["route"])
    # 512 flows hashed into 512 entries fill 512 (1 - 1/e) = 323.6 of them on average, with a
    # standard deviation of sqrt(512 (1/e - 2/e^2)) = 7.1 (balls in bins); 43 are six of them.
    assert abs(len(used) - 323.6) < 43
    assert bench.counters()["flowlets"] == len(used)


def test_the_seed_changes_who_shares(bench: Bench) -> None:
    bench.config["mode"] = Mode.FLOWLET_QUALITY
    taken = []
    for seed in (0, 1, 1):
        bench.config["hash_seed"] = seed
        bench.flowlets["route"] = 0
        for port in range(50_000, 50_020):
            bench.send(port)
        taken.append(set(np.flatnonzero(bench.flowlets["route"]).tolist()))
    assert taken[0] != taken[1] == taken[2]


def test_a_flowlet_ends_with_its_group(bench: Bench) -> None:
    bench.config["mode"] = Mode.FIXED
    bench.send()
    bench.switches.groups[1] = group_of((20, 22))
    bench.switches.routes[0, 1] = 2
    assert bench.send() in (20, 22)
    assert bench.counters()["flowlets"] == 2
    assert "reassignments" not in bench.counters()


@pytest.mark.parametrize("best", UPLINKS)
def test_the_shortest_queue_is_chosen(bench: Bench, best: int) -> None:
    bench.config["mode"] = Mode.PER_PACKET_QUALITY
    bench.ports["enqueued_bytes"] = 5000
    bench.ports["enqueued_bytes"][best] = 3000
    assert bench.send_many(30) == {best: 30}
    bench.ports["departed_bytes"][12] = 5000
    assert bench.send_many(30) == {12: 30}


@pytest.mark.parametrize("best", UPLINKS)
def test_the_lowest_load_is_chosen(bench: Bench, best: int) -> None:
    bench.config["mode"] = Mode.PER_PACKET_QUALITY
    configs = bench.table.configs
    configs["queue_weight"], configs["load_weight"] = 0, 256
    configs["load_high_bytes"] = 8000
    configs["load_tick_ns"] = DAY
    bench.ports["load_bytes"] = 5000
    bench.ports["load_bytes"][best] = 3000
    bench.ports["enqueued_bytes"][best] = 8000  # has no weight
    assert bench.send_many(30) == {best: 30}


def shares(chosen: Counter[int | None], ports: tuple[int, ...]) -> None:
    """Assert that each port was chosen as often as the others, as far as chance goes."""
    total, n = chosen.total(), len(ports)
    assert chosen.keys() == set(ports)
    # Binomial; six standard deviations miss once in 500 million.
    allowed = 6 * (total * (1 / n) * (1 - 1 / n)) ** 0.5
    for count in chosen.values():
        assert abs(count - total / n) < allowed, chosen


@pytest.mark.parametrize("mode", [Mode.PER_PACKET_QUALITY, Mode.PER_PACKET_RANDOM])
@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_equal_ports_are_as_likely(bench: Bench, mode: Mode, n: int) -> None:
    bench.config["mode"] = mode
    ports = tuple(range(10, 10 + 2 * n, 2))
    bench.switches.groups[0] = group_of(ports)
    shares(bench.send_many(3000), ports)


def test_ties_are_broken_among_the_best_only(bench: Bench) -> None:
    bench.config["mode"] = Mode.PER_PACKET_QUALITY
    bench.ports["enqueued_bytes"][[10, 14]] = 2000  # two bands worse
    shares(bench.send_many(2000), (12, 16))


@pytest.mark.parametrize("mode", [Mode.PER_PACKET_QUALITY, Mode.PER_PACKET_RANDOM])
def test_dead_ports_are_not_chosen(bench: Bench, mode: Mode) -> None:
    bench.config["mode"] = mode
    bench.table.configs["dead"][[10, 14]] = 1
    shares(bench.send_many(2000), (12, 16))


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.KERNEL])
def test_without_a_port_alive_the_kernel_decides(bench: Bench, mode: Mode) -> None:
    bench.config["mode"] = mode
    bench.table.configs["dead"] = 1
    assert bench.send() is None
    assert bench.counters() == {"fallbacks": 1}
    bench.table.configs["dead"][14] = 0
    assert bench.send_many(20) == {14: 20}


@pytest.mark.parametrize("n", [2, 3, 4, GROUP_PORTS])
def test_turns_are_exact(bench: Bench, n: int) -> None:
    bench.config["mode"] = Mode.ROUND_ROBIN
    ports = tuple(range(10, 10 + 2 * n, 2))
    bench.switches.groups[0] = group_of(ports)
    assert bench.send_many(5 * n) == dict.fromkeys(ports, 5)
    bench.table.configs["dead"][10] = 1
    assert bench.send_many(5 * (n - 1)) == dict.fromkeys(ports[1:], 5)


def test_every_port_of_a_full_group_may_be_the_best(bench: Bench) -> None:
    bench.config["mode"] = Mode.PER_PACKET_QUALITY
    ports = tuple(range(10, 10 + 2 * GROUP_PORTS, 2))
    bench.switches.groups[0] = group_of(ports)
    bench.ports["enqueued_bytes"] = 8000
    for port in ports:
        bench.ports["departed_bytes"][port] = 8000
        assert bench.send() == port
        bench.ports["departed_bytes"][port] = 0


class TestAdverts:
    """The remote half of a path."""

    @pytest.fixture(autouse=True)
    def _listen(self, bench: Bench) -> None:
        bench.config["mode"] = Mode.PER_PACKET_QUALITY
        bench.config["advert_ageing_ns"] = 100 * SECOND
        for port in UPLINKS:
            bench.hear(port, 7)

    def test_the_worse_half_counts(self, bench: Bench) -> None:
        bench.hear(10, 2)
        bench.ports["enqueued_bytes"][12] = 7900  # quality 0
        bench.ports["enqueued_bytes"][14] = 4000  # quality 3
        bench.hear(16, 1)
        assert bench.send_many(30) == {14: 30}
        assert "stale" not in bench.counters()

    def test_what_is_said_is_per_leaf(self, bench: Bench) -> None:
        bench.adverts["quality"][10, 0] = 0
        bench.adverts["quality"][list(UPLINKS[1:]), 1] = 5
        assert bench.send_many(30) == {10: 30}

    @pytest.mark.parametrize(("age_s", "counts"), [(0, True), (90, True), (101, False)])
    def test_an_advert_ages(self, bench: Bench, age_s: int, counts: bool) -> None:
        bench.hear(10, 0, age_s * SECOND)
        chosen = bench.send_many(200)
        # Without the advert, 200 choices of four leave one out once in (4/3)^200 = 1e25.
        assert (10 in chosen) != counts
        assert bench.counters().get("stale", 0) == (0 if counts else 200)

    def test_an_advert_never_heard_is_stale(self, bench: Bench) -> None:
        bench.adverts["heard_ns"][10] = 0
        bench.adverts["quality"][10] = 0
        assert 10 in bench.send_many(200)
        assert bench.counters()["stale"] == 200

    def test_adverts_may_not_count_at_all(self, bench: Bench) -> None:
        bench.config["advert_ageing_ns"] = 0
        bench.hear(10, 0)
        assert 10 in bench.send_many(200)
        assert "stale" not in bench.counters()


def test_quality_is_as_worked_out_in_numpy(bench: Bench) -> None:
    """The quality of port 10 is told by what it must be matched with to be beaten."""
    bench.config["mode"] = Mode.PER_PACKET_QUALITY
    bench.config["advert_ageing_ns"] = DAY
    bench.switches.groups[0] = group_of((10, 12))
    configs, ports = bench.table.configs, bench.ports
    configs["queue_weight"][12] = 0
    bench.hear(10, 7)
    draw = np.random.default_rng(11)
    seen = set()
    for _ in range(150):
        tick_ns = int(draw.choice([1000, 100_000, 10_000_000])) * SECOND
        tick = time.monotonic_ns() // tick_ns
        for name, low, high in (
            ("load_low_bytes", 0, 5000),
            ("load_high_bytes", 5001, 50_000),
            ("queue_low_bytes", 0, 5000),
            ("queue_high_bytes", 5001, 50_000),
            ("load_shift", 2, 9),
        ):
            configs[name][10] = draw.integers(low, high, endpoint=True)
        weight = int(draw.integers(0, 256, endpoint=True))
        configs["load_weight"][10], configs["queue_weight"][10] = weight, 256 - weight
        configs["load_tick_ns"][10] = tick_ns
        ports["load_bytes"][10] = draw.integers(0, 60_000)
        ports["load_tick"][10] = draw.integers(0, tick, endpoint=True)
        ports["enqueued_bytes"][10] = draw.integers(0, 60_000)
        expected = int(port_quality(ports[10:11], configs[10:11], time.monotonic_ns())[0])
        measured = measured_quality(bench)
        if time.monotonic_ns() // tick_ns == tick:  # else the tick changed in between
            assert measured == expected
            seen.add(expected)
    assert seen == set(range(8))


def measured_quality(bench: Bench) -> int:
    """Return the quality at which ports 10 and 12 tie: the first that 10 does not always beat."""
    for quality in range(8):
        bench.hear(12, quality)
        if 12 in bench.send_many(1) or 12 in bench.send_many(30):  # a tie hides once in 2^31
            return quality
    raise AssertionError("better than the best")
