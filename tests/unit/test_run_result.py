"""The result of a run: folder, JSON, CSV, spread; who owns it, and what it must not touch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric_emu.errors import FabricError
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.folder import safe_name, write_file, write_folder
from fabric_emu.results.read import UnreadableRun, load_run
from fabric_emu.results.run import FORMAT, RunResult

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]


def test_folder_holds_the_run(tmp_path: Path, run_of: Run, summary_of: Summary) -> None:
    run = replace(
        run_of(summary_of("ecmp"), summary_of("mrc")), started="2025-03-09T08:07:06+00:00"
    )
    folder = run.save(tmp_path)
    assert folder == tmp_path / "holbrook-20250309-080706"
    assert sorted(file.name for file in folder.iterdir()) == [
        "flows-ecmp.csv",
        "flows-mrc.csv",
        "ports-ecmp.csv",
        "ports-mrc.csv",
        "run.json",
        "series-ecmp.npz",
        "series-mrc.npz",
    ]
    assert (folder / "flows-mrc.csv").read_text() == "qpn,source,load\n256,h1,0.5\n257,h2,\n"
    document = json.loads((folder / "run.json").read_text())
    assert document["format"] == FORMAT == 1
    assert document["seed"] == 7
    assert document["status"] == "complete"
    assert [scheme["name"] for scheme in document["schemes"]] == ["ecmp", "mrc"]
    # The scenario is stored so that it can be run again.
    assert Scenario.model_validate(document["scenario"]).schemes[1].name == "mrc"


def test_started_is_utc_whatever_the_offset(tmp_path: Path, run_of: Run) -> None:
    folder = replace(run_of(), started="2025-03-09T01:30:00+05:30").save(tmp_path)
    assert folder.name == "holbrook-20250308-200000"


def test_run_reads_back_as_it_was(tmp_path: Path, run_of: Run, summary_of: Summary) -> None:
    run = run_of(summary_of("ecmp"), summary_of("mrc"))
    folder = run.save(tmp_path)
    assert load_run(folder) == run
    assert load_run(folder / "run.json") == run


def test_name_that_is_taken_gets_a_number(tmp_path: Path, run_of: Run) -> None:
    run = run_of()
    names = [run.save(tmp_path).name for _ in range(3)]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_several_seeds_in_file_names_and_spread(run_of: Run, summary_of: Summary) -> None:
    loads = {3: 1.0, 4: 1.75, 5: 1.25}
    run = run_of(
        *(summary_of("ecmp", (load, 0.5), seed=seed) for seed, load in loads.items()),
        seeds=tuple(loads),
    )
    assert "flows-ecmp-seed4.csv" in run.tables
    assert run.document()["spread"]["ecmp"]["worst_uplink_load"] == {
        "min": 1.0,
        "median": 1.25,
        "mean": pytest.approx(4 / 3),
        "max": 1.75,
    }
    assert set(run.spread["ecmp"]) == {
        "worst_uplink_load",
        "efficiency",
        "reordering.ratio",
        "delay.p99",
    }


def test_one_seed_has_no_spread(run_of: Run, summary_of: Summary) -> None:
    assert run_of(summary_of("ecmp")).spread == {}


def test_spread_without_uplinks_is_of_links(run_of: Run, summary_of: Summary) -> None:
    changes: dict[str, Any] = {"worst_uplink_load": None, "uplinks": {}, "worst_link_load": 0.5}
    run = run_of(*(summary_of("ecmp", seed=seed, **changes) for seed in (1, 2)), seeds=(1, 2))
    assert run.spread["ecmp"]["worst_link_load"]["max"] == 0.5
    assert "worst_uplink_load" not in run.spread["ecmp"]


def test_expectations_are_judged(run_of: Run, summary_of: Summary) -> None:
    text = (
        "schemes: [ecmp, mrc]\n"
        "expect:\n"
        '  ecmp: {worst_uplink_load: "> 1", delay.p99: "< 1e-3"}\n'
        '  mrc: {efficiency: ">= 0.999"}\n'
    )
    run = run_of(summary_of("ecmp"), summary_of("mrc"), text=text)
    assert run.schemes[0]["expectations"] == [
        {"figure": "worst_uplink_load", "bound": "> 1", "measured": 0.9, "holds": False},
        {"figure": "delay.p99", "bound": "< 1e-3", "measured": 352e-6, "holds": True},
    ]
    assert run.schemes[1]["expectations"][0]["holds"]
    assert not run.expectations_hold


def test_what_json_does_not_know_is_null(
    tmp_path: Path, run_of: Run, summary_of: Summary, result_of: Callable[..., Any]
) -> None:
    np = pytest.importorskip("numpy")
    delay = {"p50": math.nan, "p99": np.float64(0.5), "max": math.inf}
    columns = {"load": [math.nan, np.float64(1.5)], "packets": np.array([1, 2])}
    run = run_of().with_scheme(result_of(summary_of("ecmp", delay=delay), flows=columns))
    folder = run.save(tmp_path)
    document = json.loads((folder / "run.json").read_text(), parse_constant=pytest.fail)
    assert document["schemes"][0]["delay"] == {"p50": None, "p99": 0.5, "max": None}
    assert (folder / "flows-ecmp.csv").read_text() == "load,packets\n,1\n1.5,2\n"


def test_run_that_failed_is_saved_with_what_it_has(
    tmp_path: Path, run_of: Run, summary_of: Summary
) -> None:
    folder = run_of(summary_of("ecmp")).ended("failed", "worker 1 died").save(tmp_path)
    again = load_run(folder)
    assert (again.status, again.error, len(again.schemes)) == ("failed", "worker 1 died", 1)


def test_newer_format_is_refused(tmp_path: Path, run_of: Run) -> None:
    file = run_of().save(tmp_path) / "run.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "format": FORMAT + 1}))
    with pytest.raises(UnreadableRun) as caught:
        load_run(file)
    assert str(caught.value) == (
        f"{file} has format 2; this fabric-emu reads formats up to 1: "
        "read it with the version that wrote it, or a newer one"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not the record of a run"),
        ('{"format": "1"}', "is not the record of a run"),
        ('{"format": 1}', "is not whole: KeyError('schemes')"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UnreadableRun, match=r"run\.json") as caught:
        load_run(tmp_path)
    assert said in str(caught.value)


def test_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRun, match="No such file or directory"):
        load_run(tmp_path)


def test_table_outside_of_the_folder_is_not_read(
    tmp_path: Path, run_of: Run, summary_of: Summary
) -> None:
    (tmp_path / "secret.csv").write_text("word\nsesame\n")
    file = run_of(summary_of("ecmp")).save(tmp_path / "results") / "run.json"
    file.write_text(file.read_text().replace("flows-ecmp.csv", "../../secret.csv"))
    with pytest.raises(UnreadableRun, match=r"secret\.csv: .*No such file"):
        load_run(file)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("holbrook", "holbrook"),
        ("../../etc/passwd", "etc-passwd"),
        ("a b\tc\n", "a-b-c"),
        ("...", "scenario"),
        ("ünï", "n"),
        ("x" * 300, "x" * 80),
    ],
)
def test_safe_name(text: str, name: str) -> None:
    assert safe_name(text, "scenario") == name


def test_names_do_not_leave_the_folder(tmp_path: Path, run_of: Run, summary_of: Summary) -> None:
    run = run_of(summary_of("../../out"))
    folder = replace(run, name="../escaped").save(tmp_path / "results")
    assert folder.parent == tmp_path / "results"
    assert folder.name.startswith("escaped-")
    assert {file.name for file in folder.iterdir()} == {
        "flows-out.csv",
        "ports-out.csv",
        "run.json",
        "series-out.npz",
    }


def test_link_with_the_folders_name_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    results = tmp_path / "results"
    results.mkdir()
    (results / "run").symlink_to(elsewhere)
    assert write_folder(results, "run", {"a": b"1"}) == results / "run-2"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
def test_results_that_are_a_link_are_refused(tmp_path: Path, exists: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if exists:
        elsewhere.mkdir()
    (tmp_path / "results").symlink_to(elsewhere)
    with pytest.raises(FabricError, match=f"results is a link to {elsewhere}: expected a folder"):
        write_folder(tmp_path / "results", "run", {"a": b"1"})
    assert list(tmp_path.rglob("*/*")) == []
    assert elsewhere.exists() == exists


def test_link_in_what_is_missing_of_the_path_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FabricError, match="cannot be written"):
        write_folder(tmp_path / "link" / "results", "run", {"a": b"1"})
    assert not (tmp_path / "elsewhere").exists()


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="cannot be written: No such file"):
        write_folder(tmp_path, "run", {"a": b"1", "missing/b": b"2"})
    assert list(tmp_path.iterdir()) == []


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("old and longer")
    before = file.open()
    write_file(file, b"new")
    assert file.read_bytes() == b"new"
    # Who had it open still reads the old file: it was replaced, not overwritten.
    assert before.read() == "old and longer"
    before.close()
    assert [one.name for one in tmp_path.iterdir()] == ["out.json"]


def test_pipe_is_written_to() -> None:
    reader, writer = os.pipe()
    write_file(Path(f"/dev/fd/{writer}"), b"text")
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"text"


@pytest.fixture
def behind_sudo(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12346")
    return (12345, 12346)


def owner(path: Path) -> tuple[int, int]:
    return (path.stat().st_uid, path.stat().st_gid)


@pytest.mark.root
def test_what_is_made_belongs_to_the_user_behind_sudo(
    tmp_path: Path, run_of: Run, summary_of: Summary, behind_sudo: tuple[int, int]
) -> None:
    folder = run_of(summary_of("ecmp")).save(tmp_path / "a" / "b")
    write_file(tmp_path / "out.json", b"{}")
    made = [folder.parent.parent, folder.parent, folder, *folder.iterdir(), tmp_path / "out.json"]
    assert {owner(path) for path in made} == {behind_sudo}
    # What was there before stays as it was.
    assert owner(tmp_path) == (os.geteuid(), os.getegid())


@pytest.mark.root
def test_folder_that_was_there_keeps_its_owner(
    tmp_path: Path, behind_sudo: tuple[int, int]
) -> None:
    (tmp_path / "results").mkdir()
    folder = write_folder(tmp_path / "results", "run", {"a": b"1"})
    assert owner(folder) == behind_sudo
    assert owner(tmp_path / "results") == (os.geteuid(), os.getegid())
