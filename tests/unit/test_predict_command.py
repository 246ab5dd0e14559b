"""``fabric-emu predict``: tables, JSON, the picture, bad input. Needs no root."""

import json

import pytest
from click.testing import CliRunner

from fabric_emu.commands.predict import predict
from fabric_emu.errors import FabricError, ScenarioError

SMALL = ["--set", "topology.spines=4", "--set", "workload.flows_per_host=2"]


def run(*words):
    seeded = ["holbrook", "--set", "seed=7", *words]
    result = CliRunner().invoke(predict, seeded, catch_exceptions=True)
    if isinstance(result.exception, FabricError):
        raise result.exception
    assert result.exception is None, result.exception
    return result


def test_a_row_per_scheme_and_bars():
    text = run().stdout
    assert "hash as Linux 6.11 and later" in text
    assert "168.8 %" in text
    assert "8 of 8" in text
    assert "leaf1, ecmp" in text
    assert all(line == line.rstrip() and len(line) <= 80 for line in text.splitlines())


def test_json_alone_on_standard_output():
    result = run("--json", "-", *SMALL)
    found = json.loads(result.stdout)
    assert found["kind"] == "prediction"
    assert found["seed"] == 7
    assert [scheme["name"] for scheme in found["schemes"]] == ["ecmp", "mrc"]
    ecmp = found["schemes"][0]
    assert {"worst_uplink_load", "uplinks", "imbalance", "efficiency", "paths"} <= ecmp.keys()
    assert len(ecmp["flows"]["predicted_path"]) == 16
    assert "over_seeds" not in ecmp
    assert "worst" in result.stderr


def test_many_seeds_in_table_json_and_picture(tmp_path):
    page, document = tmp_path / "seeds.html", tmp_path / "seeds.json"
    text = run("--seeds", "50", "--plot", str(page), "--json", str(document)).stdout
    assert "over 50 seeds, 7 to 56" in " ".join(text.split())
    assert "as chance has it" in " ".join(text.split())
    over = json.loads(document.read_text())["schemes"][0]["over_seeds"]
    assert over["by_seed"]["seed"] == list(range(7, 57))
    assert over["law"]["leaf_imbalance"] == pytest.approx(1.5294, abs=5e-5)
    drawn = page.read_text()
    assert "64 streams at random on 8 uplinks" in drawn
    # Works offline: the library is inside, nothing is loaded.
    assert 'src="http' not in drawn


def test_a_seed_for_a_wanted_load_is_taken_and_told():
    result = run("--find-seed", "worst=1.40", "--json", "-")
    found = json.loads(result.stdout)
    assert found["found_seed"]["worst_uplink_load"] == pytest.approx(1.35)
    assert found["seed"] == found["found_seed"]["seed"]
    assert found["schemes"][0]["worst_uplink_load"] == pytest.approx(1.35)
    assert f"--seed {found['seed']}" in " ".join(result.stderr.split())


def test_paths_of_flows_on_request():
    text = run("--flows", *SMALL).stdout
    assert "leaf1>spine" in text
    assert "Queue pairs of ecmp" in text
    assert "Flows of mrc" in text


def test_a_large_fabric_is_given_as_a_distribution():
    large = [
        "--set", "topology.hosts_per_leaf=600", "--set", "topology.spines=60",
        "--set", "workload.flows_per_host=1", "--scheme", "ecmp",
    ]  # fmt: skip
    text = run(*large).stdout
    assert "over seed 7" in " ".join(text.split())
    assert "600 on 60 links" in " ".join(text.split())
    with pytest.raises(ScenarioError, match="fewer hosts"):
        run(*large, "--flows")


@pytest.mark.parametrize("wanted", ["1.4", "worst=", "worst=-1", "best=2", "worst=nan"])
def test_a_wanted_load_that_is_none_is_refused(wanted):
    with pytest.raises(ScenarioError, match=r"worst=LOAD"):
        run("--find-seed", wanted)


def test_no_seed_is_searched_for_a_sprayed_scheme():
    with pytest.raises(ScenarioError, match="keep to one path"):
        run("--find-seed", "worst=1.4", "--scheme", "mrc")


def test_seeds_that_pass_32_bits_are_refused():
    with pytest.raises(ScenarioError, match=r"2\^32"):
        run("--seed", str(2**32 - 1), "--seeds", "5")
