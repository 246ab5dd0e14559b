"""Kernels that lack something: the doctor names it, and a run does not begin, or does what it can.

This kernel is asked for kinds that it has never heard of, so it answers as an older one does to
those that it has not.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabric_emu.cli import main
from fabric_emu.errors import HostUnfit
from fabric_emu.net import doctor, fabric, selftest
from fabric_emu.net.netlink import NetlinkSocket

pytestmark = pytest.mark.root

TEXT = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 1, link_rate: 10mbit%s}
workload: {pattern: permutation, flows_per_host: 1, load: 0.5, duration: 200ms}
schemes: [%s]
"""
Change = Callable[[bytes], bytes]


def without(kind: bytes) -> Change:
    """Return what makes requests for a kind of thing requests for one that does not exist."""
    return lambda request: request.replace(kind + b"\0", kind[:-1] + b"X\0")


def without_nexthops(request: bytes) -> bytes:
    length, kind = struct.unpack_from("=IH", request)
    return struct.pack("=IH", length, 200 if kind == 104 else kind) + request[6:]


def without_resilient_groups(request: bytes) -> bytes:
    # NHA_GROUP_TYPE: six bytes, attribute 3, NEXTHOP_GRP_TYPE_RES; 9 is no type.
    return request.replace(struct.pack("=HHH", 6, 3, 1), struct.pack("=HHH", 6, 3, 9))


def let_lack(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    queue = NetlinkSocket.queue

    def changed(self: NetlinkSocket, request: bytes, label: str) -> None:
        queue(self, change(request), label)

    monkeypatch.setattr(NetlinkSocket, "queue", changed)


def forget() -> None:
    selftest.prediction_support.cache_clear()
    selftest.has_resilient_groups.cache_clear()


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    forget()
    yield
    forget()


def run(folder: Path, topology: str = "", scheme: str = "ecmp") -> int:
    """Return the exit code of a run."""
    file = folder / "small.yaml"
    file.write_text(TEXT % (topology, scheme))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(file), "--out", str(folder / "out")])
    return int(ended.value.code or 0)


def finding(name: str) -> doctor.Finding:
    return next(found for found in doctor.examine() if found.name == name)


LACKING = {
    "veth": (without(b"veth"), "CONFIG_VETH"),
    "HTB": (without(b"htb"), "CONFIG_NET_SCH_HTB"),
    "clsact": (without(b"clsact"), "CONFIG_NET_SCH_INGRESS"),
    "clsact, its programs": (without(b"bpf"), "CONFIG_NET_CLS_BPF"),
    "nexthop objects": (without_nexthops, "Linux 5.3 or newer"),
}


@pytest.mark.parametrize(("name", "option"), [(name, LACKING[name][1]) for name in LACKING])
def test_what_every_run_needs(
    name: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    let_lack(monkeypatch, LACKING[name][0])
    found = finding(name.partition(",")[0])
    assert found.status == "missing"
    assert "this kernel does not know it" in found.detail
    assert option in found.remedy

    assert run(tmp_path) == HostUnfit.exit_code
    said = capsys.readouterr().err
    assert "this kernel does not know it; remedy: fabric-emu doctor says how to get it" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_resilient_groups_are_needed_by_those_who_ask_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finding("resilient groups").status == "ok"
    selftest.has_resilient_groups.cache_clear()
    let_lack(monkeypatch, without_resilient_groups)
    found = finding("resilient groups")
    assert found.status == "warning"
    assert "Linux 5.13 or newer" in found.remedy

    assert run(tmp_path, ", ecmp: {resilient: true}") == HostUnfit.exit_code
    assert "no resilient nexthop groups (Linux before 5.13); remedy:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(tmp_path) == 0


def test_without_hash_seeds_runs_are_not_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (selftest, fabric):
        monkeypatch.setattr(module, "SEED_SYSCTL", "net/ipv4/no_such_setting")
    found = finding("hash seed")
    assert found.status == "warning"
    assert "Linux 6.11 or newer has it" in found.detail

    # Even spreading needs the hash: entropy values are drawn instead.
    assert run(tmp_path, scheme="ecmp, mrc") == 0
    assert "no fib_multipath_hash_seed" in capsys.readouterr().out.replace("\n", " ")
    (folder,) = (tmp_path / "out").iterdir()
    for scheme in json.loads((folder / "run.json").read_text())["schemes"]:
        assert not scheme["prediction"]["offered"]
        assert "Linux before 6.11" in scheme["prediction"]["reason"]
        assert scheme["packets"]["delivered"] == scheme["packets"]["scheduled"] > 0
