"""The port table: every port's counters and settings as numpy columns, shared with the programs.

Reading and writing them costs no system call: the columns are the kernel's own memory.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from dataclasses import asdict, dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fabric_emu.errors import ProgramRejected
from fabric_emu.switch.build import build
from fabric_emu.switch.loader import BpfObject

Records = npt.NDArray[np.void]


class DropReason(IntEnum):
    """Why a packet went no further: the column of ``dropped_packets`` and ``dropped_bytes``."""

    QUEUE_LIMIT = 0
    FAULT_LOSS = 1
    BLACKHOLE = 2
    CONTROL_LIMIT = 3
    LINK_DOWN = 4


DROP_REASONS = 8

# These mirror the structures of bpf/structures.h, where each field is explained.
PORT_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("enqueued_bytes", "u8"),
        ("enqueued_packets", "u8"),
        ("high_water_bytes", "u8"),
        ("unknown_flow_packets", "u8"),
        ("marked_packets", "u8"),
        ("trimmed_packets", "u8"),
        ("departed_bytes", "u8"),
        ("departed_packets", "u8"),
        ("delivered_bytes", "u8"),
        ("delivered_packets", "u8"),
        ("dropped_packets", "u8", (DROP_REASONS,)),
        ("dropped_bytes", "u8", (DROP_REASONS,)),
    ]
)
PORT_CONFIG_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("drop_at_bytes", "u8"),
        ("loss_per_million", "u4"),
        ("path_stamp", "u1"),
        ("blackhole", "u1"),
        ("padding", "u1", (2,)),
    ]
)
FLOW_PORT_DTYPE: np.dtype[Any] = np.dtype(
    [
        ("offered_packets", "u8"),
        ("offered_bytes", "u8"),
        ("dropped_packets", "u8"),
        ("dropped_bytes", "u8"),
    ]
)


@dataclass(frozen=True)
class PortConstants:
    """What the programs take as fixed.

    Attributes:
        ifindex_base: interface index of port 0; a link's two ends are ports k and k ^ 1.
        port_count: number of ports.
        flow_count: number of flows counted per port.
        qpn_base: destination queue pair of flow 0.
        control_dscp: DSCP of packets for the control class.
        control_classid: the shaper's class of control packets (major << 16 | minor).
        data_classid: the shaper's class of all others.
    """

    ifindex_base: int
    port_count: int
    flow_count: int = 0
    qpn_base: int = 0
    control_dscp: int = 48
    control_classid: int = 0x10001
    data_classid: int = 0x10002


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
    """The loaded port programs and their maps as numpy columns.

    Args:
        constants: what the programs take as fixed.

    Attributes:
        constants: as given.
        bpf: the loaded object: ``bpf.program_fds`` has port_egress, port_ingress, host_ingress.
        ports: (ports,) of `PORT_DTYPE`, live and read-only.
        configs: (ports,) of `PORT_CONFIG_DTYPE`, live; what is written here takes effect with the
            next packet.
        flow_ports: (flows, ports) of `FLOW_PORT_DTYPE`, live and read-only.

    Raises:
        HostUnfit: compiler, libbpf or permission is missing.
        CommandFailed: the compiler refused the programs.
        ProgramRejected: the kernel refused the programs, or their structures are not these.
    """

    def __init__(self, constants: PortConstants) -> None:
        self.constants = constants
        ports, flows = constants.port_count, constants.flow_count
        self._mappings: list[mmap.mmap] = []
        self.bpf = BpfObject(
            build(),
            constants=asdict(constants),
            map_entries={
                "ports": ports,
                "port_configs": ports,
                "flow_ports": max(1, flows * ports),  # the kernel has no map without entries
            },
        )
        try:
            self._ports = self._columns("ports", "port", PORT_DTYPE, ports)
            self.configs = self._columns("port_configs", "port_config", PORT_CONFIG_DTYPE, ports)
            cells = self._columns("flow_ports", "flow_port", FLOW_PORT_DTYPE, flows * ports)
        except BaseException:
            self.close()
            raise
        self.ports = _read_only(self._ports)
        self.flow_ports = _read_only(cells.reshape(flows, ports))

    def close(self) -> None:
        """Give maps and programs back.

        A column that the caller still holds stays valid, and its map in memory, until it goes.
        """
        nothing = np.empty(0, np.void)
        self._ports = self.ports = self.configs = self.flow_ports = nothing
        for mapping in self._mappings:
            with contextlib.suppress(BufferError):  # still held: freed with its last column
                mapping.close()
        self._mappings.clear()
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
        """Bytes asked of each port, enqueued or dropped, (ports,)."""
        dropped = self.ports["dropped_bytes"]
        from_queue = dropped[:, DropReason.LINK_DOWN]  # these were enqueued before
        offered: npt.NDArray[np.uint64] = (
            self.ports["enqueued_bytes"] + dropped.sum(axis=1) - from_queue
        )
        return offered

    def snapshot(self) -> PortSnapshot:
        """Return a copy of the counters; each counter is whole, the copy as such is not atomic."""
        return PortSnapshot(time.monotonic_ns(), self.ports.copy(), self.flow_ports.copy())

    def write_off(self, port: int) -> None:
        """Count as dropped by LINK_DOWN what is in a port's queue.

        A link that goes down takes its queue with it, and nothing will ever count those packets
        as departed: call this once the link is down, or the port stays that much shorter.
        """
        row = self._ports[port]
        lost = row["dropped_packets"], row["dropped_bytes"]
        for dropped, unit in zip(lost, ("packets", "bytes"), strict=True):
            gone = row[f"departed_{unit}"] + dropped[DropReason.LINK_DOWN]
            dropped[DropReason.LINK_DOWN] += row[f"enqueued_{unit}"] - gone

    def _columns(self, map_name: str, struct: str, dtype: np.dtype[Any], count: int) -> Records:
        compiled = self.bpf.btf.struct_dtype(struct)
        if compiled != dtype:
            raise ProgramRejected(f"struct {struct} is {compiled}, expected {dtype}")
        if count == 0:
            return np.empty(0, dtype)
        mapping = mmap.mmap(self.bpf.map_fds[map_name], count * dtype.itemsize)
        self._mappings.append(mapping)
        return np.frombuffer(mapping, dtype)


def _read_only(columns: Records) -> Records:
    view = columns.view()
    view.flags.writeable = False
    return view
