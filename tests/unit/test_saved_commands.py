"""``show``, ``report`` and ``export``: what is done with runs that are on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fabric_emu.cli import main
from fabric_emu.commands.saved import SavedRunFolder
from fabric_emu.results.run import RunResult

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False, prog_name="fabric-emu")


@pytest.fixture
def results(
    tmp_path: Path,
    whole_run_of: Run,
    summary_of: Summary,
    hashed_loads: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> list[Path]:
    """Three runs in ``results``: two of holbrook, then one of polar."""
    monkeypatch.chdir(tmp_path)
    run = whole_run_of(summary_of("ecmp", hashed_loads), summary_of("mrc"))
    runs = [
        replace(run, started="2025-03-09T08:07:06+00:00"),
        replace(run, started="2025-03-10T08:07:06+00:00"),
        replace(whole_run_of(summary_of("dlb")), name="polar", started="2025-03-11T00:00:00+00:00"),
    ]
    folders = [one.save(Path("results")) for one in runs]
    for second, folder in enumerate(folders):
        os.utime(folder / "run.json", (second, second))
    return folders


def test_show_prints_the_table_again(results: list[Path]) -> None:
    text = invoke("show", str(results[0])).stdout
    assert "ecmp    *168.8 %" in text
    assert "\n\n" in invoke("show", *map(str, results)).stdout
    assert invoke("show", str(results[0] / "run.json")).stdout == text


@pytest.mark.parametrize(
    ("name", "number"),
    [("holbrook-20250309-080706", 0), ("holbrook", 1), ("polar", 2), ("latest", 2)],
)
def test_runs_are_found_by_name(results: list[Path], name: str, number: int) -> None:
    expected = invoke("show", "--csv", "-", str(results[number])).stdout
    assert invoke("show", "--csv", "-", name).stdout == expected
    assert expected.startswith("scheme,seed,worst_uplink_load")


def test_names_that_are_no_run(results: list[Path], tmp_path: Path) -> None:
    result = invoke("show", "holbrok")
    assert result.exit_code == 2
    assert result.stderr == (
        "RUN: 'holbrok': expected the folder of a run, a name in results, or a scenario that was "
        "run; did you mean 'holbrook'?\n"
    )
    assert "No such file" in invoke("show", str(tmp_path)).stderr


def test_no_runs_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("show")
    assert result.exit_code == 2
    assert "there is none in results here" in result.stderr


def test_completion_names_runs(results: list[Path]) -> None:
    items = SavedRunFolder().shell_complete(None, None, "hol")  # type: ignore[arg-type]
    assert [item.value for item in items] == [results[0].name, results[1].name]


def test_csv_is_of_one_run_into_a_file(results: list[Path]) -> None:
    assert invoke("show", "--csv", "table.csv", "polar").exit_code == 0
    assert Path("table.csv").read_text().splitlines()[1].startswith("dlb,7,0.9,")
    assert invoke("show", "--csv", "-", "polar", "holbrook").exit_code == 2


def test_report_is_drawn_again(results: list[Path]) -> None:
    assert invoke("report", "polar").stdout == f"Report in {results[2]}/report.html\n"
    assert "dlb" in (results[2] / "report.html").read_text()
    assert invoke("report", "polar", "--out", "there.html").exit_code == 0
    assert Path("there.html").read_bytes() == (results[2] / "report.html").read_bytes()


def test_several_runs_are_compared_here(results: list[Path]) -> None:
    assert invoke("report", "polar", "holbrook").stdout == "Report in report.html\n"
    page = Path("report.html").read_text()
    assert "2 runs compared" in page
    assert "holbrook: mrc" in page


def test_plots_into_a_link_are_refused(results: list[Path]) -> None:
    Path("link").symlink_to("elsewhere")
    result = CliRunner().invoke(main, ["report", "polar", "--plots", "link"])
    assert "link is a link to elsewhere: expected a folder" in result.stderr


def test_plots_without_chromium_are_refused_first(
    results: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = invoke("report", "polar", "--plots", "slides")
    assert result.exit_code == 3
    assert "remedy: sudo apt-get install chromium" in result.stderr
    assert not Path("slides").exists()
    assert not (results[2] / "report.html").exists()


def test_export_to_standard_output_or_a_file(results: list[Path]) -> None:
    text = invoke("export", "polar", "--format", "prometheus").stdout
    assert 'fabric_emu_trustworthy{run="polar",scheme="dlb",seed="7"} 1.0' in text
    invoke("export", "polar", "--format", "prometheus", "--out", "fabric.prom")
    assert Path("fabric.prom").read_text() == text
    refused = invoke("export", "--format", "nccl-tests")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "a run of a collective" in refused.stderr


def test_newer_run_is_refused_with_a_sentence(results: list[Path]) -> None:
    file = results[2] / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    result = invoke("show", "polar")
    assert result.exit_code == 2
    assert "has format 99; this fabric-emu reads formats up to 1" in result.stderr
