"""Golden files of scenario mistakes: ``golden/NAME.yaml`` must give the text in ``NAME.txt``.

Overrides stand at the top of the YAML file as ``# --set path=value``. After a change of wording
``python tests/unit/test_scenario_errors.py`` writes the texts anew; then read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric_emu.errors import ScenarioError
from fabric_emu.model.load import MAX_BYTES, InvalidScenario, load_scenario

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = sorted(GOLDEN.glob("*.yaml"))
_SET = "# --set "


def errors(file: Path) -> str:
    """Return what is said about a wrong scenario, its folder left out."""
    lines = file.read_bytes().decode(errors="replace").splitlines()
    overrides = [line.removeprefix(_SET) for line in lines if line.startswith(_SET)]
    with pytest.raises(InvalidScenario) as caught:
        load_scenario(file, overrides)
    return str(caught.value).replace(f"{file.parent}/", "") + "\n"


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_mistake_is_named(file: Path) -> None:
    assert errors(file) == file.with_suffix(".txt").read_text()


def test_every_text_has_its_scenario() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == {file.stem for file in SCENARIOS}


def test_several_mistakes_are_named_at_once() -> None:
    with pytest.raises(InvalidScenario) as caught:
        load_scenario(GOLDEN / "range.yaml")
    assert all(isinstance(problem, ScenarioError) for problem in caught.value.problems)
    # leaves, mtu, load, seed
    assert len(caught.value.problems) == 4


def test_bad_input_ends_with_exit_code_2() -> None:
    assert InvalidScenario.exit_code == ScenarioError.exit_code == 2


def test_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    assert errors_of_load(file) == (
        f"{file}: 'No such file or directory': expected a readable scenario file"
    )


def test_folder_instead_of_file(tmp_path: Path) -> None:
    assert errors_of_load(tmp_path) == (
        f"{tmp_path}: 'Is a directory': expected a readable scenario file"
    )


def test_unreadable_file() -> None:
    # Opens for everybody, and nothing is mapped at its beginning.
    assert errors_of_load(Path("/proc/self/mem")) == (
        "/proc/self/mem: 'Input/output error': expected a readable scenario file"
    )


def test_endless_file() -> None:
    assert errors_of_load(Path("/dev/zero")) == (
        "/dev/zero: 'over 1 MiB': expected a file of at most 1 MiB"
    )
    assert MAX_BYTES == 1 << 20


def errors_of_load(file: Path) -> str:
    with pytest.raises(InvalidScenario) as caught:
        load_scenario(file)
    return str(caught.value)


def test_override_with_a_bound_needs_no_quotes() -> None:
    scenario = load_scenario(GOLDEN.parents[2] / "scenarios/holbrook.yaml", ["expect.mrc.x=>= 2"])
    assert scenario.expect["mrc"]["x"].text == ">= 2"


if __name__ == "__main__":
    for scenario in SCENARIOS:
        scenario.with_suffix(".txt").write_text(errors(scenario))
