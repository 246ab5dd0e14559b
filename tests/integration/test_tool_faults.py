"""What befalls the tool itself in a run: a clear error, the run marked, nothing left behind."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_emu import experiment, processes
from fabric_emu.cli import main
from fabric_emu.errors import FabricError, HostUnfit, RunFailed, WaitTimeout
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scenario import Scenario
from fabric_emu.net import links, namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.traffic import Traffic
from fabric_emu.nursery import nursery
from fabric_emu.results.run import RunResult

pytestmark = pytest.mark.root

COMMAND = (sys.executable, "-c", "from fabric_emu.cli import main; main()")

TEXT = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 1, link_rate: 10mbit}
workload: {pattern: permutation, flows_per_host: 1, load: 0.5, duration: 200ms}
schemes: [ecmp]
"""


@pytest.fixture
def scenario() -> Scenario:
    return parse_scenario(TEXT, "small.yaml")


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fabric]]:
    """Give access to the fabric of a run."""
    built: list[Fabric] = []
    enter = Fabric.__enter__

    def remembered(self: Fabric) -> Fabric:
        built.append(self)
        return enter(self)

    monkeypatch.setattr(Fabric, "__enter__", remembered)
    yield built
    assert not any(fabric.lease.path.exists() for fabric in built)


def run_with(scenario: Scenario, stage: str, fault: Callable[[], object]) -> None:
    """Run a scenario; the fault happens once, when this stage is reached."""
    pending = [fault]

    def progress(progress: experiment.Progress) -> None:
        if progress.stage == stage and pending:
            pending.pop()()

    experiment.run_scheme(scenario, scenario.schemes[0], 1, progress)
    assert not pending, f"there was no stage {stage}"


def worker(fabric: list[Fabric]) -> int:
    return fabric[0].lease.processes[-1][0]


@pytest.mark.parametrize("stage", ["send", "drain"])
def test_a_worker_is_killed(scenario: Scenario, fabric: list[Fabric], stage: str) -> None:
    with pytest.raises(RunFailed, match=r"worker \d+ died \(signal 9\) while awaiting"):
        run_with(scenario, stage, lambda: os.kill(worker(fabric), signal.SIGKILL))


@pytest.mark.parametrize("stage", ["start", "send", "drain"])
def test_the_nursery_of_workers_is_killed(scenario: Scenario, stage: str) -> None:
    """Its workers end with it; the next run has another."""
    old = nursery().pid
    with pytest.raises(RunFailed, match=r"\d+ died \(signal 9\) while awaiting"):
        run_with(scenario, stage, lambda: os.kill(old, signal.SIGKILL))
    run_with(scenario, "send", lambda: None)
    assert nursery().pid != old


def test_the_sender_of_adverts_is_killed(fabric: list[Fabric]) -> None:
    def kill() -> None:
        adverts = fabric[0].adverts
        assert adverts
        os.kill(adverts.pid, signal.SIGKILL)

    scenario = parse_scenario(TEXT.replace("ecmp", "glb"), "small.yaml")
    with pytest.raises(RunFailed, match=r"sender of adverts, process \d+ died \(signal 9\)"):
        run_with(scenario, "send", kill)


