"""The command as a user runs it: whole runs, Ctrl-C, kill -9 and clean, two runs at a time."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fabric_emu.net.registry import LEASE_DIR

pytestmark = pytest.mark.root

COMMAND = [sys.executable, "-c", "from fabric_emu.cli import main; main()"]
SHORT = ["--set", "topology.link_rate=20mbit", "--set", "workload.duration=800ms"]
LONG = ["--set", "topology.link_rate=20mbit", "--set", "workload.duration=60s"]


def command(*arguments, **options):
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def finished(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def leases_of(pid):
    found = []
    for path in LEASE_DIR.glob("*.json"):
        try:
            lease = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            continue
        if lease["pid"] == pid:
            found.append(lease)
    return found


def left_of(lease):
    """Return the lease's namespaces that exist and are not another run's by now."""
    others = set()
    for path in LEASE_DIR.glob("*.json"):
        try:
            others |= set(json.loads(path.read_text())["namespaces"])
        except (FileNotFoundError, ValueError):
            continue
    names = set(lease["namespaces"]) - others
    return [name for name in names if Path("/run/netns", name).exists()]


def sending(process):
    """Tell whether a run's workers are there."""
    return any(len(lease["processes"]) >= 1 for lease in leases_of(process.pid))


def test_a_run_prints_a_table_and_writes_its_results(tmp_path):
    process = command("run", "holbrook", *SHORT, "--out", tmp_path, "--json", tmp_path / "run.json")
    code, out, err = finished(process)
    # On a busy machine so short a run may miss an expectation by a packet.
    assert code in (0, 1), err
    assert "leaf1, ecmp" in out
    assert "64 of 64 queue pairs took the predicted path" in out
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["format"], run["status"]) == (1, "complete")
    ecmp, mrc = run["schemes"]
    assert ecmp["worst_uplink_load"] > 1 > 0.95 > mrc["worst_uplink_load"]
    assert ecmp["efficiency"] < mrc["efficiency"]
    for scheme in run["schemes"]:
        packets = scheme["packets"]
        gone = packets["delivered"] + sum(packets["dropped"].values())
        assert packets["sent"] == gone + packets["trimmed"] + packets["queued"]
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {"run.json", "flows-ecmp.csv", "ports-mrc.csv"} <= {p.name for p in folder.iterdir()}


def test_several_seeds_have_a_spread(tmp_path):
    process = command(
        "run", "holbrook", *SHORT, "--scheme", "ecmp", "--seeds", "2", "--out", tmp_path,
        "--json", "-",
    )  # fmt: skip
    code, out, err = finished(process)
    assert code in (0, 1), err  # expectations are those of the scenario's own seed
    run = json.loads(out)
    assert [scheme["seed"] for scheme in run["schemes"]] == [1, 2]
    spread = run["spread"]["ecmp"]["worst_uplink_load"]
    assert spread["min"] <= spread["median"] <= spread["max"]


def test_an_executable_scenario_runs_itself(tmp_path):
    scenario = Path(__file__).parents[2] / "scenarios" / "holbrook.yaml"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "fabric-emu").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from fabric_emu.cli import main; main()' \"$@\"\n"
    )
    (tools / "fabric-emu").chmod(0o755)
    process = subprocess.run(
        [str(scenario), *SHORT, "--scheme", "ecmp", "--out", str(tmp_path)],
        env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "Results in" in process.stdout


def test_ctrl_c_in_mid_run_leaves_a_partial_result_and_nothing_else(tmp_path, wait_until):
    process = command("run", "holbrook", *LONG, "--out", tmp_path)
    wait_until(lambda: sending(process), 30)
    lease = leases_of(process.pid)[0]
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process)
    assert code == 130
    assert "interrupted" in err.lower()
    assert not leases_of(process.pid)
    assert not left_of(lease)
    assert not any(Path(f"/proc/{pid}").exists() for pid, _ in lease["processes"])


def test_kill_9_in_mid_run_and_clean(tmp_path, wait_until):
    process = command("run", "holbrook", *LONG, "--out", tmp_path)
    wait_until(lambda: sending(process), 30)
    lease = leases_of(process.pid)[0]
    process.kill()
    process.communicate()
    # Workers go with their parent; namespaces stay until they are cleaned.
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid, _ in lease["processes"]), 10)
    assert all(Path("/run/netns", name).exists() for name in lease["namespaces"])
    code, out, err = finished(command("clean"))
    assert code == 0, err
    assert "namespaces" in out
    assert not left_of(lease)
    assert not leases_of(process.pid)


def test_two_runs_at_a_time_do_not_disturb_each_other(tmp_path):
    rate = ["--set", "topology.link_rate=8mbit", "--set", "workload.duration=1500ms"]
    runs = [
        command("run", "holbrook", *rate, "--scheme", scheme, "--out", tmp_path, "--json", "-")
        for scheme in ("ecmp", "mrc")
    ]
    for process in runs:
        code, out, err = finished(process)
        assert code in (0, 1), err
        (scheme,) = json.loads(out)["schemes"]
        packets = scheme["packets"]
        assert packets["sent"] == packets["scheduled"] > 0
        gone = packets["delivered"] + sum(packets["dropped"].values())
        assert packets["sent"] == gone + packets["trimmed"] + packets["queued"]
        checks = {check["name"]: check["ok"] for check in scheme["verdict"]["checks"]}
        assert checks["conservation"]
        assert checks["order on one path"]
        assert checks["paths agree"]
