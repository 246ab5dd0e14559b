"""The command line, as far as it goes without a fabric."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from fabric_emu.cli import main
from fabric_emu.commands.doctor import print_findings
from fabric_emu.commands.scenarios import find
from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import ScenarioError
from fabric_emu.model.load import load_scenario
from fabric_emu.model.topology import Topology

CHECKOUT = Path(__file__).resolve().parents[2]
HOLBROOK = CHECKOUT / "scenarios" / "holbrook.yaml"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False, prog_name="fabric-emu")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands() -> None:
    assert set(main.commands) >= {"run", "check", "list", "schema", "doctor", "shell", "clean"}
    assert "_FABRIC_EMU_COMPLETE=bash_source fabric-emu" in invoke("--help").stdout


@pytest.mark.parametrize("command", sorted(main.commands))
def test_help_of_every_command(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: fabric-emu {command} ")


def test_version() -> None:
    assert invoke("--version").stdout.startswith("fabric-emu, version ")


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["run", "holbrook", "--seeds", "0"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


# Finding scenarios.


@pytest.mark.parametrize("name", ["holbrook", "holbrook.yaml", "scenarios/holbrook.yaml"])
def test_shipped_scenario_is_found_from_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find(name) == HOLBROOK


def test_existing_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holbrook").mkdir()  # a folder is no scenario
    assert find("holbrook") == HOLBROOK
    (tmp_path / "holbrook.yaml").touch()
    assert find("holbrook.yaml") == Path("holbrook.yaml")


@pytest.mark.parametrize("name", ["holbrok", "elsewhere/holbrook.yaml"])
def test_scenario_that_is_not_there(name: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        find(name)
    assert "one of the shipped scenarios" in str(caught.value)
    assert str(caught.value).endswith("did you mean 'holbrook'?")


# check


def test_check_says_what_would_be_built() -> None:
    result = invoke("check", "holbrook", "--set", "topology.hosts_per_leaf=16")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == f"{HOLBROOK}: good"
    assert "fabric 2 leaves, 8 spines, 32 hosts" in lines
    assert any(line.startswith("links 32 to hosts, 16 between switches") for line in lines)
    assert "oversubscription 2 : 1 at the leaves" in lines
    assert any(line.startswith("flows 128 from 16 hosts") for line in lines)
    # 16 hosts at 90 % of their links, over 8 uplinks of the same rate.
    assert "180.0 %" in result.stdout


@pytest.mark.parametrize(
    ("topology", "pattern", "expected"),
    [
        ("{tiers: 1, leaves: 1, spines: 0, hosts_per_leaf: 4}", "incast", "1 chassis, 4 hosts"),
        (
            "{tiers: 3, pods: 2, leaves: 2, spines: 2, super_spines: 4}",
            "random",
            "4 leaves, 4 spines, 4 super-spines, 8 hosts",
        ),
        ("{planes: 2, ip: both}", "pairs", "IPv4 and IPv6"),
        ("{hosts_per_leaf: 1}", "flows", "none"),
        ("{spines: 64}", "pairs", "cannot run live"),
    ],
)
def test_check_of_other_fabrics(topology: str, pattern: str, expected: str) -> None:
    overrides = ("--set", f"topology={topology}", "--set", f"workload={{pattern: {pattern}}}")
    result = invoke("check", "holbrook", *overrides)
    assert result.exit_code == 0
    assert expected in result.stdout


def test_check_of_messages() -> None:
    workload = "{kind: messages, collective: ring-all-gather, size: 16kB, iterations: 3}"
    result = invoke("check", "holbrook", "--set", f"workload={workload}")
    printed = " ".join(result.stdout.split())
    assert "collective ring-all-gather of 16 kB over 16 hosts, 3 times" in printed
    # In each iteration 16 hosts send 15 chunks of 1 kB.
    assert "messages 720, 720 kB in all" in printed


@pytest.mark.parametrize(
    "fields",
    [
        {"leaves": 3, "spines": 4, "links_per_pair": 2, "planes": 2},
        {"tiers": 3, "pods": 2, "leaves": 2, "spines": 2, "super_spines": 6, "links_per_pair": 3},
        {"tiers": 1, "leaves": 1, "spines": 0},
    ],
)
def test_check_counts_links_as_they_are_built(fields: dict[str, int]) -> None:
    topology = Topology.model_validate(fields)
    of_hosts = topology.total_hosts * topology.planes
    override = f"topology={json.dumps(fields)}"
    result = invoke("check", "holbrook", "--set", override, "--set", "workload={pattern: random}")
    expected = f"{of_hosts} to hosts, {len(topology.links) - of_hosts} between switches"
    assert expected in " ".join(result.stdout.split())


def test_check_names_mistakes_of_all_scenarios(tmp_path: Path) -> None:
    for name, key in (("a", "tittle"), ("b", "sead")):
        (tmp_path / f"{name}.yaml").write_text(f"title: x\n{key}: 1\n")
    result = invoke("check", f"{tmp_path}/a.yaml", "holbrook", f"{tmp_path}/b.yaml", "none")
    assert result.exit_code == 2
    assert result.stdout.startswith(f"{HOLBROOK}: good")
    first, second, third = result.stderr.splitlines()
    assert first.startswith(f"{tmp_path}/a.yaml:2: 'tittle': expected one of the keys title, ")
    assert second.endswith("did you mean 'seed'?")
    assert third.startswith("SCENARIO: 'none': expected a scenario file or one of")


def test_wrong_override_is_named() -> None:
    result = invoke("check", "holbrook", "--set", "topology.leafs=3")
    assert result.exit_code == 2
    assert result.stderr.startswith("--set topology.leafs: 'leafs': expected one of the keys")


# list, schema, completion


def test_list_has_names_and_titles() -> None:
    result = invoke("list")
    assert result.exit_code == 0
    printed = " ".join(result.stdout.split())
    for file in HOLBROOK.parent.glob("*.yaml"):
        assert f"{file.stem} {load_scenario(file).title}" in printed


def test_schema_is_json_schema() -> None:
    schema = json.loads(invoke("schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert set(schema["properties"]) >= {"title", "topology", "workload", "schemes", "expect"}
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fabric-emu run hol", "plain,holbrook"),
        ("fabric-emu run ./x", "file,./x"),
        ("fabric-emu run holbrook --scheme mrc-", "plain,mrc-random"),
        ("fabric-emu sche", "plain,schema"),
    ],
)
def test_completion(words: str, completed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FABRIC_EMU_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    result = CliRunner().invoke(
        main, prog_name="fabric-emu", complete_var="_FABRIC_EMU_COMPLETE", catch_exceptions=False
    )
    assert result.stdout.splitlines() == [completed]


# What all commands have in common.


@pytest.mark.parametrize(
    "command", [["list"], ["schema"], ["check", "--help"], ["check", "holbrook"]]
)
def test_commands_without_root_load_nothing_of_the_live_fabric(command: list[str]) -> None:
    code = (
        "import sys\n"
        "from fabric_emu.cli import main\n"
        "status = main(standalone_mode=False, prog_name='fabric-emu')\n"
        "live = {'mininet', 'pyroute2', 'scapy', 'fabric_emu.net', 'fabric_emu.experiment'}\n"
        "print(sorted(live & sys.modules.keys()), file=sys.stderr)"
    )
    result = python(code, *command)
    assert (result.returncode, result.stderr) == (0, "[]\n")


def test_reader_that_leaves_early_is_no_error() -> None:
    code = "from fabric_emu.cli import main; main(prog_name='fabric-emu')"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [sys.executable, "-c", code, "schema"],
            cwd=CHECKOUT,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (128 + 13, b"")


def test_narrow_encoding_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("title: übergroß\n", encoding="utf-8")
    code = "from fabric_emu.cli import main; main(prog_name='fabric-emu')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [sys.executable, "-c", code, "check", str(file)],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0
    assert b"?bergro?" in result.stdout


class Finding(NamedTuple):
    name: str
    status: str
    detail: str
    remedy: str = ""


def test_doctor_names_what_is_missing_with_its_remedy() -> None:
    @click.command()
    def show() -> None:
        found = [
            Finding("clang", "ok", "version 19", "not shown"),
            Finding("hash seed", "warning", "this kernel has none", "a newer kernel"),
            Finding("mininet", "missing", "", "apt install mininet"),
        ]
        print(print_findings(terminal(), found))  # type: ignore[arg-type]

    assert CliRunner().invoke(show).stdout == (
        "ok       clang      version 19\n"
        "warning  hash seed  this kernel has none\n"
        "                    remedy: a newer kernel\n"
        "missing  mininet\n"
        "                    remedy: apt install mininet\n"
        "False\n"
    )
