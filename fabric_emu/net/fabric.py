"""The live fabric: one owner of every namespace, link, route, shaper and program of a run."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fabric_emu import interrupts
from fabric_emu.errors import CommandFailed, FabricError, HostUnfit, RunFailed, ScenarioError
from fabric_emu.model.control_plane import Bgp, ControlPlane, Static
from fabric_emu.model.queue_pair import QPN_BASE
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Link, Node, Role, Topology, hash_seed, mac_address
from fabric_emu.net import links, namespaces, shaping
from fabric_emu.net.bgp import Routers
from fabric_emu.net.convergence import Convergence
from fabric_emu.net.faults import LiveLink
from fabric_emu.net.netlink import CREATE, NetlinkSocket
from fabric_emu.net.registry import IFINDEX_BLOCK, Lease
from fabric_emu.net.routing import Routing
from fabric_emu.net.selftest import SEED_SYSCTL, has_resilient_groups
from fabric_emu.switch.adverts import AdvertSender, advert_plan
from fabric_emu.switch.policies import SwitchPlan
from fabric_emu.switch.ports import PortConstants, PortTable
from fabric_emu.switch.switches import SwitchTable

if TYPE_CHECKING:
    from fabric_emu.net.nodes import FabricNet

QUEUE_PACKETS = 20_000
"""Packets a shaper may hold: far more than ``drop_at``, so that the port's limit rules."""


