"""Input that means harm: bombs, paths in names, links in place of output, strings for a shell."""

from __future__ import annotations

import ast
import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabric_emu
from fabric_emu.errors import FabricError
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.results.folder import write_file

PACKAGE = Path(fabric_emu.__file__).parent
SHIPPED = sorted((PACKAGE.parent / "scenarios").glob("*.yaml"))
SMALL = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 20mbit}
workload: {pattern: permutation, flows_per_host: 1, load: 0.5, duration: 1s}
schemes: [%s]
"""


def test_the_harmless_scenario_is_taken() -> None:
    assert parse_scenario(SMALL % "ecmp", "small.yaml").title == "small"


@pytest.mark.parametrize("levels", [2, 9, 40])
def test_aliases_are_refused_before_they_grow(levels: int) -> None:
    bomb = ['a0: &a0 ["x"]']
    bomb += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    with pytest.raises(InvalidScenario, match="expected values written out, not YAML aliases"):
        parse_scenario("\n".join(bomb), "bomb.yaml")


def test_an_alias_of_itself_is_refused() -> None:
    with pytest.raises(InvalidScenario):
        parse_scenario("topology: &t {leaves: *t}", "loop.yaml")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidScenario, match="nested too deeply"):
        parse_scenario("[" * 20_000 + "]" * 20_000, "deep.yaml")


HARMFUL = ["../../etc/passwd", "/etc/passwd", "..", "a;reboot", "$(reboot)", "`id`", "a b", "a\nb"]


@pytest.mark.parametrize("name", HARMFUL)
def test_names_of_schemes_are_neither_paths_nor_commands(name: str) -> None:
    with pytest.raises(InvalidScenario, match="expected"):
        parse_scenario(SMALL % f"{{name: {name!r}}}", "names.yaml")


@pytest.mark.parametrize("name", HARMFUL)
def test_links_of_faults_are_those_of_the_fabric(name: str) -> None:
    text = SMALL % "ecmp" + f"faults: [{{at: 1ms, link: {name!r}, action: down}}]\n"
    with pytest.raises(InvalidScenario, match="expected"):
        parse_scenario(text, "names.yaml")


@pytest.mark.parametrize("key", ["leaf_names", "nodes", "hosts"])
def test_nodes_cannot_be_named(key: str) -> None:
    with pytest.raises(InvalidScenario, match="expected one of the keys"):
        parse_scenario(SMALL.replace("leaves:", f"{key}: ['a;reboot'], leaves:") % "ecmp", "n.yaml")


@given(st.data())
def test_mutated_scenarios_are_taken_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([path.read_text() for path in SHIPPED]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 20, len(text))))
    mutated = text[:start] + data.draw(st.text(max_size=8)) + text[end:]
    with contextlib.suppress(InvalidScenario):  # anything else is a mistake of ours
        parse_scenario(mutated, "mutated.yaml")


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(InvalidScenario, match=r"noise\.yaml"):
        parse_scenario(noise, "noise.yaml")


def test_output_does_not_follow_a_link(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    out = tmp_path / "out"
    out.mkdir()
    for name, target in (("report.html", secret), ("run.json", tmp_path / "nowhere")):
        (out / name).symlink_to(target)
        with pytest.raises(FabricError, match=f"{name} is a link to {target}: expected a file"):
            write_file(out / name, b"overwritten")
    assert secret.read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["out", "secret"]
    assert sorted(os.listdir(out)) == ["report.html", "run.json"]


def test_a_device_is_written_to_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "nothing").symlink_to(os.devnull)
    write_file(tmp_path / "nothing", b"text")
    assert (tmp_path / "nothing").is_symlink()


def test_no_shell_is_given_a_string() -> None:
    calls = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            calls += 1
            where = f"{path}:{node.lineno}"
            called = ast.unparse(node.func)
            assert called not in ("os.system", "os.popen", "subprocess.getoutput"), where
            assert called != "subprocess.getstatusoutput", where
            for keyword in node.keywords:
                false = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                assert keyword.arg != "shell" or false, where
    assert calls > 1000  # the package was found
