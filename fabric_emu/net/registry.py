"""Leases: which run owns which namespaces and processes on this machine.

A lease is a JSON file under /run/fabric-emu, written before what it names is made. A run holds
its lease's lock while it lives; ``clean`` takes the lock of dead ones and frees exactly what
they name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from fabric_emu.errors import FabricError, HostUnfit
from fabric_emu.net import namespaces

LEASE_DIR = Path("/run/fabric-emu")
IFINDEX_BLOCK = 1 << 16
_LEASES_MAX = 1000


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


@dataclass
class Lease:
    """A live run's claim on names and numbers.

    Attributes:
        number: small and unique on the machine while the run lives; names carry it.
        namespaces: names under /run/netns that this run made or is about to make.
        processes: (pid, start time) of its children.
    """

    number: int
    path: Path
    _fd: int
    namespaces: list[str] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """Prefix of every namespace name of the run, such as ``fe1-``."""
        return f"fe{self.number}-"

    @property
    def ifindex_base(self) -> int:
        """First interface index of the run's block of ``IFINDEX_BLOCK``."""
        return 1_000_000 + self.number * IFINDEX_BLOCK

    @classmethod
    def take(cls) -> Lease:
        """Take the lowest free number.

        Raises:
            HostUnfit: no right to write under /run.
            FabricError: every number is taken.
        """
        try:
            LEASE_DIR.mkdir(mode=0o755, exist_ok=True)
            for number in range(1, _LEASES_MAX):
                path = LEASE_DIR / f"{number}.json"
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                # A file with something in it was left by a dead run: its number stays taken
                # until clean has freed what it names.
                if _lock(fd) and os.fstat(fd).st_size == 0 and _is_file(fd, path):
                    lease = cls(number, path, fd)
                    lease.save()
                    return lease
                os.close(fd)
        except PermissionError:
            raise HostUnfit(
                f"{LEASE_DIR} cannot be written without root", "run with sudo"
            ) from None
        except OSError as error:
            raise FabricError(f"{LEASE_DIR} cannot be written: {error.strerror}") from None
        raise FabricError(f"all {_LEASES_MAX} leases are taken; fabric-emu clean frees dead ones")

    def save(self) -> None:
        """Write the lease; called before what it newly names is made."""
        content = json.dumps(
            {
                "pid": os.getpid(),
                "started": start_time(os.getpid()),
                "namespaces": self.namespaces,
                "processes": self.processes,
                "ifindex_base": self.ifindex_base,
            }
        ).encode()
        # A reader must never see half a lease: extend first, then cut.
        os.pwrite(self._fd, content.ljust(os.fstat(self._fd).st_size), 0)

    @property
    def folder(self) -> Path:
        """Where the run's processes keep their sockets and files; see ``make_folder``."""
        return self.path.with_suffix(".d")

    def make_folder(self) -> Path:
        """Make the run's own folder, which goes with the lease."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o755)
        return self.folder

    def add_process(self, pid: int) -> None:
        """Name a child, so that ``clean`` ends it should this run die."""
        started = start_time(pid)
        if started is not None:
            self.processes.append((pid, started))
            self.save()

    def release(self) -> None:
        """Give the lease back; everything it names is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


def _lock(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_file(fd: int, path: Path) -> bool:
    """Tell whether ``path`` still is the file that was opened (nobody has removed it since)."""
    try:
        return os.stat(path).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class Freed:
    """What ``clean`` freed of one dead run."""

    lease: str
    namespaces: tuple[str, ...]
    processes: tuple[int, ...]


def clean() -> list[Freed]:
    """Free what dead runs left: the processes and namespaces that their leases name, nothing else.

    Raises:
        HostUnfit: no right to read or remove them.
    """
    freed = []
    for path in sorted(LEASE_DIR.glob("*.json")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except PermissionError:
            raise HostUnfit(f"{path} cannot be opened without root", "run with sudo") from None
        try:
            if _lock(fd) and _is_file(fd, path):
                freed.append(_free(path, os.pread(fd, 1 << 24, 0)))
        finally:
            os.close(fd)
    return freed


def _free(path: Path, content: bytes) -> Freed:
    # An empty file means the run died before it had made anything.
    try:
        lease = json.loads(content) if content.strip() else {"namespaces": [], "processes": []}
        processes, names = lease["processes"], lease["namespaces"]
    except (ValueError, KeyError, TypeError):
        raise FabricError(f"{path} is no lease of ours; remove it once it is not needed") from None
    ended = []
    for pid, started in processes:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            # The handle pins the process; only then does its start time prove who it is.
            if start_time(pid) == started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                ended.append(pid)
            os.close(handle)
    removed = []
    for name in names:
        if (namespaces.NETNS_DIR / name).exists():
            namespaces.remove(name)
            removed.append(name)
    shutil.rmtree(path.with_suffix(".d"), ignore_errors=True)
    path.unlink(missing_ok=True)
    return Freed(path.name, tuple(removed), tuple(ended))
