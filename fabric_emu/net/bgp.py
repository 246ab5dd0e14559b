"""FRR in the switches' namespaces: its daemons, and the wait until every kernel has its routes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from fabric_emu.errors import HostUnfit, RunFailed, WaitTimeout
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.frr import configuration
from fabric_emu.model.topology import Node
from fabric_emu.net.kernel_routes import RTPROT_BGP, Routes, expected_routes, leaf_routes
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
_ZEBRA_SOCKET = "zserv.api"


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
        self._processes: dict[Node, list[tuple[subprocess.Popen[bytes], Path]]] = {}
        self._restarts: list[Future[None]] = []
        self._starter = ThreadPoolExecutor(1, "start FRR")

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
            self._run_clients(switch, folder / switch.name)

    def _run_clients(self, switch: Node, own: Path) -> None:
        """Start the daemons that talk to a switch's zebra, once it listens."""
        self._await(own / _ZEBRA_SOCKET, own / "zebra.log")
        for daemon in ("mgmtd", "bfdd", "bgpd"):
            wanted = (FRR_DAEMONS / daemon).exists() and (daemon != "bfdd" or self._bgp.bfd)
            if wanted:
                self._run(switch, daemon, own)

    def kill(self, switch: Node) -> None:
        """End a switch's daemons at once, as a loss of power does."""
        wait(self._restarts)
        for process, _ in self._processes.pop(switch):
            process.kill()
            process.wait()
        (self._fabric.lease.folder / switch.name / _ZEBRA_SOCKET).unlink(missing_ok=True)

    def restart(self, switch: Node) -> None:
        """Start a switch's daemons again, in a thread; ``check_alive`` says when that failed."""

        def start() -> None:
            own = self._fabric.lease.folder / switch.name
            self._run(switch, "zebra", own)
            self._run_clients(switch, own)

        self._restarts.append(self._starter.submit(start))

    def vtysh(self, switch: Node) -> list[str]:
        """Return the command that opens a switch's own vtysh."""
        own = self._fabric.lease.folder / switch.name
        return ["vtysh", "--vty_socket", str(own), "--config_dir", str(own)]

    def _run(self, switch: Node, daemon: str, own: Path) -> None:
        command = ["nsenter", f"--net={NETNS_DIR / self._fabric.namespace(switch.name)}", "--"]
        # Whoever starts them may run in real time himself.
        command += ["chrt", *(["-f", _BFD_PRIORITY] if daemon == "bfdd" else ["-o", "0"])]
        command += [str(FRR_DAEMONS / daemon), "-f", str(own / "frr.conf"), "-P", "0"]
        command += ["-z", str(own / _ZEBRA_SOCKET), "--vty_socket", str(own)]
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
        self._processes.setdefault(switch, []).append((process, own / f"{daemon}.log"))
        self._fabric.lease.add_process(process.pid)

    def _await(self, path: Path, log: Path) -> None:
        deadline = time.monotonic() + _SOCKET_WAIT_S
        while not path.exists():
            self.check_alive()
            if time.monotonic() > deadline:
                raise WaitTimeout(f"{path} was not there in {_SOCKET_WAIT_S:g} s; {_tail(log)}")
            time.sleep(0.01)

    def check_alive(self) -> None:
        """Check that all daemons run.

        Raises:
            RunFailed: one has ended, or could not be started again.
        """
        for restart in self._restarts:
            if restart.done():
                restart.result()
        for process, log in itertools.chain.from_iterable(list(self._processes.values())):
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
        waiting = {
            switch: expected_routes(fabric.topology, fabric.lease.ifindex_base, switch, frozenset())
            for switch in fabric.topology.switches
        }
        with contextlib.ExitStack() as stack:
            sockets = {node: stack.enter_context(fabric.netlink(node.name)) for node in waiting}
            while True:
                self.check_alive()
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
                self.check_alive()
                if time.monotonic() > deadline:
                    raise WaitTimeout(f"{name} has the routes {found}")
                time.sleep(_POLL_S)

    def _routes(self, sock: NetlinkSocket) -> Routes:
        return leaf_routes(sock, self._fabric.topology, RTPROT_BGP)

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
        self._starter.shutdown(cancel_futures=True)
        processes = [process for process, _ in itertools.chain(*self._processes.values())]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "it has no log"
    return " | ".join(lines[-3:]) or "it said nothing"
