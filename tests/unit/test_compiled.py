from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from numpy.typing import NDArray

from fabric_emu.compiled import Floats, Ints, compiled

PACKAGE = Path(__file__).resolve().parents[2] / "fabric_emu"
PAIR = np.dtype([("sent", np.int64), ("failed", np.bool_), ("padding", np.uint8, (7,))])


@compiled
def weighted(count: Ints, weight: Floats, factor: float, pairs: Annotated[NDArray[np.void], PAIR]):
    total = 0.0
    for i in range(len(count)):
        if not pairs[i].failed:
            total += count[i] * weight[i] * factor
            pairs[i].sent += count[i]
    return total


def test_numbers_arrays_and_structures_are_read_and_written():
    draw = np.random.default_rng(1)
    count, weight = draw.integers(0, 9, 50), draw.random(50)
    pairs = np.zeros(50, PAIR)
    pairs["failed"] = draw.random(50) < 0.5
    counted = np.where(pairs["failed"], 0, count)
    assert weighted(count, weight, 2.0, pairs) == pytest.approx((counted * weight * 2).sum())
    assert pairs["sent"].tolist() == counted.tolist()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(np.zeros(4, np.int32), id="narrow"),
        pytest.param(np.zeros((2, 2), np.int64), id="two dimensions"),
        pytest.param(np.zeros(8, np.int64)[::2], id="strided"),
        pytest.param(np.broadcast_to(np.int64(1), 4), id="read only"),
    ],
)
def test_only_what_is_annotated_is_taken(count):
    with pytest.raises(TypeError):
        weighted(count, np.zeros(4), 1.0, np.zeros(4, PAIR))


LOOP = """
from fabric_emu.compiled import compiled
from fabric_emu.wire.layout import STEP

@compiled
def total(steps: int) -> int:
    return steps * STEP
"""


def run_copy(root: Path, *command: str, **environment: str) -> int:
    """Return what the copy's loop makes of 3 steps."""
    code = "from fabric_emu.nic.loop import total; print(total(3))"
    result = subprocess.run(
        [*command, sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.fixture
def copied(tmp_path):
    """A package of one loop, with a constant from another module."""
    package = tmp_path / "fabric_emu"
    for part in ("", "nic", "wire"):
        (package / part).mkdir(parents=True, exist_ok=True)
        (package / part / "__init__.py").touch()
    shutil.copy(PACKAGE / "compiled.py", package)
    (package / "nic" / "loop.py").write_text(LOOP)
    (package / "wire" / "layout.py").write_text("STEP = 7\n")
    return tmp_path


def test_a_changed_constant_of_another_module_is_compiled_anew(copied):
    assert run_copy(copied) == 21
    kept = list(copied.glob("fabric_emu/__pycache__/compiled-*"))
    (copied / "fabric_emu/wire/layout.py").write_text("STEP = 11\n")
    assert run_copy(copied) == 33
    now = list(copied.glob("fabric_emu/__pycache__/compiled-*"))
    assert len(kept) == len(now) == 1
    assert kept != now


def test_a_user_who_may_not_write_beside_the_package_keeps_code_in_their_own_cache(
    copied, tmp_path
):
    setpriv = shutil.which("setpriv")
    assert setpriv, "setpriv is part of util-linux, which every Debian has"
    own = tmp_path / "cache"
    own.mkdir()
    (copied / "fabric_emu").chmod(0o555)
    drop = ["--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    assert run_copy(copied, setpriv, *drop, "--", XDG_CACHE_HOME=str(own)) == 21
    assert list(own.glob("fabric-emu/compiled-*/**/*.nbc"))
    own.chmod(0o555)
    (copied / "fabric_emu/wire/layout.py").write_text("STEP = 5\n")
    nowhere = str(tmp_path / "cache" / "none")
    assert run_copy(copied, setpriv, *drop, "--", XDG_CACHE_HOME=nowhere) == 15
