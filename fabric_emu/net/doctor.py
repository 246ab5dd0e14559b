"""What this machine has and lacks, each with its remedy; tried out, not guessed from versions."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fabric_emu.errors import FabricError, HostUnfit
from fabric_emu.net import batches, links, namespaces, selftest, shaping
from fabric_emu.net.netlink import ASK_DOCTOR, NetlinkSocket
from fabric_emu.switch.libbpf import libbpf
from fabric_emu.switch.ports import PortConstants, PortTable

Status = Literal["ok", "missing", "warning"]

_SETUP = "sudo scripts/setup"
_OLDEST_PYTHON, _OLDEST_CLANG = (3, 11), 14
_MEMORY_BYTES = 1 << 30
_INDEX = 1000
_RATE_BPS, _FRAME_BYTES = 100_000_000, 9014
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_KERNEL = f"sudo apt-get install linux-image-{_ARCHITECTURE} && sudo reboot"
_BATCHES = "multipath in receive batches"
_DEBIAN_13 = "use a machine with Debian 13, as vagrant up makes it"

_OPTIONAL = {
    "tshark": ("shows and checks captured frames", f"{_SETUP} --with-capture"),
    "iperf3": ("compared with in scripts/bench", f"{_SETUP} --with-bench"),
    "tcpreplay": ("compared with in scripts/bench", f"{_SETUP} --with-bench"),
    "frr": ("routes fabrics by BGP", f"{_SETUP} --with-bgp"),
    "vagrant": ("makes the virtual machine of the Vagrantfile", "sudo apt-get install vagrant"),
}


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what it is.
        status: ``ok``; ``missing``: no fabric, or none whose results are right, without it;
            ``warning``: something is left out, slower, or could not be told.
        detail: what was found.
        remedy: the command that mends it; empty when there is nothing to mend.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Look at everything a run needs; takes a second or two, and leaves nothing behind.

    Without root, what needs it is reported as missing.
    """
    found = [_root(), _python(), _mininet(), _clang(), _libbpf()]
    found.append(_tried("BPF programs", _load_programs, _SETUP))
    found += _kernel_features()
    found += [_resilient(), _hash_seed(), _hash(), _processors(), _memory()]
    found.append(_batches(found))
    return found + [_optional(tool) for tool in _OPTIONAL]


def _tried(name: str, attempt: Callable[[], str], remedy: str) -> Finding:
    """Report an attempt: what it returns, or what it fails with."""
    if os.geteuid() != 0:
        return _untried(name)
    try:
        return Finding(name, "ok", attempt())
    except (FabricError, OSError) as error:
        return _failed(name, error, remedy)


def _untried(name: str) -> Finding:
    return Finding(name, "missing", "cannot be tried without root", "run with sudo")


def _failed(name: str, error: Exception, remedy: str) -> Finding:
    if isinstance(error, HostUnfit):
        own = error.remedy != ASK_DOCTOR
        return Finding(name, "missing", error.missing, error.remedy if own else remedy)
    return Finding(name, "missing", str(error), remedy)


# The machine and its programs.


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root", "ok", "yes")
    return Finding("root", "missing", "network namespaces and BPF need it", "run with sudo")


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Finding("Python", "ok", version)
    return Finding("Python", "missing", f"{version}: 3.11 or newer is needed", _DEBIAN_13)


def _mininet() -> Finding:
    try:
        version = importlib.import_module("mininet.net").VERSION
    except ImportError as error:
        return Finding("Mininet", "missing", str(error), _SETUP)
    if shutil.which("mnexec") is None:
        return Finding("Mininet", "missing", f"{version}, but no mnexec", _SETUP)
    return Finding("Mininet", "ok", version)


def _clang() -> Finding:
    path = shutil.which("clang")
    if path is None:
        return Finding("clang", "missing", "not found", _SETUP)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)[\d.]*", said)
    if match is None or int(match[1]) < _OLDEST_CLANG:
        detail = match[0] if match else "of unknown version"
        return Finding("clang", "missing", f"{detail}: {_OLDEST_CLANG} or newer is needed", _SETUP)
    return Finding("clang", "ok", match[0])


def _libbpf() -> Finding:
    try:
        libbpf()
    except HostUnfit as error:
        return Finding("libbpf", "missing", error.missing, error.remedy)
    return Finding("libbpf", "ok", "libbpf.so.1")


def _processors() -> Finding:
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return Finding("processors", "ok", str(count))
    detail = "1: senders and fabric share it, and rates will be low"
    return Finding(
        "processors", "warning", detail, "give it two or more (FABRIC_EMU_CPUS=2 vagrant reload)"
    )


def _memory() -> Finding:
    meminfo = Path("/proc/meminfo").read_text()
    available = int(re.findall(r"MemAvailable: +(\d+) kB", meminfo)[0]) * 1024
    detail = f"{available / 1e9:.1f} GB available"
    if available >= _MEMORY_BYTES:
        return Finding("memory", "ok", detail)
    return Finding(
        "memory", "warning", detail, "give it 4 GiB (FABRIC_EMU_MEMORY=4096 vagrant reload)"
    )


def _optional(tool: str) -> Finding:
    use, remedy = _OPTIONAL[tool]
    # FRR's daemons are not on anyone's path.
    found = shutil.which("bgpd", path="/usr/lib/frr") if tool == "frr" else shutil.which(tool)
    if found:
        return Finding(tool, "ok", found)
    return Finding(tool, "warning", f"optional, not found: {use}", remedy)


# The kernel, tried out in a namespace that goes with the trial.


def _load_programs() -> str:
    constants = PortConstants(ifindex_base=_INDEX, port_count=2)
    with PortTable(constants) as table:
        return f"loaded: {', '.join(table.bpf.program_fds)}"


