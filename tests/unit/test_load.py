"""Runs read back as arrays, and the files they come from."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabric_emu
from fabric_emu.errors import FabricError
from fabric_emu.results.read import UnreadableRun
from fabric_emu.results.run import FORMAT, RunResult
from fabric_emu.results.tables import csv_bytes, csv_columns, npz_arrays, npz_bytes

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]


def test_what_was_saved_comes_back_as_arrays(
    tmp_path: Path, whole_run_of: Run, summary_of: Summary, measured_of: Callable[..., Any]
) -> None:
    written = whole_run_of(summary_of("ecmp"), summary_of("mrc"), messages=20)
    folder = written.save(tmp_path)
    run = fabric_emu.load(folder)
    assert run.document == json.loads((folder / "run.json").read_text())
    assert [scheme.name for scheme in run] == ["ecmp", "mrc"]
    assert len(run.topology.links) == 32
    mrc = run["mrc"]
    assert mrc is run["mrc", 7]
    assert mrc.summary["efficiency"] == 1.0
    made = measured_of(summary_of("mrc"), run.topology, 20)
    for name in ("series", "reordering", "messages"):
        found, expected = getattr(mrc, name), getattr(made, name)
        assert list(found) == list(expected)
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key])
    # Differences of counters may be negative: they are not unsigned any more.
    assert mrc.series["offered_bytes"].dtype == np.int64
    np.testing.assert_array_equal(mrc.ports["offered"], made.ports["offered"])
    assert mrc.flows["carries"].tolist() == ["data"] * 3 + ["answers"] * 3
    with pytest.raises(KeyError, match="this run has ecmp, mrc"):
        run["dlb"]
    # A notebook shows these, not megabytes of columns.
    assert repr(run).endswith(": ecmp, mrc>")
    assert repr(mrc).startswith("<scheme mrc, seed 7, of ")


def test_columns_become_numbers_truth_or_text(
    tmp_path: Path, run_of: Run, summary_of: Summary, result_of: Callable[..., Any]
) -> None:
    flows = {
        "load": [0.5, None],
        "sent": [1, 2],
        "as_predicted": [True, False],
        "path": ["a", None],
    }
    run = run_of().with_scheme(result_of(summary_of("ecmp"), flows=flows))
    columns = fabric_emu.load(run.save(tmp_path))["ecmp"].flows
    np.testing.assert_array_equal(columns["load"], [0.5, np.nan])
    assert columns["sent"].dtype == np.int64
    assert columns["as_predicted"].tolist() == [True, False]
    assert columns["path"].tolist() == ["a", ""]


def test_newer_format_is_refused_with_a_sentence(tmp_path: Path, run_of: Run) -> None:
    file = run_of().save(tmp_path) / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": FORMAT + 1}))
    with pytest.raises(UnreadableRun, match=r"has format 2; this fabric-emu reads formats up to 1"):
        fabric_emu.load(file.parent)


def test_scenario_of_another_version_is_refused(tmp_path: Path, run_of: Run) -> None:
    file = run_of().save(tmp_path) / "run.json"
    document = json.loads(file.read_text())
    document["scenario"]["topology"]["wormholes"] = 3
    file.write_text(json.dumps(document))
    with pytest.raises(UnreadableRun, match="its scenario is none of this version's") as caught:
        fabric_emu.load(file)
    assert "wormholes" in str(caught.value)


@pytest.mark.parametrize("missing", ["series-ecmp.npz", "flows-ecmp.csv"])
def test_missing_file_is_named(
    tmp_path: Path, whole_run_of: Run, summary_of: Summary, missing: str
) -> None:
    folder = whole_run_of(summary_of("ecmp")).save(tmp_path)
    (folder / missing).unlink()
    with pytest.raises(UnreadableRun, match=rf"{missing}: No such file"):
        fabric_emu.load(folder)


def test_broken_arrays_are_named(tmp_path: Path, whole_run_of: Run, summary_of: Summary) -> None:
    folder = whole_run_of(summary_of("ecmp")).save(tmp_path)
    file = folder / "series-ecmp.npz"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(FabricError, match=r"series-ecmp\.npz: not an npz"):
        _ = fabric_emu.load(folder)["ecmp"].series


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
    | st.lists(st.integers(0, 2**32), max_size=5)
)
def test_integers_survive_their_file(values: list[int]) -> None:
    found = npz_arrays(npz_bytes({"values": np.array(values, np.int64)}))["values"]
    assert found.tolist() == values
    assert found.dtype == np.int64


def test_small_integers_take_32_bits() -> None:
    table = np.full((100, 100), 2**32 - 1, np.uint64)
    content = npz_bytes({"table": table})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # The header of an npy takes 128 bytes.
        assert archive.getinfo("table.npy").file_size == 128 + 4 * table.size
    with np.load(io.BytesIO(content)) as archive:  # any numpy reads it
        np.testing.assert_array_equal(archive["table"], table)


def test_same_arrays_give_the_same_file() -> None:
    arrays = {"time_s": np.linspace(0, 1, 50), "names": np.array(["a", "bc"])}
    assert npz_bytes(arrays) == npz_bytes(dict(arrays))


def test_what_would_be_executed_is_not_read() -> None:
    file = io.BytesIO()
    np.savez(file, evil=np.array([{}], object))
    with pytest.raises(ValueError, match=r"allow_pickle|Object arrays"):
        npz_arrays(file.getvalue())
    with pytest.raises(ValueError, match="npz"):
        npz_arrays(b"neither")


def test_broken_csv_is_refused() -> None:
    with pytest.raises(ValueError, match="index out of range"):
        csv_columns(b"a,b\n1\n")
    with pytest.raises(ValueError, match="not enough values"):
        csv_columns(b"")
    assert csv_columns(csv_bytes({"a": ["x,\ny", ""]})) == {"a": ["x,\ny", None]}
