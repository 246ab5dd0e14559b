"""FRR in the switches' namespaces: its daemons, and the wait until every kernel has its routes."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fabric_emu.errors import HostUnfit, RunFailed, WaitTimeout
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.frr import configuration
from fabric_emu.model.topology import Node, Role
from fabric_emu.net.kernel_routes import RTPROT_BGP, Routes, kernel_routes
from fabric_emu.net.namespaces import NETNS_DIR
from fabric_emu.net.netlink import NetlinkSocket

if TYPE_CHECKING:
    from fabric_emu.net.fabric import Fabric

FRR_DAEMONS = Path("/usr/lib/frr")
_USER, _GROUP = "frr", "frr"
_POLL_S = 0.1
_SOCKET_WAIT_S = 20.0
_BFD_PRIORITY = "20"
"""Of real time, over the NIC workers: a late BFD packet would take a link down."""

_SHOWN = 5


class Routers:
    """The FRR daemons of a fabric.

    Args:
        fabric: its namespaces and links exist.
        bgp: how they are configured.

    Raises:
        HostUnfit: FRR is not installed.
    """

    def __init__(self, fabric: Fabric, bgp: Bgp) -> None:
        if not (FRR_DAEMONS / "bgpd").exists():
            raise HostUnfit("control_plane: bgp needs FRR", "sudo scripts/setup --with-bgp")
        self._fabric, self._bgp = fabric, bgp
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self) -> None:
        """Start the daemons of every switch; zebra first, which the others connect to."""
        topology, folder = self._fabric.topology, self._fabric.lease.make_folder()
        for switch in topology.switches:
            own = folder / switch.name
            own.mkdir(mode=0o750)
            file = own / "frr.conf"
            file.write_text(configuration(topology, self._bgp, switch))
            (own / "vtysh.conf").touch()  # vtysh complains when it is missing
            for path in (own, file):
                shutil.chown(path, _USER, _GROUP)
            self._run(switch, "zebra", own)
        for switch in topology.switches:
            own = folder / switch.name
            self._await(own / "zserv.api", own / "zebra.log")
            for daemon in ("mgmtd", "bfdd", "bgpd"):
                wanted = (FRR_DAEMONS / daemon).exists() and (daemon != "bfdd" or self._bgp.bfd)
                if wanted:
                    self._run(switch, daemon, own)

    def vtysh(self, switch: Node) -> list[str]:
        """Return the command that opens a switch's own vtysh."""
        own = self._fabric.lease.folder / switch.name
        return ["vtysh", "--vty_socket", str(own), "--config_dir", str(own)]

    def _run(self, switch: Node, daemon: str, own: Path) -> None:
        command = ["nsenter", f"--net={NETNS_DIR / self._fabric.namespace(switch.name)}", "--"]
        if daemon == "bfdd":
            command += ["chrt", "-f", _BFD_PRIORITY]
        command += [str(FRR_DAEMONS / daemon), "-f", str(own / "frr.conf"), "-P", "0"]
        command += ["-z", str(own / "zserv.api"), "--vty_socket", str(own)]
        command += ["-i", str(own / f"{daemon}.pid"), "-u", _USER, "-g", _GROUP]
        if daemon == "bfdd":
            command += ["--bfdctl", str(own / "bfdd.sock")]
        with open(own / f"{daemon}.log", "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        self._processes.append((process, own / f"{daemon}.log"))
        self._fabric.lease.add_process(process.pid)

    def _await(self, path: Path, log: Path) -> None:
        deadline = time.monotonic() + _SOCKET_WAIT_S
        while not path.exists():
            self._check_alive()
            if time.monotonic() > deadline:
                raise WaitTimeout(f"{path} was not there in {_SOCKET_WAIT_S:g} s; {_tail(log)}")
            time.sleep(0.01)

    def _check_alive(self) -> None:
        for process, log in self._processes:
            if process.poll() is not None:
                raise RunFailed(
                    f"{log.stem} of {log.parent.name} ended with status {process.returncode}: "
                    f"{_tail(log)}"
                )

    def wait_ready(self) -> float:
        """Wait until every kernel has exactly the routes of the topology; return the seconds.

        Raises:
            WaitTimeout: some are missing or others are there; it says which.
            RunFailed: a daemon died.
        """
        fabric, started = self._fabric, time.monotonic()
        waiting = {switch: self.expected(switch) for switch in fabric.topology.switches}
        with contextlib.ExitStack() as stack:
            sockets = {node: stack.enter_context(fabric.netlink(node.name)) for node in waiting}
            while True:
                self._check_alive()
                wrong: list[str] = []
                for node, expected in list(waiting.items()):
                    found = self._routes(sockets[node])
                    if found == expected:
                        del waiting[node]
                    else:
                        wrong += self._differences(node, expected, found)
                taken = time.monotonic() - started
                if not waiting:
                    return taken
                if taken > self._bgp.ready_within:
                    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
                    raise WaitTimeout(
                        f"BGP was not ready in {self._bgp.ready_within:g} s: "
                        f"{'; '.join(wrong[:_SHOWN])}{more}"
                    )
                time.sleep(_POLL_S)

    def wait_until(self, name: str, holds: Callable[[Routes], bool]) -> None:
        """Wait until the BGP routes in a switch's kernel are as wished.

        Raises:
            WaitTimeout: they do not become so; it says what they are.
        """
        deadline = time.monotonic() + self._bgp.ready_within
        with self._fabric.netlink(name) as sock:
            while not holds(found := self._routes(sock)):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise WaitTimeout(f"{name} has the routes {found}")
                time.sleep(_POLL_S)

    def _routes(self, sock: NetlinkSocket) -> Routes:
        found: Routes = {}
        for family in self._fabric.topology.families:
            found |= kernel_routes(sock, family, RTPROT_BGP)
        return found

    def expected(self, switch: Node) -> Routes:
        """Return the routes that a switch's kernel must have, next hops in ECMP order."""
        topology, base = self._fabric.topology, self._fabric.lease.ifindex_base
        routes: Routes = {}
        for leaf in topology.switches:
            if leaf.role is not Role.LEAF or leaf.plane != switch.plane or leaf == switch:
                continue
            hops = tuple(
                base + (link.up_port if link.lower == switch else link.down_port)
                for link in topology.next_hops(switch, leaf)
            )
            for family in topology.families:
                prefix = topology.leaf_prefix4(leaf) if family == 4 else topology.leaf_prefix6(leaf)
                routes[str(prefix)] = hops
        return routes

    def _differences(self, node: Node, expected: Routes, found: Routes) -> list[str]:
        topology, base = self._fabric.topology, self._fabric.lease.ifindex_base

        def names(hops: tuple[int, ...]) -> str:
            links = [(topology.links[(hop - base) // 2], (hop - base) % 2) for hop in hops]
            return ", ".join(
                link.upper_interface if down else link.lower_interface for link, down in links
            )

        return [
            f"{node.name}: {prefix} has next hops [{names(found.get(prefix, ()))}], "
            f"not [{names(expected.get(prefix, ()))}]"
            for prefix in sorted(expected.keys() | found.keys())
            if found.get(prefix) != expected.get(prefix)
        ]

    def close(self) -> None:
        """End the daemons; the routes go with their namespaces."""
        for process, _ in self._processes:
            process.kill()
        for process, _ in self._processes:
            process.wait()


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "it has no log"
    return " | ".join(lines[-3:]) or "it said nothing"
