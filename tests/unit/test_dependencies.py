"""What describes, predicts, measures and reports needs no fabric, nor the right to make one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "fabric_emu"
PURE = ("model", "importers", "wire", "measure", "predict", "results")

IMPORT_ALL = """
import importlib, sys

class Barrier:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mininet", "pyroute2"):
            raise ImportError(f"{name} is not to be imported here")

sys.meta_path.insert(0, Barrier())
for name in sys.argv[1:]:
    importlib.import_module(name)
live = ("fabric_emu.net", "fabric_emu.experiment")
print([name for name in sys.modules if name in live or name.startswith(live)])
print([line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1])
"""

CHECK_SHIPPED = """
from fabric_emu.cli import main
main(["check", *sys.argv[1:]], standalone_mode=False)
"""


def modules_of(part: str) -> list[str]:
    files = sorted((PACKAGE / part).rglob("*.py"))
    names = [".".join(file.relative_to(CHECKOUT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def unprivileged(code: str, *arguments: str) -> list[str]:
    """Run code without any capability and return the lines it prints.

    The user stays the same: the checkout may be readable by its owner alone.
    """
    command = [sys.executable, "-c", code, *arguments]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        assert setpriv, "setpriv is part of util-linux, which every Debian has"
        command = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--", *command]
    result = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("part", PURE)
def test_part_imports_nothing_of_the_live_fabric(part: str) -> None:
    names = modules_of(part)
    assert f"fabric_emu.{part}" in names
    live, capabilities = unprivileged(IMPORT_ALL, *names)
    assert live == "[]"
    assert int(capabilities, 16) == 0


def test_the_barrier_holds() -> None:
    with pytest.raises(AssertionError, match="is not to be imported here"):
        unprivileged(IMPORT_ALL, "pyroute2")


def test_shipped_scenarios_are_checked_without_privileges() -> None:
    scenarios = sorted(str(file) for file in (CHECKOUT / "scenarios").glob("*.yaml"))
    assert scenarios
    printed = unprivileged(f"import sys{CHECK_SHIPPED}", *scenarios)
    assert [line for line in printed if not line.startswith(" ") and line] == [
        f"{scenario}: good" for scenario in scenarios
    ]
