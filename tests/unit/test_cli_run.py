"""``fabric-emu run`` around the fabric: options, errors, signals, what is printed and saved.

The tests that get past the demand for root run the command in a process of its own, where a
module in the test's folder stands in for ``fabric_emu.experiment``.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fabric_emu.cli import main
from fabric_emu.commands.scenarios import choose_schemes
from fabric_emu.model.load import load_scenario
from fabric_emu.results.read import load_run

CHECKOUT = Path(__file__).resolve().parents[2]
HOLBROOK = CHECKOUT / "scenarios" / "holbrook.yaml"

STAND_IN = """
import json, os, sys, time
from pathlib import Path
from types import SimpleNamespace

from fabric_emu.errors import HostUnfit, RunFailed

def machine():
    return {"kernel": "stands in"}

def run_scheme(scenario, scheme, seed, progress, sample_every_s):
    progress(SimpleNamespace(scheme=scheme.name, seed=seed, stage="send", share=0.5))
    what = os.environ.get("WHAT_" + scheme.name.upper())
    if what == "breaks":
        raise RunFailed("worker 1 died")
    if what == "unfit":
        raise HostUnfit("no BPF", "a newer kernel")
    if what == "bug":
        raise ZeroDivisionError("a mistake")
    if what == "hangs":
        print("hangs", flush=True)
        for _ in range(600):
            time.sleep(0.1)
    summary = json.loads(Path(__file__).with_name(scheme.name + ".json").read_text())
    return SimpleNamespace(
        summary={**summary, "seed": seed}, flows={"qpn": [1]}, ports={},
        series={}, reordering={}, messages={},
    )
