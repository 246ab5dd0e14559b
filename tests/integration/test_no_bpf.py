"""A root that has all its rights, but for the system call bpf: as in a container."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric_emu.errors import HostUnfit

pytestmark = pytest.mark.root

TEXT = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 1, link_rate: 10mbit}
workload: {pattern: permutation, flows_per_host: 1, load: 0.5, duration: 200ms}
schemes: [ecmp]
"""

# Number of bpf() and the architecture's name. Source: linux/audit.h, asm/unistd.h.
SYSTEM_CALLS = {"x86_64": (321, 0xC000003E), "aarch64": (280, 0xC00000B7)}
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


class FilterProgram(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_bpf(error: int) -> Callable[[], None]:
    """Return what makes bpf() fail in this process and its children, for good.

    Source: seccomp(2); struct seccomp_data begins with the number and the architecture.
    """
    number, architecture = SYSTEM_CALLS[platform.machine()]
    instructions = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 0, 2, architecture),  # another: allow
        (0x20, 0, 0, 0),  # load the number
        (0x15, 1, 0, number),  # bpf(): refuse
        (0x06, 0, 0, ALLOW),
        (0x06, 0, 0, ERRNO | error),
    ]
    code = b"".join(struct.pack("=HBBI", *each) for each in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = FilterProgram(len(instructions), ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)

    def refuse() -> None:
        kept = buffer  # the kernel copies it now
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
            raise OSError(ctypes.get_errno(), f"no filter of {len(kept)} bytes")

    return refuse


def command(words: list[str], folder: Path, error: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from fabric_emu.cli import main; main()", *words],
        preexec_fn=refuse_bpf(error),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "missing", "remedy"),
    [
        (errno.EPERM, "not allowed to load BPF programs", "leave the container, or"),
        (errno.ENOSYS, "a kernel without BPF", "boot a kernel with CONFIG_BPF_SYSCALL=y"),
    ],
)
def test_bpf_is_refused(error: int, missing: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(TEXT)
    done = command(["run", "small.yaml"], tmp_path, error)
    assert done.returncode == HostUnfit.exit_code, done.stderr
    assert f"{missing}; remedy: {remedy}" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["small.yaml"]
    # Namespaces, leases and processes: every test is asked for those it leaves.

    told = command(["doctor"], tmp_path, error)
    assert told.returncode == HostUnfit.exit_code
    line = next(line for line in told.stdout.splitlines() if "BPF programs" in line)
    assert line.startswith("missing")
    assert missing in line
