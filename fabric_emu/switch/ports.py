"""The port table: every port's counters and settings as numpy columns, shared with the programs.

Reading and writing them costs no system call: the columns are the kernel's own memory.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fabric_emu.switch.build import build
from fabric_emu.switch.columns import MapColumns, Records, read_only
from fabric_emu.switch.loader import BpfObject
from fabric_emu.switch.receive import ICRC_TABLES_DTYPE, write_icrc_tables
from fabric_emu.switch.switches import SwitchSizes, SwitchTable


class DropReason(IntEnum):
    """Why a packet went no further: the column of ``dropped_packets`` and ``dropped_bytes``."""

    QUEUE_LIMIT = 0
    FAULT_LOSS = 1
    BLACKHOLE = 2
    CONTROL_LIMIT = 3
    LINK_DOWN = 4
    ADVERT_LOST = 5
    ROUTING_LOST = 6
    NO_CARRIER = 7


DROP_REASONS = 8

DEAD, DARK = 1, 2
"""Of a port: no policy chooses it; and what is sent there all the same is lost."""

OF_NO_HOST = (DropReason.ADVERT_LOST, DropReason.ROUTING_LOST)
"""Reasons of packets that switches sent to each other."""

# These mirror the structures of bpf/structures.h, where each field is explained.
PORT_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("enqueued_bytes", "u8"),
        ("enqueued_packets", "u8"),
        ("high_water_bytes", "u8"),
        ("unknown_flow_packets", "u8"),
        ("marked_packets", "u8"),
        ("trimmed_packets", "u8"),
        ("trimmed_bytes", "u8"),
        ("departed_bytes", "u8"),
        ("departed_packets", "u8"),
        ("delivered_bytes", "u8"),
        ("delivered_packets", "u8"),
        ("icrc_errors", "u8"),
        ("control_enqueued_bytes", "u8"),
        ("control_departed_bytes", "u8"),
        ("control_written_off_bytes", "u8"),
        ("advert_packets", "u8"),
        ("advert_bytes", "u8"),
        ("advert_departed_packets", "u8"),
        ("advert_written_off_packets", "u8"),
        ("routing_packets", "u8"),
        ("routing_bytes", "u8"),
        ("routing_departed_packets", "u8"),
        ("routing_departed_bytes", "u8"),
        ("routing_written_off_packets", "u8"),
        ("load_bytes", "u8"),
        ("load_tick", "u8"),
        ("dropped_packets", "u8", (DROP_REASONS,)),
        ("dropped_bytes", "u8", (DROP_REASONS,)),
    ]
)
PORT_CONFIG_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("drop_at_bytes", "u8"),
        ("control_limit_bytes", "u8"),
        ("mark_above_bytes", "u8"),
        ("mark_all_above_bytes", "u8"),
        ("trim_above_bytes", "u8"),
        ("trimmable_dscps", "u8"),
        ("load_tick_ns", "u8"),
        ("load_low_bytes", "u8"),
        ("load_high_bytes", "u8"),
        ("queue_low_bytes", "u8"),
        ("queue_high_bytes", "u8"),
        ("mark_per_million", "u4"),
        ("loss_per_million", "u4"),
        ("trim_to_bytes", "u2"),
        ("load_weight", "u2"),
        ("queue_weight", "u2"),
        ("switch_number", "u2"),
        ("load_shift", "u1"),
        ("trimmed_dscp", "u1"),
        ("path_stamp", "u1"),
        ("blackhole", "u1"),
        ("dead", "u1"),
        ("padding", "u1", (3,)),
    ]
)
FLOW_PORT_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("offered_packets", "u8"),
        ("offered_bytes", "u8"),
        ("dropped_packets", "u8"),
        ("dropped_bytes", "u8"),
        ("trimmed_packets", "u8"),
        ("marked_packets", "u8"),
    ]
)


def dscp_bits(*dscps: int) -> int:
    """Return a set of DSCPs as the programs take it: one bit each."""
    return sum(1 << dscp for dscp in set(dscps))


@dataclass(frozen=True)
class PortConstants:
    """What the programs take as fixed.

    Attributes:
        ifindex_base: interface index of port 0; a link's two ends are ports k and k ^ 1.
        port_count: number of ports.
        flow_count: number of flows counted per port.
        qpn_base: destination queue pair of flow 0.
        control_dscps: DSCPs of packets for the control class, one bit each.
        trimmed_dscps: DSCPs of packets that switches have trimmed, one bit each.
        check_payloads: not 0: NICs read payloads to the last byte for the ICRC, instead of
            taking them for what NICs send.
        control_classid: the shaper's class of control packets (major << 16 | minor).
        data_classid: the shaper's class of all others.
        leaf_count: leaves of a plane.
        host_bits: low bits of an IPv4 host address that number the host on its leaf.
        flowlet_entries: flowlets that each switch has memory for.
        advert_blocks: adverts that it takes to tell of all leaves.
    """

    ifindex_base: int
    port_count: int
    flow_count: int = 0
    qpn_base: int = 0
    control_dscps: int = dscp_bits(48)
    trimmed_dscps: int = 0
    check_payloads: int = 0
    control_classid: int = 0x10001
    data_classid: int = 0x10002
    leaf_count: int = 0
    host_bits: int = 8
    flowlet_entries: int = 0
    advert_blocks: int = 0


@dataclass(frozen=True)
class PortSnapshot:
    """A copy of the counters at one time.

    Attributes:
        time_ns: CLOCK_MONOTONIC just before the copy.
        ports: (ports,) of `PORT_DTYPE`.
        flow_ports: (flows, ports) of `FLOW_PORT_DTYPE`.
    """

    time_ns: int
    ports: Records
    flow_ports: Records


class PortTable:
    """The loaded programs and the maps of the ports as numpy columns.

    Args:
        constants: what the programs take as fixed.
        switches: how many switches choose next hops themselves, and groups of next hops.

    Attributes:
        constants: as given.
        bpf: the loaded object: ``bpf.program_fds`` has port_egress, port_ingress, switch_ingress,
            host_ingress, nic_receive.
        switches: the same maps' switch side.
        ports: (ports,) of `PORT_DTYPE`, live and read-only.
        configs: (ports,) of `PORT_CONFIG_DTYPE`, live; what is written here takes effect with the
            next packet.
        flow_ports: (flows, ports) of `FLOW_PORT_DTYPE`, live and read-only.

    Raises:
        HostUnfit: compiler, libbpf or permission is missing.
        CommandFailed: the compiler refused the programs.
        ProgramRejected: the kernel refused the programs, or their structures are not these.
    """

    def __init__(self, constants: PortConstants, switches: SwitchSizes | None = None) -> None:
        self.constants = constants
        ports, flows = constants.port_count, constants.flow_count
        sizes = (switches or SwitchSizes()).with_constants(
            ports, constants.leaf_count, constants.flowlet_entries, constants.advert_blocks
        )
        entries = {"ports": ports, "port_configs": ports, "flow_ports": flows * ports}
        entries |= sizes.map_entries()
        self.bpf = BpfObject(
            build(),
            constants=asdict(constants),
            # The kernel has no map without entries.
            map_entries={name: max(1, count) for name, count in entries.items()},
        )
        self._columns = MapColumns(self.bpf)
        try:
            records = self._columns.records
            self._ports = records("ports", "port", PORT_DTYPE, ports)
            self.configs = records("port_configs", "port_config", PORT_CONFIG_DTYPE, ports)
            cells = records("flow_ports", "flow_port", FLOW_PORT_DTYPE, flows * ports)
            self.switches = SwitchTable(self._columns, sizes)
            write_icrc_tables(records("icrc_tables", "icrc_tables", ICRC_TABLES_DTYPE, 1))
        except BaseException:
            self.close()
            raise
        self.ports = read_only(self._ports)
        self.flow_ports = read_only(cells.reshape(flows, ports))

    def close(self) -> None:
        """Give maps and programs back.

        A column that the caller still holds stays valid, and its map in memory, until it goes.
        """
        nothing = np.empty(0, np.void)
        self._ports = self.ports = self.configs = self.flow_ports = nothing
        if hasattr(self, "switches"):
            self.switches.close()
        self._columns.close()
        self.bpf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def depth_bytes(self) -> npt.NDArray[np.int64]:
        """Bytes in each port's queue, (ports,)."""
        # What departs while this reads must not be missing from what was enqueued: read it first.
        gone = self.ports["departed_bytes"] + self.ports["dropped_bytes"][:, DropReason.LINK_DOWN]
        depth: npt.NDArray[np.uint64] = self.ports["enqueued_bytes"] - gone
        return depth.view(np.int64)

    @property
    def offered_bytes(self) -> npt.NDArray[np.uint64]:
        """Bytes of data asked of each port, enqueued, dropped or cut off, (ports,)."""
        return offered_bytes(self.ports)

    def snapshot(self) -> PortSnapshot:
        """Return a copy of the counters; each counter is whole, the copy as such is not atomic."""
        return PortSnapshot(time.monotonic_ns(), self.ports.copy(), self.flow_ports.copy())

    def write_off(self, port: int) -> None:
        """Count as dropped by LINK_DOWN what is in a port's queue.

        A link that goes down takes its queue with it, and nothing will ever count those packets
        as departed: call this once the link is down, or the port stays that much shorter.
        """
        row = self._ports[port]
        for enqueued, departed, written_off in _WRITTEN_OFF_WITH:
            # Departed first: packets that pass meanwhile count as queued. What left before the
            # programs were there, such as a new link's multicast reports, was never counted in.
            gone = int(row[departed]) + int(row[written_off])
            row[written_off] += max(int(row[enqueued]) - gone, 0)
        lost = row["dropped_packets"], row["dropped_bytes"]
        for dropped, unit in zip(lost, ("packets", "bytes"), strict=True):
            gone = int(row[f"departed_{unit}"]) + int(dropped[DropReason.LINK_DOWN])
            dropped[DropReason.LINK_DOWN] += max(int(row[f"enqueued_{unit}"]) - gone, 0)