def _kernel_features() -> list[Finding]:
    """Try what links and routes are made of, on one pair of interfaces."""
    name = "network namespaces"
    if os.geteuid() != 0:
        return [_untried(each) for each in (name, *_FEATURES, "IPv6")]
    found = []
    try:
        with namespaces.temporary(), contextlib.closing(NetlinkSocket("doctor")) as sock:
            found.append(Finding(name, "ok", f"Linux {platform.release()}"))
            for feature, (attempt, option) in _FEATURES.items():
                remedy = f"{_KERNEL} (a kernel with {option})"
                found.append(_tried(feature, functools.partial(attempt, sock), remedy))
            found.append(_ipv6(sock))
    except HostUnfit as error:
        found.append(_failed(name, error, ""))
    return found


def _veth(sock: NetlinkSocket) -> str:
    selftest.make_veth_pair(sock, _INDEX)
    sock.flush()
    return "with interface indexes of our choice"


def _gro(_: NetlinkSocket) -> str:
    with contextlib.closing(links.Offloads()) as offloads:
        offloads.set_for_order("in")
    return "gro on, tso off: a single path keeps its order"


def _htb(sock: NetlinkSocket) -> str:
    shaping.shape(sock, _INDEX, _RATE_BPS, _FRAME_BYTES, "out")
    sock.flush()
    return "rate limits with a control and a data class"


def _clsact(sock: NetlinkSocket) -> str:
    with PortTable(PortConstants(ifindex_base=_INDEX, port_count=2)) as table:
        programs = table.bpf.program_fds
        shaping.make_hooks(sock, _INDEX, "out")
        shaping.attach(sock, programs["port_ingress"], programs["port_egress"], "out")
        sock.flush()
    return "BPF programs at both sides of an interface"


def _nexthops(sock: NetlinkSocket) -> str:
    for place in range(2):
        selftest.make_nexthop(sock, 4, place)
    selftest.make_group(sock, 4, 2)
    sock.flush()
    return "groups of next hops"


def _ipv6(sock: NetlinkSocket) -> Finding:
    try:
        namespaces.write_sysctl("net/ipv6/conf/all/disable_ipv6", 0)
        namespaces.write_sysctl("net/ipv6/conf/all/forwarding", 1)
        selftest.make_nexthop(sock, 6, 0)
        sock.flush()
    except FabricError as error:
        remedy = "start the kernel without ipv6.disable=1"
        return Finding("IPv6", "warning", f"only fabrics of IPv4: {error}", remedy)
    return Finding("IPv6", "ok", "forwards")


_FEATURES: dict[str, tuple[Callable[[NetlinkSocket], str], str]] = {
    "veth": (_veth, "CONFIG_VETH"),
    "GRO on veth": (_gro, "CONFIG_VETH of Linux 5.13 or newer"),
    "HTB": (_htb, "CONFIG_NET_SCH_HTB"),
    "clsact": (_clsact, "CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF"),
    "nexthop objects": (_nexthops, "Linux 5.3 or newer"),
}


def _resilient() -> Finding:
    name = "resilient groups"
    if os.geteuid() != 0:
        return _untried(name)
    try:
        has = selftest.has_resilient_groups()
    except FabricError as error:
        return Finding(name, "warning", f"cannot be tried: {error}", "mend that first")
    if has:
        return Finding(name, "ok", "next hops that stay when another one leaves")
    return Finding(
        name,
        "warning",
        "no topology.ecmp.resilient: Linux 5.13 or newer has it",
        f"{_KERNEL} (Linux 5.13 or newer)",
    )


def _hash_seed() -> Finding:
    name = "hash seed"
    if namespaces.has_sysctl(selftest.SEED_SYSCTL):
        return Finding(name, "ok", "fib_multipath_hash_seed")
    return Finding(
        name,
        "warning",
        "no fib_multipath_hash_seed: all switches hash alike, predictions are off; "
        "Linux 6.11 or newer has it, e.g. Debian 13",
        _DEBIAN_13,
    )


def _hash() -> Finding:
    name = "multipath hash"
    if os.geteuid() != 0:
        return _untried(name)
    support = selftest.prediction_support()
    if support.offered:
        return Finding(name, "ok", support.reason)
    return Finding(name, "warning", support.reason, _DEBIAN_13)


def _batches(before: list[Finding]) -> Finding:
    lacking = [finding.name for finding in before if finding.status == "missing"]
    if os.geteuid() != 0:
        return _untried(_BATCHES)
    if lacking:
        detail = f"cannot be tried without {', '.join(lacking)}"
        return Finding(_BATCHES, "warning", detail, "mend those first")
    try:
        found = batches.paths_in_batches()
    except (FabricError, OSError) as error:
        return _failed(_BATCHES, error, "fabric-emu clean, then once more")
    return batch_finding(found)


def batch_finding(found: list[batches.BatchPaths]) -> Finding:
    """Report what packets did that were received in batches."""
    moved = sum(each.moved for each in found)
    packets = sum(len(each.alone) for each in found)
    if moved:
        return Finding(
            _BATCHES,
            "missing",
            f"{moved} of {packets} packets took another path when received together: this kernel "
            "sends a batch where its first packet goes (mended in Linux 6.6 and in stable kernels)",
            "sudo apt-get update && sudo apt-get full-upgrade && sudo reboot",
        )
    if not all(each.conclusive for each in found):
        detail = "could not be told: too few packets were received together, or arrived"
        return Finding(_BATCHES, "warning", detail, "run it again on an idle machine")
    return Finding(_BATCHES, "ok", f"{packets} packets kept their paths")
