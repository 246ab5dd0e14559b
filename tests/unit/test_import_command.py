"""``fabric-emu import`` and ``import:`` in scenarios, on whole files.

The files are ``data/KIND/NAME.json``; what is printed of one is in ``NAME.yaml``, what is said
against it in ``NAME.txt``. After a change ``python tests/unit/test_import_command.py`` writes these
anew; then read the difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.commands.import_ import KINDS, import_
from fabric_emu.errors import ScenarioError
from fabric_emu.importers.document import ConfigurationRejected
from fabric_emu.importers.policy import READERS, expand_imports, import_policy, time_text
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.policies import Dlb
from fabric_emu.model.queueing import Trimming
from fabric_emu.model.topology import Topology
from fabric_emu.units import parse_duration

DATA = Path(__file__).parent / "data"
FILES = sorted((*DATA.glob("sonic/*.json"), *DATA.glob("fboss/*.json")))
IGNORED = {
    "sonic": (
        *("past_load_max_value", "future_load_max_value", "future_load_weight", "role"),
        *("primary_path_threshold", "alternative_path_cost"),
    ),
    "fboss": ("dynamicQueueExponent", "alternatePathCost", "queueWeight"),
}
"""Keys that the files called ignored.json are read without."""


def printed(file: Path, *options: str) -> str:
    """Return what the command prints of a file, or the message it ends with."""
    kind = file.parent.name
    ignore = IGNORED[kind] if file.stem == "ignored" else ()
    arguments = [kind, str(file), *options, *(f"--ignore={key}" for key in ignore)]
    result = CliRunner().invoke(import_, arguments)
    if isinstance(result.exception, ScenarioError):
        return str(result.exception).replace(f"{file.parent}/", "") + "\n"
    assert result.exit_code == 0, result.output
    return result.output


def golden(file: Path) -> Path:
    """Return the file with what is expected, by whether the configuration is taken."""
    return file.with_suffix(".txt" if file.with_suffix(".txt").exists() else ".yaml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_file_is_taken_or_refused_as_written(file: Path) -> None:
    assert printed(file) == golden(file).read_text()


TAKEN = [file for file in FILES if golden(file).suffix == ".yaml"]


@pytest.mark.parametrize("file", TAKEN, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_is_printed_can_be_pasted_into_a_scenario(file: Path) -> None:
    kind = file.parent.name
    ignore = IGNORED[kind] if file.stem == "ignored" else ()
    (scheme,) = parse_scenario(f"title: pasted\n{golden(file).read_text()}", "pasted").schemes
    imported = import_policy(kind, file, Topology(), ignore)
    assert scheme.name == kind
    if imported.policy:
        assert scheme.switch.policy == imported.policy
    assert scheme.switch.trimming == imported.trimming


def test_kinds_of_the_command_are_those_that_can_be_read() -> None:
    assert set(KINDS) == READERS.keys()


@pytest.mark.parametrize(
    ("topology", "gap_s"),
    [
        # 128 us of 400 Gbit/s, the rate of hardware unless stands_for says otherwise.
        (Topology(), 128e-6 * 4000),
        (Topology(link_rate="1gbit"), 128e-6 * 400),
        (Topology(link_rate="1gbit", stands_for="100gbit"), 128e-6 * 100),
    ],
)
def test_times_are_longer_as_the_fabric_is_slower(topology: Topology, gap_s: float) -> None:
    for kind, name in (("sonic", "leaf.json"), ("fboss", "agent.json")):
        policy = import_policy(kind, DATA / kind / name, topology).policy
        assert policy is not None
        assert policy.flowlet_gap == pytest.approx(gap_s)


def test_default_times_are_those_of_the_policy_itself() -> None:
    # SAI's defaults, 256 us and 16 us, are also what Dlb takes when it is told nothing.
    topology = Topology(link_rate="40mbit")
    imported = import_policy("sonic", DATA / "sonic" / "defaults.json", topology).policy
    assert imported is not None
    ours, own = imported.resolved(topology), Dlb().resolved(topology)
    assert ours.flowlet_gap_s == pytest.approx(own.flowlet_gap_s)
    assert ours.sampling_s == pytest.approx(own.sampling_s)
    assert ours.max_flows == own.max_flows


@given(st.floats(1e-9, 1e6))
def test_times_survive_being_written(seconds: float) -> None:
    assert parse_duration(time_text(seconds)) == pytest.approx(seconds, rel=1e-11)


def test_times_may_be_those_of_a_scenario(tmp_path: Path) -> None:
    scenario = tmp_path / "slow.yaml"
    scenario.write_text("title: slow\ntopology: {link_rate: 10mbit, stands_for: 100gbit}\n")
    output = printed(DATA / "sonic" / "leaf.json", "--for", str(scenario))
    assert "# 10 Mbit/s stand for 100 Gbit/s." in output
    assert "flowlet_gap: 1.28s  # ARS_OBJECT.roce.flowlet_idle_time: 128\n" in output


def test_standard_input_is_read() -> None:
    code = "from fabric_emu.commands.import_ import import_; import_()"
    result = subprocess.run(
        [sys.executable, "-c", code, "fboss", "-"],
        cwd=Path(__file__).parents[2],
        input=(DATA / "fboss" / "agent.json").read_bytes(),
        capture_output=True,
        check=True,
    )
    expected = (DATA / "fboss" / "agent.yaml").read_text().replace("agent.json", "stdin")
    assert result.stdout.decode() == expected


SWITCH = {"import": {"sonic": "leaf.json"}}


def expanded(data: dict[str, Any]) -> dict[str, Any]:
    expand_imports(data, DATA / "sonic", lambda steps, shown: f"scenario.yaml:7: {shown}")
    return data


def with_switch(switch: Any) -> dict[str, Any]:
    return {"title": "imported", "schemes": ["ecmp", {"name": "leaf", "switch": switch}]}


def test_scenario_imports_policy_and_trimming() -> None:
    data = expanded(with_switch(SWITCH | {"drop_at": "64KiB"}))
    scenario = parse_scenario(yaml.safe_dump(data), "scenario.yaml")
    switch = scenario.schemes[1].switch
    imported = import_policy("sonic", DATA / "sonic" / "leaf.json", scenario.topology)
    assert (switch.policy, switch.trimming) == (imported.policy, imported.trimming)
    assert switch.trimming == Trimming(trim_to=256, trimmed=46, trimmed_last_hop=46)
    assert switch.drop_at == 65536


def test_import_takes_the_scenarios_own_topology() -> None:
    data = with_switch(dict(SWITCH)) | {"topology": {"link_rate": "1gbit"}}
    policy = expanded(data)["schemes"][1]["switch"]["policy"]
    assert policy["flowlet_gap"] == "51.2ms"


def test_keys_can_be_ignored_in_a_scenario() -> None:
    switch = {"import": {"sonic": "ignored.json", "ignore": list(IGNORED["sonic"])}}
    assert expanded(with_switch(switch))["schemes"][1]["switch"]["policy"]["exponent"] == 0


@pytest.mark.parametrize(
    ("switch", "said"),
    [
        ({"import": "leaf.json"}, "scenario.yaml:7: schemes[1].switch.import: 'this section': "),
        ({"import": {}}, "scenario.yaml:7: schemes[1].switch.import: 'this section': "),
        ({"import": {"sonic": "a", "fboss": "b"}}, "scenario.yaml:7: schemes[1].switch.import: "),
        ({"import": {"sonic": "a", "file": "b"}}, "scenario.yaml:7: schemes[1].switch.import: "),
        ({"import": {"sonic": 5}}, "scenario.yaml:7: schemes[1].switch.import.sonic: 5: "),
        (
            {"import": {"sonic": "leaf.json", "ignore": "role"}},
            "scenario.yaml:7: schemes[1].switch.import.ignore: ",
        ),
        (
            SWITCH | {"policy": "ecmp"},
            "scenario.yaml:7: schemes[1].switch.import: 'policy': "
            "expected it to be imported or given, not both",
        ),
        (
            {"import": {"sonic": "none.json"}},
            f"{DATA}/sonic/none.json: 'No such file or directory'",
        ),
        ({"import": {"fboss": "leaf.json"}}, f"{DATA}/sonic/leaf.json: flowletSwitchingConfig: "),
    ],
)
def test_wrong_import_is_refused(switch: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationRejected) as caught:
        expanded(with_switch(switch))
    assert str(caught.value).startswith(said)


def test_all_wrong_imports_are_named_at_once() -> None:
    data = with_switch({"import": {"sonic": "refused.json"}})
    data["schemes"].append({"name": "b", "switch": {"import": {"sonic": "no-object.json"}}})
    with pytest.raises(ConfigurationRejected) as caught:
        expanded(data)
    files = {str(problem.path).partition(":")[0] for problem in caught.value.problems}
    assert {Path(file).name for file in files} == {"refused.json", "no-object.json"}


WORDS = st.sampled_from(["import", "sonic", "fboss", "leaf.json", "defaults.json", "ignore", ""])
VALUES = st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
SWITCHES = st.dictionaries(st.sampled_from(["import", "policy", "trimming"]), VALUES)
SCHEMES = st.lists(VALUES | st.fixed_dictionaries({"switch": VALUES | SWITCHES}), max_size=3)


@given(st.fixed_dictionaries({"schemes": VALUES | SCHEMES, "topology": VALUES}))
def test_random_scenarios_are_expanded_or_refused(data: dict[str, Any]) -> None:
    before = json.dumps(data)
    try:
        schemes = expanded(data)["schemes"]
    except ConfigurationRejected:
        schemes = []
    if '"switch"' not in before:
        assert json.dumps(data) == before
    for scheme in schemes if isinstance(schemes, list) else []:
        switch = scheme.get("switch") if isinstance(scheme, dict) else None
        assert not isinstance(switch, dict) or "import" not in switch


def write_golden() -> None:
    for file in FILES:
        text = printed(file)
        taken = text.startswith("#")
        file.with_suffix(".txt" if taken else ".yaml").unlink(missing_ok=True)
        file.with_suffix(".yaml" if taken else ".txt").write_text(text)


if __name__ == "__main__":
    write_golden()