class Fabric:
    """A running fabric, as a context manager.

    Args:
        topology: what to build.
        scheme: what the switches do.
        seed: the run's seed; every switch's hash seed derives from it.
        hash_seeds: ``per-switch`` or ``same``; left out: as the scheme says, else per switch.
        queue_pairs: how many queue pairs get per-port counters; their numbers start at
            ``QPN_BASE``.
        shaped: False leaves the shapers out: links carry what the processors can.
        frame_bytes: largest frame that the hosts will send, which thresholds left out follow from;
            one that fills the MTU when left out.
        control_plane: as the scheme says when left out, else static.

    Attributes:
        ports: the port table, live.
        plan: what the switches do, in numbers.
        adverts: who sends the adverts of global load balancing; None under other policies.
        routers: FRR's daemons, under BGP.
        convergence: which links are down, and who knows.
        ready_s: how long BGP took from the start of its daemons to all routes.
        namespace_fds: file descriptor of each node's namespace.
        hash_seeds_set: whether this kernel took the hash seeds.

    Fidelity: switches forward in the Linux kernel on shared processors; a hop takes a few
    microseconds whatever the link rate stands for.
    """

    def __init__(
        self,
        topology: Topology,
        scheme: Scheme | None = None,
        *,
        seed: int = 1,
        hash_seeds: Literal["per-switch", "same"] | None = None,
        queue_pairs: int = 1024,
        shaped: bool = True,
        frame_bytes: int | None = None,
        control_plane: ControlPlane | None = None,
    ) -> None:
        self.topology = topology
        self.scheme = scheme or Scheme.named("ecmp")
        self.seed = seed
        self.control_plane = control_plane or self.scheme.switch.control_plane or Static()
        plane = self.control_plane
        after_s = plane.convergence if isinstance(plane, Static) else None
        self.convergence = Convergence(self, after_s, routed=isinstance(plane, Bgp))
        self.routers: Routers | None = None
        self.ready_s: float | None = None
        self.hash_seeds = hash_seeds or self.scheme.switch.hash_seeds or "per-switch"
        self.queue_pairs = queue_pairs
        self.shaped = shaped
        self.namespace_fds: dict[str, int] = {}
        self.hash_seeds_set = namespaces.has_sysctl(SEED_SYSCTL)
        self.plan = SwitchPlan.of(topology, self.scheme.switch, frame_bytes)
        self.adverts: AdvertSender | None = None
        self.ports: PortTable
        self.lease: Lease
        self._sysctls_at_start: dict[str, str | None] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Build everything.

        Raises:
            HostUnfit: no root, no BPF, or the kernel lacks something.
            CommandFailed: the kernel refused a request.
        """
        if 2 * len(self.topology.links) > IFINDEX_BLOCK:
            raise FabricError(
                f"{len(self.topology.links)} links: a live fabric has at most {IFINDEX_BLOCK // 2}"
            )
        try:
            with interrupts.held() as check:
                self._build_or_free(check)
        except BaseException:
            self.close()  # for an interrupt that came after all was built
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BaseException:
            self.close()  # for an interrupt that came before it had begun
            raise

    def close(self) -> None:
        """Free everything the fabric owns; a second call does nothing."""
        try:
            with interrupts.held():
                self._stack.close()
        except BaseException:
            with interrupts.held():  # for an interrupt that came before the first hold
                self._stack.close()
            raise

    # Building.

    def _build_or_free(self, check: Callable[[], None]) -> None:
        try:
            self._build(check)
        except BaseException:
            self._stack.close()
            raise

    def _build(self, check: Callable[[], None]) -> None:
        topology = self.topology
        namespaces.prepare()
        if topology.ecmp.resilient and not has_resilient_groups():
            raise HostUnfit(
                "this kernel has no resilient nexthop groups (Linux before 5.13)",
                "a newer kernel, or a scenario without topology.ecmp.resilient",
            )
        _raise_file_limit(3 * len(topology.nodes) + 256)
        self.lease = Lease.take()
        self._stack.callback(self.lease.release)
        self._stack.callback(self.convergence.close)
        base = self.lease.ifindex_base
        self.ports = PortTable(
            PortConstants(
                ifindex_base=base,
                port_count=2 * len(topology.links),
                flow_count=self.queue_pairs,
                qpn_base=QPN_BASE,
                check_payloads=int(self.scheme.nic.check_payloads),
                control_classid=shaping.CONTROL_CLASS,
                data_classid=shaping.DATA_CLASS,
                **self.plan.constants,
            ),
            self.plan.sizes,
        )
        self._stack.callback(self.ports.close)
        self.plan.apply(self.ports)
        check()

        sockets: dict[str, NetlinkSocket] = {}
        with contextlib.ExitStack() as building:
            building.enter_context(namespaces.restored())
            self._make_namespaces(sockets, building, check)
            self._make_links(sockets, base)
            check()
            self._attach_programs(sockets)
            routing = self.routing(sockets.__getitem__)
            for node in topology.nodes.values():
                routing.addresses(node)
            for link in topology.links:
                routing.neighbours(link)
                routing.link_locals(link)
            for node in topology.nodes.values():
                routing.routes(node)
                sockets[node.name].flush()
                check()
        if isinstance(self.control_plane, Bgp):
            self._start_bgp(self.control_plane)
            check()
        if self.plan.balancing.glb_interval_s:
            self._send_adverts()

    def routing(self, socket_of: Callable[[str], NetlinkSocket], flags: int = CREATE) -> Routing:
        """Return what queues addresses, neighbours and routes of this fabric."""
        bgp = isinstance(self.control_plane, Bgp)
        dead_for = self.convergence.dead_for
        base = self.lease.ifindex_base
        return Routing(self.topology, base, socket_of, flags, bgp=bgp, dead_for=dead_for)

    def _start_bgp(self, bgp: Bgp) -> None:
        self.routers = Routers(self, bgp)
        self._stack.callback(self.routers.close)
        started = time.monotonic()
        self.routers.start()
        self.routers.wait_ready()
        self.ready_s = time.monotonic() - started

    def _send_adverts(self) -> None:
        plan = advert_plan(self.plan, self.ports, self.namespace)
        if plan.senders:
            self.adverts = AdvertSender(plan, self.lease.add_process)
            self._stack.callback(self.adverts.close)

    def _make_namespaces(
        self,
        sockets: dict[str, NetlinkSocket],
        building: contextlib.ExitStack,
        check: Callable[[], None],
    ) -> None:
        names = [self.namespace(node.name) for node in self.topology.nodes.values()]
        self.lease.namespaces = names
        self.lease.save()
        namespaces.take_names(names, lambda name: self._stack.callback(namespaces.remove, name))
        for node, name in zip(self.topology.nodes.values(), names, strict=True):
            fd = namespaces.create(name)
            self._stack.callback(os.close, fd)
            self.namespace_fds[node.name] = fd
            self._write_sysctls(node)
            sock = NetlinkSocket(node.name)
            building.callback(sock.close)
            sockets[node.name] = sock
            links.set_up(sock, 1, "loopback")
            check()

    def _write_sysctls(self, node: Node) -> None:
        switch = self.scheme.switch
        forwards = node.role is not Role.HOST
        settings: dict[str, object] = {
            "net/ipv4/conf/all/rp_filter": 0,
            "net/ipv4/conf/default/rp_filter": 0,
            "net/ipv4/ip_forward": int(forwards),
        }
        bgp = forwards and isinstance(self.control_plane, Bgp)
        if 6 in self.topology.families or bgp:  # BGP's sessions are IPv6 whatever they carry
            settings |= {
                # Without link-local addresses nothing is sent that was not asked for.
                "net/ipv6/conf/default/addr_gen_mode": 1,
                "net/ipv6/conf/all/accept_ra": 0,
                "net/ipv6/conf/default/accept_ra": 0,
                "net/ipv6/conf/all/disable_ipv6": 0,
                "net/ipv6/conf/all/forwarding": int(forwards),
            }
        else:
            settings["net/ipv6/conf/all/disable_ipv6"] = 1
        if forwards:
            for family in self.topology.families:
                settings[f"net/ipv{family}/fib_multipath_hash_policy"] = switch.hash_policy
                if switch.hash_policy == 3:
                    settings[f"net/ipv{family}/fib_multipath_hash_fields"] = switch.hash_fields
            if self.hash_seeds_set:
                settings[SEED_SYSCTL] = hash_seed(self.seed, node, self.hash_seeds)
        for path, value in settings.items():
            # All new namespaces start alike, so what the first has by itself the others have too.
            if path not in self._sysctls_at_start:
                self._sysctls_at_start[path] = namespaces.read_sysctl(path)
            at_start = self._sysctls_at_start[path]
            if at_start is None and path.startswith("net/ipv6/conf"):
                continue
            if at_start != str(value):
                namespaces.write_sysctl(path, value)

    def _make_links(self, sockets: dict[str, NetlinkSocket], base: int) -> None:
        topology, fds = self.topology, self.namespace_fds
        maker = next(iter(sockets.values()))
        for link in topology.links:
            pair = (fds[link.lower.name], fds[link.upper.name])
            links.make(maker, link, base, pair, topology.mtu, QUEUE_PACKETS)
        maker.flush()
        ends = self._ends()
        for name, own in ends.items():
            namespaces.enter(fds[name])
            offloads = links.Offloads()
            try:
                for _, interface, _ in own:
                    offloads.set_for_order(interface)
            finally:
                offloads.close()
        frame = topology.mtu + 14
        for name, own in ends.items():
            sock = sockets[name]
            for link, interface, port in own:
                shaping.make_hooks(sock, base + port, interface)
                if self.shaped:
                    shaping.shape(sock, base + port, link.rate_bps, frame, interface)
                links.set_up(sock, base + port, interface)
            sock.flush()

    def _attach_programs(self, sockets: dict[str, NetlinkSocket]) -> None:
        programs = self.ports.bpf.program_fds
        for node in self.topology.nodes.values():
            ingress = programs[self._ingress_program(node)]
            shaping.attach(sockets[node.name], ingress, programs["port_egress"], node.name)

    def _ingress_program(self, node: Node) -> str:
        if node.role is Role.HOST:
            return "host_ingress"
        return "switch_ingress" if node in self.plan.switches else "port_ingress"

    def _ends(self) -> dict[str, list[tuple[Link, str, int]]]:
        """Return each node's link ends as (link, interface name, port)."""
        found: dict[str, list[tuple[Link, str, int]]] = {name: [] for name in self.topology.nodes}
        for link in self.topology.links:
            found[link.lower.name].append((link, link.lower_interface, link.up_port))
            found[link.upper.name].append((link, link.upper_interface, link.down_port))
        return found

    # Use.

    @property
    def switches(self) -> SwitchTable:
        """What the switches do and have done, live: those that choose next hops themselves."""
        return self.ports.switches

    def namespace(self, node: str) -> str:
        """Return the name of a node's namespace, as ``ip netns`` lists it."""
        return self.lease.prefix + node

    @contextlib.contextmanager
    def netlink(self, node: str) -> Iterator[NetlinkSocket]:
        """Open a netlink socket in a node's namespace for a while."""
        with namespaces.inside(self.namespace_fds[node]):
            sock = NetlinkSocket(node)
        try:
            yield sock
        finally:
            sock.close()

    def check_whole(self) -> None:
        """Check that no daemon has died and nobody has taken away or set down a part from outside.

        Raises:
            RunFailed: somebody has; names the part.
        """
        if self.routers:
            self.routers.check_alive()
        for node, own in self._ends().items():
            name = self.namespace(node)
            try:
                named = os.stat(namespaces.NETNS_DIR / name).st_ino
            except FileNotFoundError:
                named = None
            if named != os.fstat(self.namespace_fds[node]).st_ino:
                raise RunFailed(f"namespace {name} was deleted under the run")
            with self.netlink(node) as sock:
                for _, interface, port in own:
                    try:
                        up = links.is_operational(sock, self.lease.ifindex_base + port)
                    except CommandFailed:
                        up = False
                    if not up:
                        raise RunFailed(
                            f"interface {interface} of {node} was set down or deleted under the run"
                        )

    def link(self, one: str, other: str, number: int = 1) -> LiveLink:
        """Return the link between two nodes, to be made faulty; parallel ones count from 1.

        Raises:
            ScenarioError: there is no such link.
        """
        found = [
            link
            for link in self.topology.links
            if {link.lower.name, link.upper.name} == {one, other}
        ]
        if not 1 <= number <= len(found):
            raise ScenarioError("link", f"{one}-{other}", "two nodes that a link joins")
        return LiveLink(self, found[number - 1])

    @cached_property
    def net(self) -> FabricNet:
        """The fabric as a ``mininet.net.Mininet``."""
        from fabric_emu.net.nodes import FabricNet

        net = FabricNet()
        self._stack.callback(net.stop)
        for node in self.topology.nodes.values():
            add = net.addHost if node.role is Role.HOST else net.addSwitch
            # Mininet hands out addresses of its own unless it is given one.
            add(
                node.name,
                namespace=self.namespace(node.name),
                started=self.lease.add_process,
                vtysh=self.routers.vtysh(node) if self.routers and add == net.addSwitch else (),
                ip=None,
                inNamespace=True,
            )
        for link in self.topology.links:
            ends = []
            for node, name, port in (
                (link.lower, link.lower_interface, link.up_port),
                (link.upper, link.upper_interface, link.down_port),
            ):
                of = self.topology.address4
                if 4 not in self.topology.families:
                    of = self.topology.address6  # type: ignore[assignment]
                address = str(of(node, link.upper.plane))
                ends.append({"name": name, "mac": mac_address(port), "ip": address})
            net.addLink(link.lower.name, link.upper.name, first=ends[0], second=ends[1])
        return net


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise FabricError(f"{wanted} open files are needed, the limit is {hard} (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