"""

COMMAND = """
import sys
import fabric_emu
fabric_emu.__path__.insert(0, sys.argv.pop(1))
from fabric_emu.cli import main
main(prog_name="fabric-emu")
"""

Summary = Callable[..., dict[str, Any]]


class Command:
    """``fabric-emu run holbrook`` in a process of its own and in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SUDO_")},
            "PYTHONPATH": str(CHECKOUT),
        }

    def arguments(self, *options: str) -> list[str]:
        stand_in = str(self.folder / "stand-in")
        return [sys.executable, "-c", COMMAND, stand_in, "run", "holbrook", *options]

    def run(self, *options: str, **what: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end; ``what`` tells the stand-in what a scheme is to do."""
        return subprocess.run(
            self.arguments(*options),
            cwd=self.folder,
            env=self.environment | {f"WHAT_{key.upper()}": value for key, value in what.items()},
            capture_output=True,
            text=True,
            check=False,
        )

    def results(self) -> list[Path]:
        return sorted(self.folder.glob("results/*"))


@pytest.fixture
def command(tmp_path: Path, summary_of: Summary, hashed_loads: tuple[float, ...]) -> Command:
    stand_in = tmp_path / "stand-in"
    stand_in.mkdir()
    (stand_in / "experiment.py").write_text(STAND_IN)
    for summary in (summary_of("ecmp", hashed_loads), summary_of("mrc")):
        (stand_in / f"{summary['name']}.json").write_text(json.dumps(summary))
    return Command(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False, prog_name="fabric-emu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scheme", "mcr"], "--scheme: 'mcr': expected one of ecmp, mrc, "),
        (["--seed", "4294967295", "--seeds", "2"], "--seeds: 2: expected seeds that stay under"),
        (
            ["--set", "topology.spines=64"],
            f"{HOLBROOK}: topology.spines: 64: expected at most 63 spines",
        ),
        (["--out", "/dev/null/x"], "--out: '/dev/null/x': expected a folder that can be written"),
        (["--csv", "/dev/null/x"], "--csv: '/dev/null': expected a folder that can be written"),
        (["--sample-every", "1us"], "--sample-every: '1us': expected 1ms or more"),
        (["--sample-every", "soon"], "--sample-every: 'soon': expected a duration such as"),
        (["--json", "/dev/null/x"], "--json: '/dev/null': expected a folder that can be written"),
    ],
)
def test_run_refuses_bad_input_before_it_begins(arguments: list[str], said: str) -> None:
    result = invoke("run", "holbrook", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(said)


def test_run_refuses_a_link_for_its_results(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    result = invoke("run", "holbrook", "--out", f"{tmp_path}/link/")
    assert result.exit_code == 2
    said = f"--out: '{tmp_path}/link': expected a folder, not a link to elsewhere"
    assert result.stderr.startswith(said)


def test_schemes_are_the_scenarios_own_or_well_known() -> None:
    scenario = load_scenario(
        HOLBROOK, ["schemes=[{name: mine, nic: {queue_pairs: 3}}]", "expect={}"]
    )
    chosen = choose_schemes(scenario, ("ecmp-16qp", "mine"))
    assert [scheme.nic.queue_pairs for scheme in chosen.schemes] == [16, 3]


def test_expectations_of_schemes_left_out_are_left_out() -> None:
    chosen = choose_schemes(load_scenario(HOLBROOK), ("mrc",))
    assert [scheme.name for scheme in chosen.schemes] == ["mrc"]
    assert set(chosen.expect) == {"mrc"}
    # It can be stored and read again.
    assert type(chosen).model_validate(chosen.model_dump(mode="json")) == chosen


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user can read and write."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.mark.parametrize("name", ["run", "shell"])
def test_without_root_the_remedy_is_sudo(name: str, open_folder: Path) -> None:
    scenario = open_folder / "small.yaml"
    scenario.write_text("title: small\n")
    # All is imported before root is given up: the checkout may be readable by root alone.
    code = (
        "import os, sys\n"
        "from fabric_emu.cli import main\n"
        "import fabric_emu.model.load\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "os.chdir('/')\n"
        "main(prog_name='fabric-emu')"
    )
    extra = ("--out", str(open_folder)) if name == "run" else ()
    result = subprocess.run(
        [sys.executable, "-c", code, name, str(scenario), *extra],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 3
    words = " ".join([name, str(scenario), *extra])
    assert result.stderr == (
        f"fabric-emu: network namespaces need root; remedy: sudo fabric-emu {words}\n"
    )
    assert [file.name for file in open_folder.iterdir()] == ["small.yaml"]


@pytest.mark.root
def test_table_to_stdout_and_results_in_a_folder(command: Command) -> None:
    result = command.run()
    assert (result.returncode, result.stderr) == (0, "")
    (folder,) = command.results()
    assert result.stdout.splitlines()[-2:] == [
        f"Results in results/{folder.name}",
        f"For a browser: results/{folder.name}/report.html",
    ]
    assert "Expectations: all 5 hold" in result.stdout
    run = load_run(folder)
    assert run.status == "complete"
    assert run.machine == {"kernel": "stands in"}
    assert [summary["name"] for summary in run.schemes] == ["ecmp", "mrc"]


@pytest.mark.root
def test_json_to_stdout_is_nothing_but_json(command: Command) -> None:
    result = command.run("--json", "-", "--seed", "3", "--seeds", "2", "--scheme", "mrc")
    document = json.loads(result.stdout)
    assert [(one["name"], one["seed"]) for one in document["schemes"]] == [("mrc", 3), ("mrc", 4)]
    assert document["seeds"] == [3, 4]
    assert document["scenario"]["seed"] == 3
    assert "trust-" in result.stderr
    (folder,) = command.results()
    assert json.loads((folder / "run.json").read_text()) == document


@pytest.mark.root
def test_json_file_and_other_folder(command: Command) -> None:
    command.run("--json", "out.json", "--out", "elsewhere/deep")
    (folder,) = (command.folder / "elsewhere/deep").iterdir()
    assert (command.folder / "out.json").read_bytes() == (folder / "run.json").read_bytes()
    assert command.results() == []


@pytest.mark.root
def test_expectation_that_does_not_hold_ends_with_1(command: Command) -> None:
    result = command.run("--set", "expect.mrc.efficiency=> 2")
    assert result.returncode == 1
    assert "  mrc: efficiency: expected > 2, measured 1\n" in result.stdout
    assert load_run(command.results()[0]).status == "complete"


@pytest.mark.root
@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("breaks", 4, "fabric-emu: worker 1 died\n"),
        ("unfit", 3, "fabric-emu: no BPF; remedy: a newer kernel\n"),
        ("bug", 4, "ZeroDivisionError: a mistake\n"),
    ],
)
def test_what_was_finished_is_saved_when_the_run_breaks(
    command: Command, what: str, status: int, said: str
) -> None:
    result = command.run(mrc=what)
    assert result.returncode == status
    (folder,) = command.results()
    assert result.stderr.startswith(f"the run broke; partial results in results/{folder.name}\n")
    assert result.stderr.endswith(said)
    assert "ecmp    *168.8 %" in result.stdout
    run = load_run(folder)
    assert run.status == "failed"
    assert [summary["name"] for summary in run.schemes] == ["ecmp"]
    assert run.error


@pytest.mark.root
def test_machine_that_cannot_begin_leaves_no_folder(command: Command) -> None:
    result = command.run(ecmp="unfit")
    assert (result.returncode, result.stdout) == (3, "")
    assert not (command.folder / "results").exists()


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_save_what_was_finished(command: Command, number: signal.Signals) -> None:
    with subprocess.Popen(
        command.arguments(),
        cwd=command.folder,
        env=command.environment | {"WHAT_MRC": "hangs"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    (folder,) = command.results()
    assert process.returncode == 130
    assert stderr == f"interrupted; partial results in results/{folder.name}\n"
    assert "ecmp    *168.8 %" in stdout
    run = load_run(folder)
    assert (run.status, run.error) == ("partial", "interrupted")


@pytest.mark.root
def test_reader_that_leaves_early_loses_no_results(command: Command) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            command.arguments(),
            cwd=command.folder,
            env=command.environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (128 + 13, b"")
    assert load_run(command.results()[0]).status == "complete"


@pytest.mark.root
def test_progress_is_shown_on_a_terminal_and_wiped(command: Command) -> None:
    ours, theirs = pty.openpty()
    result = subprocess.run(
        command.arguments("--scheme", "mrc"),
        cwd=command.folder,
        env=command.environment | {"TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert result.returncode == 0
    assert b"mrc, seed 1: send" in shown
    assert b" 50%" in shown
    # The cursor is shown again and the last thing done is to erase the line.
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
    assert shown.endswith(b"\x1b[2K")
    assert b"\x1b" not in result.stdout


@pytest.mark.root
def test_scenario_file_runs_itself(command: Command) -> None:
    # The first line of a shipped scenario names a command that `sudo` finds.
    found = command.folder / "bin" / "fabric-emu"
    found.parent.mkdir()
    found.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c '{COMMAND}' '{command.folder}/stand-in' \"$@\"\n"
    )
    found.chmod(0o755)
    scenario = command.folder / "mine.yaml"
    shutil.copy(HOLBROOK, scenario)
    path = f"{found.parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [scenario, "--scheme", "mrc"],
        cwd=command.folder,
        env=command.environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert command.results()[0].name.startswith("mine-")