_PACKETS_OF_NO_HOST = (
    ("advert_packets", "advert_departed_packets", "advert_written_off_packets"),
    ("routing_packets", "routing_departed_packets", "routing_written_off_packets"),
)
_WRITTEN_OFF_WITH = (
    ("control_enqueued_bytes", "control_departed_bytes", "control_written_off_bytes"),
    *_PACKETS_OF_NO_HOST,
)


def offered_bytes(ports: Records) -> npt.NDArray[np.uint64]:
    """Return the bytes asked of each port, by its counters, (..., ports).

    What routers say to each other is left out.
    """
    dropped = ports["dropped_bytes"]
    from_queue = dropped[..., DropReason.LINK_DOWN]  # these were enqueued before
    asked = ports["enqueued_bytes"] + ports["trimmed_bytes"] + dropped.sum(axis=-1) - from_queue
    return _less(asked, ports["routing_bytes"] + dropped[..., DropReason.ROUTING_LOST])


def carried_bytes(ports: Records) -> npt.NDArray[np.uint64]:
    """Return the bytes that left each port, but for what routers say to each other, (ports,)."""
    return _less(ports["departed_bytes"], ports["routing_departed_bytes"])


def waiting_packets(ports: Records) -> npt.NDArray[np.int64]:
    """Return the hosts' packets in each port's queue, (ports,)."""
    waiting = ports["enqueued_packets"] - ports["departed_packets"]
    waiting -= ports["dropped_packets"][:, DropReason.LINK_DOWN]
    for enqueued, departed, written_off in _PACKETS_OF_NO_HOST:
        waiting -= ports[enqueued] - ports[departed] - ports[written_off]
    return waiting.view(np.int64)


def link_down_packets(ports: Records) -> npt.NDArray[np.uint64]:
    """Return the hosts' packets lost in the queues of links that went down, (ports,)."""
    lost = ports["dropped_packets"][:, DropReason.LINK_DOWN].copy()
    for _, _, written_off in _PACKETS_OF_NO_HOST:
        lost -= ports[written_off]
    return lost


def _less(counted: npt.NDArray[np.uint64], part: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a count less a part of it, which may have been read just after."""
    return counted - np.minimum(counted, part)
