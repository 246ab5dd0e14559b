"""Named network namespaces: make, enter, remove; sysctls inside them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fabric_emu.errors import CommandFailed, FabricError, HostUnfit

NETNS_DIR = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_SHARED, _MS_REC = 4096, 1 << 20, 16384
_MNT_DETACH = 2
_OWN = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Bring the calling thread back to its network namespace at the end."""
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        # A thread that has not left needs no right to come back.
        if os.stat(_OWN).st_ino != os.fstat(home).st_ino:
            _call("setns", home, _CLONE_NEWNET)
        os.close(home)


def enter(namespace_fd: int) -> None:
    """Move the calling thread into a namespace; use inside ``restored()``."""
    _call("setns", namespace_fd, _CLONE_NEWNET)


@contextlib.contextmanager
def inside(namespace_fd: int) -> Iterator[None]:
    """Run a block in a namespace."""
    with restored():
        enter(namespace_fd)
        yield


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Run a block in a new namespace that has no name and goes with the block.

    Raises:
        HostUnfit: no right to make namespaces.
    """
    with restored():
        _leave_for_new()
        yield


def prepare() -> None:
    """Make /run/netns a shared mount, as iproute2 does, so that all processes see new names.

    Raises:
        HostUnfit: no right to do so.
    """
    try:
        NETNS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        target = str(NETNS_DIR).encode()
        try:
            _call("mount", b"", target, b"none", _MS_SHARED | _MS_REC, None)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _call("mount", target, target, b"none", _MS_BIND | _MS_REC, None)
            _call("mount", b"", target, b"none", _MS_SHARED | _MS_REC, None)
    except PermissionError:
        raise HostUnfit("network namespaces need root", "run with sudo") from None


def take_names(names: Iterable[str], registered: Callable[[str], object]) -> None:
    """Take names for namespaces to come.

    They are names of one file: where /run is on disk, hundreds of new files take as long to make
    as the namespaces themselves.

    Args:
        names: the names.
        registered: called with each name as soon as it exists, so that its owner removes it
            whatever happens next.

    Raises:
        FabricError: a name is taken.
        HostUnfit: no right to write to /run/netns.
    """
    first: Path | None = None
    for name in names:
        path = NETNS_DIR / name
        try:
            if first is None:
                flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(path, flags, 0o444))
                first = path
            else:
                os.link(first, path)
        except FileExistsError:
            raise FabricError(
                f"namespace {name} exists already; "
                "if a dead run left it, fabric-emu clean removes it"
            ) from None
        registered(name)


def create(name: str) -> int:
    """Make the namespace of a taken name, enter it, and return its file descriptor.

    Call inside ``restored()``.

    Raises:
        HostUnfit: no right to make namespaces.
        CommandFailed: the kernel refuses to give it the name.
    """
    path = NETNS_DIR / name
    _leave_for_new()
    try:
        _call("mount", _OWN.encode(), str(path).encode(), b"none", _MS_BIND, None)
    except PermissionError:
        raise HostUnfit("network namespaces need root", "run with sudo") from None
    except OSError as error:
        raise CommandFailed(f"namespace {name}: {error.strerror}") from None
    return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)


def _leave_for_new() -> None:
    try:
        _call("unshare", _CLONE_NEWNET)
    except PermissionError:
        raise HostUnfit("network namespaces need root", "run with sudo") from None
    except OSError as error:
        remedy = "boot a kernel with CONFIG_NET_NS=y"
        raise HostUnfit(f"no new network namespace ({error.strerror})", remedy) from None


def remove(name: str) -> None:
    """Remove a named namespace; nothing happens when it is gone already."""
    path = NETNS_DIR / name
    with contextlib.suppress(OSError):
        _call("umount2", str(path).encode(), _MNT_DETACH)
    path.unlink(missing_ok=True)


def write_sysctl(path: str, value: object) -> None:
    """Write a sysctl of the namespace the calling thread is in, such as ``net/ipv4/ip_forward``.

    Raises:
        HostUnfit: this kernel has no such sysctl.
        CommandFailed: it refuses the value.
    """
    try:
        fd = os.open(f"/proc/sys/{path}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise HostUnfit(f"this kernel has no sysctl {path}", "a newer kernel") from None
    try:
        os.write(fd, str(value).encode())
    except OSError as error:
        raise CommandFailed(f"sysctl {path} = {value}: {error.strerror}") from None
    finally:
        os.close(fd)


def read_sysctl(path: str) -> str | None:
    """Read a sysctl of the namespace the calling thread is in; None where this kernel has none."""
    try:
        fd = os.open(f"/proc/sys/{path}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, 4096).decode().strip()
    finally:
        os.close(fd)


def has_sysctl(path: str) -> bool:
    """Tell whether this kernel knows a sysctl."""
    return os.path.exists(f"/proc/sys/{path}")
