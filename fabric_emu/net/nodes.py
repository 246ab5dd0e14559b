"""Mininet's view of the fabric: nodes whose shells start on demand, links made elsewhere.

``pingAll``, ``CLI(net)``, ``node.cmd`` and ``node.popen`` work as in any Mininet network; only
the slow ways of building one (a shell per node, a command per address) are left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from subprocess import Popen
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node

from fabric_emu.net.namespaces import NETNS_DIR


class FabricNode(Node):  # type: ignore[misc]
    """A named namespace as a Mininet node; its shell starts when first asked for."""

    def __init__(
        self,
        name: str,
        namespace: str = "",
        started: Callable[[int], None] = lambda pid: None,
        vtysh: Sequence[str] = (),
        **params: Any,
    ) -> None:
        self._namespace = NETNS_DIR / namespace
        self._started = started
        self._vtysh = vtysh
        self._wanted = False
        super().__init__(name, **params)

    @classmethod
    def checkSetup(cls) -> None:  # noqa: N802
        """Leave out Mininet's check for ifconfig, which nothing here calls."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """Start the shell, but not before something is to run in it."""
        if not self._wanted:
            return
        self.inNamespace = False  # the namespace exists: mnexec must not make another
        try:
            super().startShell(mnopts)
        finally:
            self.inNamespace = True
        self._started(self.pid)

    def _popen(self, cmd: list[str], **params: Any) -> Popen[bytes]:
        return super()._popen(["nsenter", f"--net={self._namespace}", "--", *cmd], **params)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        """Send a command to the node's shell; see Mininet."""
        self._want_shell()
        super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's shell and return its output; see Mininet."""
        self._want_shell()
        return super().cmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's namespace without its shell; see Mininet."""
        kwargs.setdefault("mncmd", [])
        process = super().popen(*args, **kwargs)
        self._started(process.pid)
        return process

    def _want_shell(self) -> None:
        if not self.shell and not self._wanted:
            self._wanted = True
            self.startShell()
            if self._vtysh:  # a plain `vtysh` is this switch's own
                super().cmd(f'vtysh() {{ command {shlex.join(self._vtysh)} "$@"; }}')

    def terminate(self) -> None:
        """End the shell if there is one."""
        if self.shell:
            super().terminate()

    # Mininet starts and stops nodes it believes to be OpenFlow switches; these have nothing to do.

    def start(self, controllers: Any) -> None:
        """Nothing to start: the kernel forwards."""

    def connected(self) -> bool:
        """Nothing to connect to."""
        return True


class FabricIntf(Intf):  # type: ignore[misc]
    """An interface that exists already, with what is known of it."""

    def __init__(
        self,
        name: str,
        node: Any = None,
        port: int | None = None,
        link: Any = None,
        mac: str | None = None,
        ip: str | None = None,
        **params: Any,
    ) -> None:
        self.node, self.name, self.link = node, name, link
        self.mac, self.ip, self.prefixLen = mac, ip, 32 if ip else None
        self.params = params
        node.addIntf(self, port=port, moveIntfFn=lambda name, node: None)


class FabricLink(Link):  # type: ignore[misc]
    """A veth pair that exists already.

    Args:
        node1, node2: the ends.
        first, second: keyword arguments of each end's ``FabricIntf``.
    """

    def __init__(
        self, node1: Any, node2: Any, first: dict[str, Any], second: dict[str, Any], **_: Any
    ) -> None:
        self.intf1 = FabricIntf(node=node1, link=self, **first)
        self.intf2 = FabricIntf(node=node2, link=self, **second)

    def delete(self) -> None:
        """Leave the pair to its namespaces: it goes with them."""

    def stop(self) -> None:
        """Leave the pair to its namespaces: it goes with them."""


class FabricNet(Mininet):  # type: ignore[misc]
    """A Mininet network over nodes and links that exist."""

    def __init__(self) -> None:
        super().__init__(
            topo=None, switch=FabricNode, host=FabricNode, link=FabricLink, controller=None
        )
        self.built = True

    @classmethod
    def init(cls) -> None:
        """Leave out Mininet's own start: it raises limits of the whole machine."""
