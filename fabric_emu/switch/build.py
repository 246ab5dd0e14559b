"""Compiling the BPF programs: C beside its loader, built on the machine that runs it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from fabric_emu.errors import CommandFailed, HostUnfit

BPF_DIRECTORY = Path(__file__).parent / "bpf"
PORT_SOURCE = BPF_DIRECTORY / "port.bpf.c"

_SYSTEM_INCLUDE = Path("/usr/include")
_COMPILE_TIMEOUT_S = 120
_ERROR_LINES = 40


def build(source: Path = PORT_SOURCE) -> Path:
    """Return the object compiled from `source`, compiling it if it is missing or out of date.

    The object lies beside its source (``port.bpf.c`` gives ``port.bpf.o``) and is replaced in one
    step, so that several runs may build at the same time.

    Raises:
        HostUnfit: clang or a header package is missing.
        CommandFailed: the compiler refused the source; carries the compiler's lines.
    """
    object_file = source.with_suffix(".o")
    if not _is_current(object_file, source):
        _compile(source, object_file)
    return object_file


def _is_current(object_file: Path, source: Path) -> bool:
    inputs = [source, Path(__file__), *BPF_DIRECTORY.glob("*.h")]
    try:
        built_ns = object_file.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return built_ns >= max(path.stat().st_mtime_ns for path in inputs)


def _compile(source: Path, object_file: Path) -> None:
    clang = shutil.which("clang")
    if clang is None:
        raise HostUnfit("no clang (package clang)", "scripts/setup")
    includes = [BPF_DIRECTORY, *_kernel_include()]
    descriptor, name = tempfile.mkstemp(suffix=".o", dir=object_file.parent)
    os.close(descriptor)
    unfinished = Path(name)
    # -mcpu=v3 (kernel 5.1): 32-bit jumps; named because clang's default differs by version.
    command = [clang, "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"]
    command += [f"-I{directory}" for directory in includes]
    command += ["-c", str(source), "-o", str(unfinished)]
    try:
        compiler = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
        )
        if compiler.returncode != 0:
            lines = "\n".join(compiler.stderr.splitlines()[:_ERROR_LINES])
            raise CommandFailed(f"clang refused {source} (status {compiler.returncode}):\n{lines}")
        unfinished.chmod(0o644)
        unfinished.replace(object_file)
    finally:
        unfinished.unlink(missing_ok=True)


def _kernel_include() -> list[Path]:
    """Return what clang must be told for ``asm/types.h``, which `-target bpf` makes it miss.

    Debian keeps the architecture's headers in a directory of the architecture's name, which is
    not on the search path of another target.
    """
    if not (_SYSTEM_INCLUDE / "bpf" / "bpf_helpers.h").exists():
        raise HostUnfit("no bpf/bpf_helpers.h (package libbpf-dev)", "scripts/setup")
    if (_SYSTEM_INCLUDE / "asm" / "types.h").exists():
        return []
    multiarch = _SYSTEM_INCLUDE / f"{platform.machine()}-linux-gnu"
    if not (multiarch / "asm" / "types.h").exists():
        raise HostUnfit("no asm/types.h (package linux-libc-dev)", "scripts/setup")
    return [multiarch]