def test_a_worker_is_stopped_for_good(
    scenario: Scenario, fabric: list[Fabric], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STALL_S", 0.5)
    with pytest.raises(WaitTimeout, match=r"worker \d+ is stopped or starved"):
        run_with(scenario, "drain", lambda: os.kill(worker(fabric), signal.SIGSTOP))


@pytest.mark.parametrize("node", ["h1", "leaf1"])
def test_an_interface_is_set_down_by_hand(
    scenario: Scenario, fabric: list[Fabric], node: str
) -> None:
    def set_down() -> None:
        with fabric[0].netlink(node) as sock:
            _, interface, port = fabric[0]._ends()[node][0]
            links.set_up(sock, fabric[0].lease.ifindex_base + port, interface, False)
            sock.flush()

    # The NIC's worker is told by the kernel; that of a switch is found at the end.
    with pytest.raises(RunFailed, match=r"Network is down|was set down or deleted under the run"):
        run_with(scenario, "send", set_down)


@pytest.mark.parametrize(("stage", "said"), [("start", "No such file"), ("send", "was deleted")])
def test_a_namespace_is_deleted_under_the_run(
    scenario: Scenario, fabric: list[Fabric], stage: str, said: str
) -> None:
    def delete() -> None:
        namespaces.remove(fabric[0].namespace("h1"))

    with pytest.raises(RunFailed, match=said):
        run_with(scenario, stage, delete)


def test_out_of_file_descriptors() -> None:
    program = (
        "from fabric_emu.model.topology import Topology\n"
        "from fabric_emu.net.fabric import Fabric\n"
        "with Fabric(Topology(leaves=2, spines=2, hosts_per_leaf=1)): pass\n"
    )
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    done = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "open files are needed, the limit is 64 (ulimit -n)" in done.stderr


def test_no_memory_for_a_ring() -> None:
    """What the kernel would map is more than the process may have."""
    program = """
import os, resource
from fabric_emu.errors import HostUnfit
from fabric_emu.net import namespaces
from fabric_emu.nic.ring import ReceiveRing
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
with namespaces.temporary():
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20),) * 2)
    try:
        ReceiveRing("lo", 1 << 17)  # 32 MiB
    except HostUnfit as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "packet ring of 33554432 bytes on lo: Cannot allocate memory; remedy:" in done.stdout


def test_the_disk_is_full(tmp_path: Path) -> None:
    """A file system of four pages in a mount namespace of its own."""
    file = tmp_path / "small.yaml"
    file.write_text(TEXT)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = (
        'mount -t tmpfs -o size=16k none "$0" && "$@"; code=$?; ls -A "$0" | wc -l; exit $code'
    )
    run = [*COMMAND, "run", str(file), "--out", str(disk)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "slave", "sh", "-c", command, str(disk), *run],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == FabricError.exit_code, done.stderr
    assert "cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "efficiency" in done.stdout  # what was measured is shown all the same
    assert done.stdout.splitlines()[-1] == "0"


STAGES = [
    (namespaces, "create"),
    (links, "make"),
    (Traffic, "_make"),
    (Traffic, "start"),
    (experiment, "_drain"),
    (Traffic, "stop"),
    (Fabric, "close"),
    (RunResult, "save"),
    (RunResult, "save_report"),
]


@pytest.mark.parametrize(("owner", "name"), STAGES, ids=[name for _, name in STAGES])
def test_ctrl_c_at_every_stage(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(TEXT)
    function = getattr(owner, name)
    pending = [signal.SIGINT]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if pending:
            os.kill(os.getpid(), pending.pop())
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(file), "--out", str(tmp_path / "out")])
    assert not pending, "never called"
    assert ended.value.code == 130
    (folder,) = (tmp_path / "out").iterdir()
    run = json.loads((folder / "run.json").read_text())
    # What came after the last measurement does not make the run any less complete.
    assert run["status"] == ("complete" if name.startswith("save") else "partial")
    assert (run["error"] == "interrupted") is (run["status"] == "partial")


def test_a_run_that_breaks_is_marked(
    tmp_path: Path, fabric: list[Fabric], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(TEXT)
    stop = Traffic.stop

    def killed(self: Traffic) -> Any:
        os.kill(worker(fabric), signal.SIGKILL)
        return stop(self)

    monkeypatch.setattr(Traffic, "stop", killed)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(file), "--out", str(tmp_path / "out")])
    assert ended.value.code == FabricError.exit_code
    (folder,) = (tmp_path / "out").iterdir()
    run = json.loads((folder / "run.json").read_text())
    assert run["status"] == "failed"
    assert "died (signal 9)" in run["error"]


@pytest.mark.parametrize("option", ["-bpf", "-net_admin,-sys_admin"])
def test_rights_are_missing(option: str, tmp_path: Path) -> None:
    """Root in name only; BPF alone may also be had by CAP_SYS_ADMIN."""
    file = tmp_path / "small.yaml"
    file.write_text(TEXT)
    drop = "-bpf,-sys_admin" if option == "-bpf" else option
    done = subprocess.run(
        ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *COMMAND, "run", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert done.returncode == HostUnfit.exit_code, done.stderr
    assert "remedy:" in done.stderr
    assert not (tmp_path / "results").exists()


ORDINARY = [
    ["check", "holbrook"],
    ["predict", "holbrook", "--seeds", "2"],
    ["list"],
    ["schema"],
    ["show", "RUN"],
    ["report", "RUN", "--out", "page.html"],
    ["export", "RUN", "--format", "prometheus"],
]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that anybody may write to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_commands_of_an_ordinary_user(scenario: Scenario, open_folder: Path) -> None:
    home = open_folder
    measured = experiment.run_scheme(scenario, scenario.schemes[0], 1)
    run = RunResult.begin("small", scenario, [1], {}).with_scheme(measured).ended("complete")
    saved = run.save(home / "results")
    for words in ORDINARY:
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *COMMAND]
            + [str(saved) if word == "RUN" else word for word in words],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
