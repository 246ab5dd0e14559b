"""Loading: layouts, constants, mapped columns, what is left behind, and errors."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fabric_emu.errors import ProgramRejected
from fabric_emu.switch.build import build
from fabric_emu.switch.loader import BpfObject
from fabric_emu.switch.ports import (
    DROP_REASONS,
    FLOW_PORT_DTYPE,
    PORT_CONFIG_DTYPE,
    PORT_DTYPE,
    DropReason,
    PortConstants,
    PortTable,
)
from fabric_emu.switch.switches import (
    ADVERT_DTYPE,
    FLOWLET_DTYPE,
    GROUP_DTYPE,
    SWITCH_CONFIG_DTYPE,
    SWITCH_COUNTERS_DTYPE,
    Mode,
)

pytestmark = pytest.mark.root

FRAME = bytes(64)
CONSTANTS = PortConstants(ifindex_base=1, port_count=2, flow_count=3)

RESULT_PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile __u8 small = 1;
const volatile __s32 negative = 1;
const volatile __u64 large = 1;
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cells SEC(".maps");

SEC("tc") int result(struct __sk_buff *skb)
{
	__u32 last = 6;

	skb->mark = bpf_map_lookup_elem(&cells, &last) ? 1 : 0;
	skb->priority = large >> 32;
	return negative + small;
}
char LICENSE[] SEC("license") = "GPL";
"""

