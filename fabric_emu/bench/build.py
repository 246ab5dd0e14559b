"""Subject ``build``: how long fabrics take to come up and to go, beside stock Mininet.

Ours is configured in full (addresses, routes, shapers, BPF programs); stock Mininet makes nodes
and links only. Both are down when the call that stops them returns; ours is gone when the kernel
has taken its namespaces apart and freed its programs, which the next build waits for.

Under BGP ours is ready when every kernel has the routes of the topology.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fabric_emu.bench.table import MISSING, Row
from fabric_emu.errors import WaitTimeout
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.topology import Topology
from fabric_emu.net.bgp import FRR_DAEMONS
from fabric_emu.net.fabric import Fabric
from fabric_emu.switch.libbpf import libbpf

HAS_MININET = importlib.util.find_spec("mininet") is not None
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class _Size:
    """A fabric to build.

    Attributes:
        up_limit_s, gone_limit_s: what ours may take at most.
        stock_ratio: required against stock Mininet, to build and to stop.
        stock_repetitions: stock Mininet takes its time.
    """

    topology: Topology
    repetitions: int
    stock_repetitions: int
    up_limit_s: float | None = None
    gone_limit_s: float | None = None
    stock_ratio: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return f"{len(self.topology.nodes)} nodes"


_SMALL = Topology(leaves=4, spines=4, hosts_per_leaf=4)
_LARGE = Topology(leaves=16, spines=16, hosts_per_leaf=16)

SIZES = (
    _Size(_SMALL, 7, 1, up_limit_s=1.0, gone_limit_s=0.5),
    _Size(_LARGE, 3, 1, up_limit_s=4.0, stock_ratio=(10.0, 30.0)),
)
QUICK_SIZES = (
    _Size(_SMALL, 3, 1, up_limit_s=1.0, gone_limit_s=0.5),
    _Size(Topology(leaves=8, spines=8, hosts_per_leaf=8), 2, 1),
)


_ROUTED = Topology(leaves=8, spines=8, hosts_per_leaf=1, ip="both")
_READY_LIMIT_S = 60.0


@dataclass
class _Times:
    up_s: list[float] = field(default_factory=list)
    down_s: list[float] = field(default_factory=list)
    gone_s: list[float] = field(default_factory=list)


def measure(quick: bool, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield three rows per size: up, down, gone."""
    _build_and_stop(Topology(leaves=1, spines=1, hosts_per_leaf=1), _Times())  # imports, caches
    for size in QUICK_SIZES if quick else SIZES:
        ours, theirs = _Times(), _Times()
        for repetition in range(size.repetitions):
            tell(f"{size.name}: repetition {repetition + 1} of {size.repetitions}")
            _build_and_stop(size.topology, ours)
        for _ in range(size.stock_repetitions if HAS_MININET else 0):
            tell(f"{size.name}: stock Mininet, which takes its time")
            _build_and_stop_stock(size.topology, theirs)
        yield from _rows(size, ours, theirs)
    if quick:
        return
    if (FRR_DAEMONS / "bgpd").exists():
        tell(f"{_ROUTED.leaves} leaves and {_ROUTED.spines} spines under BGP")
        yield _ready()
    else:
        tell("no BGP: FRR is not installed; remedy: scripts/setup --with-bgp")


def _ready() -> Row:
    what = f"{_ROUTED.leaves} x {_ROUTED.spines} switches: BGP ready"
    with Fabric(_ROUTED, control_plane=Bgp(ready_within=2 * _READY_LIMIT_S)) as fabric:
        assert fabric.ready_s is not None
        return Row("build", what, "s", (fabric.ready_s,), less_is_better=True, limit=_READY_LIMIT_S)


def _rows(size: _Size, ours: _Times, theirs: _Times) -> Iterator[Row]:
    build, stop = size.stock_ratio or (None, None)
    for what, own, other, stock, ratio, limit in (
        ("up", ours.up_s, "Mininet", theirs.up_s, build, size.up_limit_s),
        ("down", ours.down_s, "Mininet", theirs.down_s, stop, None),
        ("gone", ours.gone_s, "", [], None, size.gone_limit_s),
    ):
        yield Row(
            "build",
            f"{size.name}: {what}",
            "s",
            tuple(own),
            other,
            tuple(stock),
            less_is_better=True,
            required_ratio=ratio,
            limit=limit,
            note=f"Mininet {MISSING}" if other and not stock else "",
        )


def _build_and_stop(topology: Topology, times: _Times) -> None:
    start = time.perf_counter()
    with Fabric(topology) as fabric:
        built = time.perf_counter()
        programs = _program_ids(fabric)
        stopping = time.perf_counter()
    times.up_s.append(built - start)
    times.down_s.append(time.perf_counter() - stopping)
    _wait_until_gone(programs)
    times.gone_s.append(time.perf_counter() - stopping)


def _program_ids(fabric: Fabric) -> set[int]:
    infos = [Path(f"/proc/self/fdinfo/{fd}") for fd in fabric.ports.bpf.program_fds.values()]
    return {int(re.findall(r"prog_id:\t(\d+)", info.read_text())[0]) for info in infos}


def _wait_until_gone(programs: set[int]) -> None:
    """Wait for the kernel: it takes namespaces apart, and their links, after they are let go."""
    deadline = time.monotonic() + _TIMEOUT_S
    while programs or _takes_namespaces_apart():
        if time.monotonic() > deadline:
            what = f"free {programs}" if programs else "take namespaces apart"
            raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for the kernel to {what}")
        time.sleep(0.001)
        for number in tuple(programs):
            fd = libbpf().bpf_prog_get_fd_by_id(number)
            if fd < 0:
                programs.discard(number)
            else:
                os.close(fd)


def _takes_namespaces_apart() -> bool:
    """Tell whether a worker of the kernel is at it: their names say what they run.

    Source: wq_worker_comm in kernel/workqueue.c, cleanup_net in net/core/net_namespace.c.
    """
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            name = path.read_text()
            if name.startswith("kworker/") and name.endswith("+netns\n"):
                return True
    return False


def _build_and_stop_stock(topology: Topology, times: _Times) -> None:
    from mininet.net import Mininet
    from mininet.node import Node

    Mininet.inited = True  # its own start would raise limits of the whole machine
    Node.isSetup = True  # nor need it look for ifconfig: nothing here gets an address
    _raise_file_limit(8 * len(topology.nodes) + 256)
    start = time.perf_counter()
    net = Mininet(controller=None)
    try:
        for name in topology.nodes:
            net.addHost(name, ip=None)
        for link in topology.links:
            net.addLink(link.lower.name, link.upper.name)
    finally:
        built = time.perf_counter()
        net.stop()
    times.up_s.append(built - start)
    times.down_s.append(time.perf_counter() - built)


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or wanted <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
