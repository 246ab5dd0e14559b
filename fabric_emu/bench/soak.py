"""Command line of ``scripts/soak``: whether anything grows over many runs, or in a long one."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from fabric_emu.commands.run import need_root
from fabric_emu.commands.terminal import stops_as
from fabric_emu.errors import FabricError
from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.net.namespaces import NETNS_DIR

WARM_UP = 3
"""Cycles before the first look: imports, caches, pools of the allocator."""

MEMORY_ALLOWED = 16 << 20
"""Bytes that resident memory may grow: the allocator keeps what it may need again. A record of
one run is over 60 KB, so 300 leaked ones would be more than this."""

_SETTLE_S = 10.0
_QUIET_S = 0.5
"""How long the counts must stand still: what is freed late is freed within a few RCU grace periods
of some 10 ms each. Source: kernel/bpf/syscall.c, __bpf_prog_put and bpf_map_put."""

_SCENARIO = """
title: soak
topology: {{leaves: 2, spines: 2, hosts_per_leaf: 1, link_rate: 10mbit}}
workload: {{pattern: permutation, flows_per_host: 1, load: 0.5, duration: {duration}}}
schemes: [ecmp]
"""


@dataclass(frozen=True)
class Held:
    """What of the machine is in use.

    Attributes:
        namespaces: under /run/netns; programs, maps: BPF, of the whole machine.
        files: open in this process; memory_bytes: resident in it.
    """

    namespaces: int
    programs: int
    maps: int
    files: int
    memory_bytes: int

    @classmethod
    def now(cls) -> Held:
        """Count."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            len(os.listdir(NETNS_DIR)) if NETNS_DIR.exists() else 0,
            _ids("bpf_prog_get_next_id"),
            _ids("bpf_map_get_next_id"),
            len(os.listdir("/proc/self/fd")),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )

    @classmethod
    def settled(cls) -> Held:
        """Count once the kernel has freed what it frees late; what is left at the deadline stays.

        A baseline that held what was on its way out would hide as much growth.
        """
        now = time.monotonic()
        deadline, quiet_since, last = now + _SETTLE_S, now, cls.now()
        while now < deadline and now - quiet_since < _QUIET_S:
            time.sleep(0.05)
            now, current = time.monotonic(), cls.now()
            if replace(current, memory_bytes=last.memory_bytes) != last:
                quiet_since = now
            last = current
        return last

    def growth(self, before: Held) -> dict[str, int]:
        """Return by how much more of each there is."""
        then = asdict(before)
        return {name: value - then[name] for name, value in asdict(self).items()}


def _ids(function: str) -> int:
    """Count BPF objects. Source: bpf(2), BPF_PROG_GET_NEXT_ID and BPF_MAP_GET_NEXT_ID."""
    following, number, count = getattr(ctypes.CDLL("libbpf.so.1"), function), ctypes.c_uint32(0), 0
    while following(number, ctypes.byref(number)) == 0:
        count += 1
    return count


def _grown(before: Held) -> tuple[dict[str, int], bool]:
    """Return the growth once the kernel has freed what it frees late, and whether it is too much.

    Programs and maps go some time after their last user.
    """
    deadline = time.monotonic() + _SETTLE_S
    while True:
        growth = Held.now().growth(before)
        allowed = {"memory_bytes": MEMORY_ALLOWED}
        grown = any(more > allowed.get(name, 0) for name, more in growth.items())
        if not grown or time.monotonic() > deadline:
            return growth, grown
        time.sleep(0.1)


def _run(duration: str) -> None:
    scenario = parse_scenario(_SCENARIO.format(duration=duration), "soak")
    run_scheme(scenario, scenario.schemes[0], 1)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cycles", type=click.IntRange(0), default=300, show_default=True)
@click.option("--minutes", type=click.FloatRange(0), default=0.0, help="Length of a long run.")
def main(cycles: int, minutes: float) -> None:
    """Build, run and tear down many times, then run long; ends with 1 when something has grown."""
    try:
        with stops_as(KeyboardInterrupt()):
            need_root()
            for _ in range(WARM_UP):
                _run("50ms")
            before = Held.settled()
            for _ in range(cycles):
                _run("50ms")
            failed = _tell(f"{cycles} cycles", before)
            if minutes:
                # A run keeps the headers of all that arrives until its end, and then lets go.
                before = Held.settled()
                _run(f"{minutes * 60:g}s")
                failed |= _tell(f"a run of {minutes:g} minutes", before)
    except FabricError as error:
        click.echo(f"soak: {error}", err=True)
        raise click.exceptions.Exit(error.exit_code) from None
    raise click.exceptions.Exit(int(failed))


def _tell(what: str, before: Held) -> bool:
    growth, grown = _grown(before)
    for name, more in growth.items():
        click.echo(f"{what}: {name} {more:+,} (from {asdict(before)[name]:,})")
    return grown


if __name__ == "__main__":
    main()
