"""What a fresh machine meets first: metadata, scripts, Vagrantfile."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "fabric_emu"
SCRIPTS = [*sorted((CHECKOUT / "scripts").iterdir()), CHECKOUT / ".ci/run"]
BASH_SCRIPTS = [path for path in SCRIPTS if path.read_text().startswith("#!/usr/bin/env bash\n")]

#: Where the name in the import statement is not the distribution's.
DISTRIBUTION_OF = {"yaml": "pyyaml", "pydantic_core": "pydantic"}


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    return config


def pyproject() -> dict[str, object]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )


def third_party_imports() -> set[str]:
    """Return the distributions that the package's modules import."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    found -= {*sys.stdlib_module_names, "fabric_emu"}
    return {DISTRIBUTION_OF.get(name, name) for name in found}


def test_setup_cfg_holds_the_metadata_and_pyproject_none() -> None:
    assert set(pyproject()) <= {"build-system", "tool"}
    metadata = setup_cfg()["metadata"]
    assert metadata["name"] == "fabric-emu"
    assert metadata["license"] == "GPL-2.0-or-later"
    assert re.fullmatch(r"\d+\.\d+\.\d+", metadata["version"])


def test_tools_configured_in_setup_cfg_are_not_configured_again_in_pyproject() -> None:
    tools = pyproject()["tool"]
    assert isinstance(tools, dict)
    assert not {"pytest", "mypy", "setuptools"} & set(tools)
    assert {"tool:pytest", "mypy"} <= set(setup_cfg().sections())


def test_every_requirement_has_a_minimum_version_and_no_maximum() -> None:
    config = setup_cfg()
    required = lines(config["options"]["install_requires"])
    required += lines(config["options.extras_require"]["test"])
    assert [text for text in required if not re.fullmatch(r"[\w.-]+>=[\d.]+", text)] == []


def test_what_the_package_imports_is_required() -> None:
    config = setup_cfg()
    required = lines(config["options"]["install_requires"])
    for extra in config["options.extras_require"].values():
        required += lines(extra)
    from_debian = {"mininet"}
    named = {text.partition(">=")[0].lower() for text in required}
    assert third_party_imports() - named - from_debian == set()


def test_the_command_runs_a_function_that_exists() -> None:
    (entry,) = lines(setup_cfg()["options.entry_points"]["console_scripts"])
    command, module, function = re.split(r"\s*[=:]\s*", entry)
    assert (command, module, function) == ("fabric-emu", "fabric_emu.cli", "main")
    assert callable(getattr(import_module(module), function))


def test_every_file_of_the_package_that_is_not_python_ships() -> None:
    shipped = {
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in setup_cfg()["options.package_data"].items()
        for pattern in lines(patterns)
    }
    files = {
        path.relative_to(CHECKOUT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".py", ".o"}
    }
    assert {f for f in files if not any(fnmatch.fnmatch(f, p) for p in shipped)} == set()
    assert {p for p in shipped if not fnmatch.filter(files, p)} == set()


def test_the_license_is_the_full_gpl_2() -> None:
    text = (CHECKOUT / "LICENSE").read_text()
    assert "GNU GENERAL PUBLIC LICENSE\n                       Version 2, June 1991" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_executed(script: Path) -> None:
    assert os.access(script, os.X_OK), f"chmod +x {script}"
    assert script.read_text().startswith("#!")


@pytest.mark.parametrize("script", BASH_SCRIPTS, ids=lambda path: path.name)
def test_bash_accepts_the_script(script: Path) -> None:
    checked = run("bash", "-n", script)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", BASH_SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    checked = run("shellcheck", script)
    assert checked.returncode == 0, checked.stdout


def test_setup_names_its_options_and_refuses_others() -> None:
    usage = run("scripts/setup", "--help")
    assert usage.returncode == 0
    options = set(re.findall(r"--with-\w+", usage.stdout))
    assert options == {
        "--with-bgp",
        "--with-bench",
        "--with-capture",
        "--with-plots",
        "--with-test",
    }
    refused = run("scripts/setup", "--with-everything")
    assert refused.returncode == 2
    assert "--with-everything" in refused.stderr
    assert "what to do: scripts/setup --help" in refused.stderr


def test_setup_leaves_a_folder_that_is_no_environment_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "bin").mkdir()
    refused = run(
        "scripts/setup", FABRIC_EMU_VENV=str(tmp_path), FABRIC_EMU_BIN=str(tmp_path / "bin")
    )
    assert refused.returncode == 1
    assert f"{tmp_path} is no virtual environment, and not empty" in refused.stderr
    assert (tmp_path / "thesis.tex").read_text() == "mine"


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")
def test_vagrant_accepts_the_vagrantfile(tmp_path: Path) -> None:
    checked = run(
        "vagrant",
        "validate",
        "--ignore-provider",
        VAGRANT_HOME=str(tmp_path / "home"),
        VAGRANT_DOTFILE_PATH=str(tmp_path / "machine"),
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_vagrant_copies_the_results_package_but_not_the_results() -> None:
    # rsync applies a pattern without a leading slash at every depth.
    patterns = re.search(r"rsync__exclude: \[(.*?)\]", (CHECKOUT / "Vagrantfile").read_text(), re.S)
    assert patterns is not None
    assert [p for p in re.findall(r'"(.*?)"', patterns[1]) if "results" in p] == ["/results/"]
