"""What a port refuses, and how that is counted: queue limit, faults, a link that goes down."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fabric_emu.switch.columns import Records
from fabric_emu.switch.ports import DARK, DEAD, PORT_DTYPE, DropReason, PortConstants, PortTable

pytestmark = pytest.mark.root

TC_ACT_OK, TC_ACT_SHOT, TC_ACT_STOLEN = 0, 2, 4
PORT = 2
CONSTANTS = PortConstants(
    ifindex_base=(1 - PORT) % 2**32,  # test runs come from interface 1, the loopback device
    port_count=4,
    flow_count=2,
    qpn_base=0x100,
)
# Both Ethernet addresses are given: else scapy asks the network for them.
IPV4 = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
ROCE4 = bytes(IPV4 / UDP(sport=0xC123, dport=4791) / BTH(opcode=4, dqpn=0x101) / Raw(bytes(64)))
TCP4 = bytes(IPV4 / TCP(dport=4791) / Raw(bytes(40)))


@pytest.fixture
def table() -> Iterator[PortTable]:
    with PortTable(CONSTANTS) as table:
        yield table


def total(records: Records) -> dict[str, int]:
    """Return the sum of every column that is not zero."""
    sums = {name: int(records[name].sum()) for name in records.dtype.names or ()}
    return {name: value for name, value in sums.items() if value}


def test_queue_limit(table: PortTable) -> None:
    length = len(ROCE4)
    table.configs[PORT]["drop_at_bytes"] = 3 * length
    verdicts = [table.bpf.test_run("port_egress", ROCE4).verdict for _ in range(5)]

    assert verdicts == [TC_ACT_OK] * 3 + [TC_ACT_SHOT] * 2
    port = table.ports[PORT]
    assert port["enqueued_packets"] == 3
    assert port["enqueued_bytes"] == port["high_water_bytes"] == 3 * length
    assert port["dropped_packets"][DropReason.QUEUE_LIMIT] == port["dropped_packets"].sum() == 2
    assert port["dropped_bytes"][DropReason.QUEUE_LIMIT] == 2 * length
    assert total(table.flow_ports[1, PORT]) == {
        "offered_packets": 5,
        "offered_bytes": 5 * length,
        "dropped_packets": 2,
        "dropped_bytes": 2 * length,
    }
    assert table.depth_bytes.tolist() == [0, 0, 3 * length, 0]
    assert table.offered_bytes.tolist() == [0, 0, 5 * length, 0]


def test_queue_limit_one_byte_short(table: PortTable) -> None:
    table.configs[PORT]["drop_at_bytes"] = len(ROCE4) - 1
    assert table.bpf.test_run("port_egress", ROCE4).verdict == TC_ACT_SHOT
    assert table.bpf.test_run("port_egress", ROCE4[:-1]).verdict == TC_ACT_OK


def test_a_queue_shorter_than_nothing_is_empty(table: PortTable) -> None:
    # The programs read the counters one by one while others add to them.
    with mmap.mmap(
        table.bpf.map_fds["ports"], CONSTANTS.port_count * PORT_DTYPE.itemsize
    ) as memory:
        np.frombuffer(memory, PORT_DTYPE)["departed_bytes"][PORT] = 1_000_000
    table.configs[PORT]["drop_at_bytes"] = len(ROCE4)
    assert table.bpf.test_run("port_egress", ROCE4).verdict == TC_ACT_OK
    assert table.ports[PORT]["high_water_bytes"] == len(ROCE4)
    assert table.depth_bytes[PORT] == len(ROCE4) - 1_000_000


def test_written_off_packets_leave_the_queue(table: PortTable) -> None:
    length = len(ROCE4)
    table.configs[PORT]["drop_at_bytes"] = 3 * length
    table.bpf.test_run("port_egress", ROCE4, repeat=5)
    table.write_off(PORT)

    assert table.depth_bytes[PORT] == 0
    assert table.ports[PORT]["dropped_packets"][DropReason.LINK_DOWN] == 3
    assert table.ports[PORT]["dropped_bytes"][DropReason.LINK_DOWN] == 3 * length
    assert table.offered_bytes[PORT] == 5 * length  # the three were enqueued: not counted twice
    assert table.bpf.test_run("port_egress", ROCE4).verdict == TC_ACT_OK
    assert table.ports[PORT]["high_water_bytes"] == 3 * length
    table.write_off(PORT)
    assert table.ports[PORT]["dropped_packets"][DropReason.LINK_DOWN] == 4


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("loss_per_million", 1_000_000, DropReason.FAULT_LOSS),
        ("blackhole", 1, DropReason.BLACKHOLE),
    ],
)
def test_a_fault_takes_every_packet(
    table: PortTable, setting: str, value: int, reason: DropReason
) -> None:
    table.configs[PORT][setting] = value
    for frame in (ROCE4, TCP4):
        run = table.bpf.test_run("port_egress", frame)
        assert (run.verdict, run.frame) == (TC_ACT_STOLEN, frame)

    port = table.ports[PORT]
    assert port["dropped_packets"][reason] == port["dropped_packets"].sum() == 2
    assert port["dropped_bytes"][reason] == len(ROCE4) + len(TCP4)
    assert port["enqueued_packets"] == 0
    assert table.flow_ports[1, PORT]["dropped_packets"] == 1


def test_loss_has_its_probability(table: PortTable) -> None:
    table.configs[PORT]["loss_per_million"] = 250_000
    table.bpf.test_run("port_egress", ROCE4, repeat=10_000)
    lost = int(table.ports[PORT]["dropped_packets"][DropReason.FAULT_LOSS])
    # Binomial: mean 2,500, standard deviation sqrt(10,000 * 0.25 * 0.75) = 43.3; six of them miss
    # once in 500 million runs.
    assert abs(lost - 2_500) < 260
    assert int(table.ports[PORT]["enqueued_packets"]) == 10_000 - lost


def test_nothing_gets_into_a_link_that_is_down(table: PortTable) -> None:
    table.configs[PORT]["dead"] = DEAD  # of which only policies take notice
    assert table.bpf.test_run("port_egress", ROCE4).verdict == TC_ACT_OK
    table.configs[PORT]["dead"] = DARK
    assert table.bpf.test_run("port_egress", ROCE4).verdict == TC_ACT_STOLEN
    port = table.ports[PORT]
    assert port["enqueued_packets"] == 1
    assert port["dropped_packets"][DropReason.NO_CARRIER] == port["dropped_packets"].sum() == 1
    assert table.offered_bytes[PORT] == 2 * len(ROCE4)
