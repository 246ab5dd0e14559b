"""Compiling the BPF programs; needs no root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fabric_emu.errors import CommandFailed, HostUnfit
from fabric_emu.switch.build import build

SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tc") int nothing(struct __sk_buff *skb)
{
	return 0;
}
"""


def compiled(folder: Path, source: str) -> Path:
    file = folder / "program.bpf.c"
    file.write_text(source)
    return build(file)


def test_build_only_when_out_of_date(tmp_path: Path) -> None:
    path = compiled(tmp_path, SOURCE)
    source = path.with_suffix(".c")
    assert path == tmp_path / "program.bpf.o"
    first = path.stat().st_ino
    assert build(source) == path
    assert path.stat().st_ino == first

    later_ns = path.stat().st_mtime_ns + 1
    os.utime(source, ns=(later_ns, later_ns))
    build(source)
    assert path.stat().st_ino != first
    assert sorted(tmp_path.iterdir()) == [source, path]


def test_a_compiler_error_carries_the_compilers_lines(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="use of undeclared identifier 'nonsense'"):
        compiled(tmp_path, "int main(void) { return nonsense; }\n")
    assert [file.name for file in tmp_path.iterdir()] == ["program.bpf.c"]


def test_a_warning_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="unused variable"):
        compiled(tmp_path, "int main(void) { int nothing; return 0; }\n")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("clang") is None
    with pytest.raises(HostUnfit, match="scripts/setup"):
        compiled(tmp_path, SOURCE)
