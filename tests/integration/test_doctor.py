"""The doctor on this machine, on one that lacks things, and to a user without root."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from fabric_emu.net import doctor
from fabric_emu.net.batches import BatchPaths
from fabric_emu.net.doctor import Finding, examine

pytestmark = pytest.mark.root

MAY_BE_LACKING = {
    "resilient groups",  # Linux before 5.13
    "hash seed",  # Linux before 6.11
    "multipath hash",
    "processors",
    "memory",
    "IPv6",
    "multipath in receive batches",  # a busy machine
    "tshark",
    "iperf3",
    "tcpreplay",
    "frr",
    "vagrant",
}


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    found = {finding.name: finding for finding in findings}
    assert len(found) == len(findings)
    return found


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    return by_name(examine())


def test_this_machine_can(findings: dict[str, Finding]) -> None:
    assert not [finding for finding in findings.values() if finding.status == "missing"]
    lacking = {name for name, finding in findings.items() if finding.status == "warning"}
    assert lacking <= MAY_BE_LACKING


def test_each_lack_has_its_remedy(findings: dict[str, Finding]) -> None:
    for finding in findings.values():
        assert finding.detail
        assert (finding.remedy == "") == (finding.status == "ok")


def test_all_is_looked_at(findings: dict[str, Finding]) -> None:
    assert set(findings) > MAY_BE_LACKING
    assert set(findings) - MAY_BE_LACKING == {
        "root",
        "Python",
        "Mininet",
        "clang",
        "libbpf",
        "BPF programs",
        "network namespaces",
        "veth",
        "GRO on veth",
        "HTB",
        "clsact",
        "nexthop objects",
    }


def test_it_is_quick_and_leaves_nothing() -> None:
    home, files = os.readlink("/proc/thread-self/ns/net"), len(os.listdir("/proc/self/fd"))
    times = []
    for _ in range(2):  # the better of two: other work may share the machine
        start = time.monotonic()
        examine()
        times.append(time.monotonic() - start)
    assert min(times) < 3
    assert os.readlink("/proc/thread-self/ns/net") == home
    assert len(os.listdir("/proc/self/fd")) == files


def test_programs_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = by_name(examine())
    assert found["clang"] == Finding("clang", "missing", "not found", "sudo scripts/setup")
    assert found["Mininet"].status == "missing"
    assert found["Mininet"].remedy == "sudo scripts/setup"
    assert found["tshark"].status == "warning"
    assert found["tshark"].remedy == "sudo scripts/setup --with-capture"
    assert found["iperf3"].remedy == "sudo scripts/setup --with-bench"
    assert found["multipath in receive batches"].detail == (
        "cannot be tried without Mininet, clang"
    )


def test_without_root() -> None:
    program = """
import dataclasses, os
from fabric_emu.net.doctor import examine
os.setuid(65534)
print([dataclasses.astuple(finding) for finding in examine()])
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    found = by_name([Finding(*each) for each in ast.literal_eval(said)])
    needs_root = {"BPF programs", "network namespaces", "veth", "GRO on veth", "HTB", "clsact"}
    needs_root |= {"nexthop objects", "IPv6", "multipath hash", "multipath in receive batches"}
    needs_root.add("resilient groups")
    for name in needs_root | {"root"}:
        assert (found[name].status, found[name].remedy) == ("missing", "run with sudo")
    for name in ("Python", "Mininet", "libbpf"):
        assert found[name].status == "ok"


def test_a_kernel_that_keeps_batches_together() -> None:
    alone = np.resize(np.array([1, 2, 3, 4], np.uint8), 128)
    together = np.repeat(alone[::8], 8)  # each batch of eight goes where its first packet goes
    fine = BatchPaths(4, alone, alone, batched=120)
    faulty = BatchPaths(6, alone, together, batched=120)
    finding = doctor.batch_finding([fine, faulty])
    assert finding.status == "missing"
    assert finding.detail.startswith("96 of 256 packets took another path")
    assert "full-upgrade" in finding.remedy

    assert doctor.batch_finding([fine, fine]).status == "ok"
    unclear = BatchPaths(6, alone, alone, batched=3)
    assert doctor.batch_finding([fine, unclear]).status == "warning"
