"""The parent's side of captures: what is captured, where it is kept, what came of it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fabric_emu.capture.recorder import Recorded, Recording, Tap
from fabric_emu.errors import RunFailed, ScenarioError
from fabric_emu.model.mistakes import did_you_mean
from fabric_emu.model.topology import Link, Node, Role, Topology
from fabric_emu.net.fabric import Fabric
from fabric_emu.processes import Child
from fabric_emu.results.folder import safe_name, write_subfolder

FOLDER = "captures"
_ETHERNET_BYTES = 14


@dataclass(frozen=True)
class _End:
    """An interface to listen on; of a link's ends only what arrives, so that no frame is twice."""

    node: Node
    interface: str
    link: Link
    outgoing: bool


class Captures:
    """Captures of every scheme of a run; their files have no name until they are delivered.

    Args:
        topology: of the scenario.
        names: of links, such as ``leaf1-spine2``, or hosts; doubles count once.
        several_seeds: whether file names tell the seed.
        near: a folder on the disk that has room for them, or that is still to be made.

    Raises:
        ScenarioError: there is no such link or host.
    """

    def __init__(
        self, topology: Topology, names: Sequence[str], several_seeds: bool, near: Path
    ) -> None:
        known = _known(topology)
        self._ends: dict[str, list[_End]] = {}
        for name in names:
            if name not in known:
                raise ScenarioError("--pcap", name, _expected(topology), did_you_mean(name, known))
            right, ends = known[name]
            self._ends[right] = ends
        self._several_seeds = several_seeds
        self._near = near
        self._files: dict[str, IO[bytes]] = {}
        self.lines: list[str] = []

    @contextlib.contextmanager
    def attached(self, fabric: Fabric) -> Iterator[dict[str, Any]]:
        """Capture while the block runs; yield what the scheme's summary is to hold, filled then.

        Key: ``captures``, a list of ``file``, ``of``, ``frames``, ``dropped`` (lost to a full
        capture ring; the fabric carried them) and ``error``.

        Raises:
            RunFailed: the process that captures died.
        """
        noted: dict[str, Any] = {}
        suffix = safe_name(fabric.scheme.name, "scheme")
        if self._several_seeds:
            suffix += f"-seed{fabric.seed}"
        opened = {name: self._new_file(f"{name}-{suffix}.pcapng") for name in self._ends}
        frame_bytes = fabric.topology.mtu + _ETHERNET_BYTES
        recordings = [
            Recording(opened[name].fileno(), tuple(_tap(fabric, end) for end in ends), frame_bytes)
            for name, ends in self._ends.items()
        ]
        child = Child.spawn("fabric_emu.capture", recordings, [one.fd for one in recordings])
        try:
            fabric.lease.add_process(child.pid)
            _answer(child, "the capture to open its rings")
            yield noted
            child.tell("stop")
            recorded = _answer(child, "the capture's last frames")
        finally:
            child.close()
        noted["captures"] = [
            self._note(f"{name}-{suffix}.pcapng", name, one)
            for name, one in zip(self._ends, recorded, strict=True)
        ]

    def deliver(self, folder: Path) -> None:
        """Write the captures into the folder of the run.

        Raises:
            FabricError: they cannot be written.
        """
        if self._files:
            write_subfolder(folder, FOLDER, self._files)

    def close(self) -> None:
        """Give up what has not been delivered."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _new_file(self, name: str) -> IO[bytes]:
        folder = self._near.absolute()
        while not folder.is_dir():
            folder = folder.parent
        self._files[name] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        return self._files[name]

    def _note(self, file: str, name: str, recorded: Recorded) -> dict[str, Any]:
        line = f"{FOLDER}/{file}: {recorded.frames:,} frames"
        if recorded.dropped:
            line += f"; {recorded.dropped:,} more went by uncaptured"
        if recorded.error:
            line += f"; writing it stopped early: {recorded.error}"
        self.lines.append(line)
        return {
            "file": f"{FOLDER}/{file}",
            "of": name,
            "frames": recorded.frames,
            "dropped": recorded.dropped,
            "error": recorded.error,
        }


def _answer(child: Child, awaited: str) -> Any:
    answer = child.hear(awaited)
    if isinstance(answer, OSError):
        raise RunFailed(f"capture: {answer}")
    if isinstance(answer, Exception):
        raise answer
    return answer


def _known(topology: Topology) -> dict[str, tuple[str, list[_End]]]:
    """Return every name with the one it is known by and what it stands for."""
    found: dict[str, tuple[str, list[_End]]] = {}
    nics: dict[str, list[_End]] = {}
    for link in topology.links:
        ends = [
            _End(link.lower, link.lower_interface, link, outgoing=False),
            _End(link.upper, link.upper_interface, link, outgoing=False),
        ]
        number = link.name.removeprefix(f"{link.lower.name}-{link.upper.name}")
        for name in (link.name, f"{link.upper.name}-{link.lower.name}{number}"):
            found[name] = (link.name, ends)
        if link.lower.role is Role.HOST:
            nic = _End(link.lower, link.lower_interface, link, outgoing=True)
            nics.setdefault(link.lower.name, []).append(nic)
    return found | {name: (name, ends) for name, ends in nics.items()}


def _expected(topology: Topology) -> str:
    return f"a link such as {topology.links[-1].name}, or a host such as {topology.hosts[0].name}"


def _tap(fabric: Fabric, end: _End) -> Tap:
    what = "both directions" if end.outgoing else "what arrives"
    return Tap(
        name=f"{end.node.name}:{end.interface}",
        description=f"interface {end.interface} of {end.node.name}, {what}",
        namespace=fabric.namespace(end.node.name),
        interface=end.interface,
        rate_bps=end.link.rate_bps,
        outgoing=end.outgoing,
    )