# Reads past what it has checked: every kernel's verifier refuses it.
REFUSED_PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tc") int unchecked(struct __sk_buff *skb)
{
	return *(__u8 *)(long)skb->data;
}
char LICENSE[] SEC("license") = "GPL";
"""


def compiled(folder: Path, source: str) -> Path:
    file = folder / "program.bpf.c"
    file.write_text(source)
    return build(file)


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def kernel_id(descriptor: int, kind: str) -> int:
    information = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    lines = dict(line.split(":", 1) for line in information.splitlines())
    return int(lines[f"{kind}_id"])


def exists(kind: str, number: int) -> bool:
    library = ctypes.CDLL("libbpf.so.1")
    descriptor: int = getattr(library, f"bpf_{kind}_get_fd_by_id")(number)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        os.sched_yield()


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        ("port", PORT_DTYPE),
        ("port_config", PORT_CONFIG_DTYPE),
        ("flow_port", FLOW_PORT_DTYPE),
        ("switch_config", SWITCH_CONFIG_DTYPE),
        ("switch_counters", SWITCH_COUNTERS_DTYPE),
        ("group", GROUP_DTYPE),
        ("flowlet", FLOWLET_DTYPE),
        ("advert", ADVERT_DTYPE),
    ],
)
def test_python_and_c_agree_on_structures(struct: str, dtype: np.dtype[np.void]) -> None:
    with PortTable(CONSTANTS) as table:
        in_c = table.bpf.btf.struct_dtype(struct)
    assert in_c.names == dtype.names
    assert dict(in_c.fields or {}) == dict(dtype.fields or {})  # type and offset of each
    assert in_c.itemsize == dtype.itemsize


def test_python_and_c_agree_on_drop_reasons() -> None:
    with PortTable(CONSTANTS) as table:
        reasons = table.bpf.btf.enum_values("drop_reason")
    assert reasons.pop("ADMITTED") == reasons.pop("DROP_REASONS") == DROP_REASONS
    assert reasons.pop("TO_BE_TRIMMED") > DROP_REASONS
    assert reasons == {reason.name: reason.value for reason in DropReason}


def test_python_and_c_agree_on_balancing_modes() -> None:
    with PortTable(CONSTANTS) as table:
        modes = table.bpf.btf.enum_values("balancing_mode")
    assert modes == {mode.name: mode.value for mode in Mode}


def test_no_layout_for_an_unknown_name() -> None:
    with PortTable(CONSTANTS) as table, pytest.raises(ValueError, match="no_such_struct"):
        table.bpf.btf.struct_dtype("no_such_struct")


def test_constants_of_every_width_and_sign(tmp_path: Path) -> None:
    constants = {"small": 200, "negative": -300, "large": 0x12345678_00000000}
    with BpfObject(compiled(tmp_path, RESULT_PROGRAM), constants=constants) as bpf:
        run = bpf.test_run("result", FRAME)
    assert (run.verdict, run.priority) == (-100, 0x12345678)


def test_constants_keep_their_default(tmp_path: Path) -> None:
    with BpfObject(compiled(tmp_path, RESULT_PROGRAM), constants={"small": 9}) as bpf:
        assert bpf.test_run("result", FRAME).verdict == 10


@pytest.mark.parametrize(("entries", "found"), [(6, 0), (7, 1)])
def test_map_sizes(tmp_path: Path, entries: int, found: int) -> None:
    path = compiled(tmp_path, RESULT_PROGRAM)
    with BpfObject(path, map_entries={"cells": entries}) as bpf:
        assert bpf.test_run("result", FRAME).mark == found


@pytest.mark.parametrize(
    ("constants", "map_entries", "message"),
    [
        ({"smal": 1}, {}, "'smal'; there are small, negative, large"),
        ({"small": 256}, {}, "small = 256: not within 0 to 255"),
        ({"small": -1}, {}, "small = -1"),
        ({"negative": 2**31}, {}, "negative = 2147483648"),
        ({}, {"cell": 1}, "'cell'; there are cells"),
        ({}, {"cells": 0}, "cells: 0 entries"),
        ({}, {"cells": 2**32}, "cells: 4294967296 entries"),
    ],
)
def test_names_and_values_that_do_not_fit(
    tmp_path: Path, constants: dict[str, int], map_entries: dict[str, int], message: str
) -> None:
    path = compiled(tmp_path, RESULT_PROGRAM)
    before = open_descriptors()
    with pytest.raises(ValueError, match=message):
        BpfObject(path, constants=constants, map_entries=map_entries)
    assert open_descriptors() == before


def test_columns_are_the_kernels_memory() -> None:
    with PortTable(CONSTANTS) as table:
        assert table.ports.shape == table.configs.shape == (2,)
        assert table.flow_ports.shape == (3, 2)
        before = table.snapshot()
        table.bpf.test_run("port_egress", FRAME)
        table.configs["blackhole"] = [1, 0]
        table.bpf.test_run("port_egress", FRAME)

        assert table.ports[0]["enqueued_packets"] == 1
        assert table.ports[0]["dropped_packets"][DropReason.BLACKHOLE] == 1
        assert before.ports[0]["enqueued_packets"] == 0
        assert before.time_ns < table.snapshot().time_ns
        for counters in (table.ports, table.flow_ports):
            with pytest.raises(ValueError, match="read-only"):
                counters[:] = 0


def test_a_table_without_flows() -> None:
    with PortTable(PortConstants(ifindex_base=1, port_count=2)) as table:
        assert table.flow_ports.shape == (0, 2)
        assert table.bpf.test_run("port_egress", FRAME).verdict == 0


def test_nothing_is_left_after_close() -> None:
    PortTable(CONSTANTS).close()  # whatever a first use opens for good is open now
    before = open_descriptors()
    with PortTable(CONSTANTS) as table:
        maps = [kernel_id(descriptor, "map") for descriptor in table.bpf.map_fds.values()]
        programs = [kernel_id(descriptor, "prog") for descriptor in table.bpf.program_fds.values()]
        assert len(maps) == 12  # with the constants
        assert len(programs) == 5
        assert all(exists("map", number) for number in maps)
    assert open_descriptors() == before
    # The kernel frees a program, and with it its hold on the maps, after an RCU grace period.
    wait_until(lambda: not any(exists("prog", number) for number in programs))
    wait_until(lambda: not any(exists("map", number) for number in maps))


def test_a_column_may_outlive_the_table() -> None:
    before = open_descriptors()
    table = PortTable(CONSTANTS)
    table.bpf.test_run("port_egress", FRAME)
    enqueued = table.ports["enqueued_bytes"]
    table.close()
    table.close()
    assert enqueued.tolist() == [64, 0]
    del enqueued
    assert open_descriptors() == before


def test_a_refused_program_carries_the_verifiers_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = compiled(tmp_path, REFUSED_PROGRAM)
    before = open_descriptors()
    with pytest.raises(ProgramRejected, match="invalid access to packet") as caught:
        BpfObject(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 21
    assert open_descriptors() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("content", [b"", b"not an object", b"\x7fELF" + bytes(100)])
def test_a_file_that_is_no_object(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.o"
    path.write_bytes(content)
    with pytest.raises(ProgramRejected, match=r"broken\.o: "):
        BpfObject(path)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramRejected, match=r"none\.o: No such file"):
        BpfObject(tmp_path / "none.o")


WITHOUT_CAPABILITIES = """
import ctypes, pathlib, struct, sys
from fabric_emu.errors import HostUnfit
from fabric_emu.switch.loader import BpfObject

header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
assert ctypes.CDLL(None).capset(header, bytes(24)) == 0
try:
    BpfObject(pathlib.Path(sys.argv[1]))
except HostUnfit as error:
    print(error)
"""


def test_no_permission_says_what_to_do(tmp_path: Path) -> None:
    path = compiled(tmp_path, RESULT_PROGRAM)
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_CAPABILITIES, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert process.stdout.startswith(
        "not allowed to load BPF programs; remedy: leave the container"
    )
    assert process.stderr == ""
