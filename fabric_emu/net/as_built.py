"""Whether a live fabric's interfaces are still set as they were built: what keeps packets in order.

Both settings can be changed under a run, and a machine may turn the second on for every new
interface: ``net.core.rps_default_mask``.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct

from fabric_emu.errors import CommandFailed
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric

_SIOCETHTOOL, _ETHTOOL_GGRO = 0x8946, 0x2B
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # alike on all architectures
_FSCONFIG_CMD_CREATE = 6

_libc = ctypes.CDLL(None, use_errno=True)


def altered_interfaces(fabric: Fabric) -> list[str]:
    """Return the interfaces, as ``leaf1:spine2``, with GRO off or receive packet steering on.

    Without GRO a veth has no queue of its own and hands packets to whichever processor sends them;
    with packet steering another processor takes them over. Either way two processors may serve one
    path, and change its order.

    Raises:
        CommandFailed: the kernel does not tell.
    Source: drivers/net/veth.c, veth_xmit; Documentation/networking/scaling.rst.
    """
    ends: dict[str, list[str]] = {}
    for link in fabric.topology.links:
        ends.setdefault(link.lower.name, []).append(link.lower_interface)
        ends.setdefault(link.upper.name, []).append(link.upper_interface)
    found = []
    for node, interfaces in ends.items():
        try:
            with namespaces.inside(fabric.namespace_fds[node]):
                found += [f"{node}:{name}" for name in _altered(interfaces)]
        except OSError as error:
            raise CommandFailed(f"settings of {node}'s interfaces: {error.strerror}") from None
    return found


def _altered(interfaces: list[str]) -> list[str]:
    """Return those of the calling thread's namespace that are altered."""
    sysfs = _open_sysfs()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            return [name for name in interfaces if not _has_gro(sock, name) or _steers(sysfs, name)]
    finally:
        os.close(sysfs)


def _has_gro(sock: socket.socket, interface: str) -> bool:
    words = array.array("I", (_ETHTOOL_GGRO, 0))
    request = struct.pack("16sP16x", interface.encode(), words.buffer_info()[0])
    fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return bool(words[1])


def _steers(sysfs: int, interface: str) -> bool:
    path = f"class/net/{interface}/queues/rx-0/rps_cpus"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=sysfs)
    except FileNotFoundError:  # a kernel without packet steering
        return False
    with open(fd, encoding="ascii") as file:
        return bool(file.read().strip().strip("0,"))


def _open_sysfs() -> int:
    """Return a folder that shows sysfs of the calling thread's namespace, mounted nowhere."""
    context = _checked(_libc.syscall(_FSOPEN, b"sysfs", 1))
    try:
        _checked(_libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0))
        return _checked(_libc.syscall(_FSMOUNT, context, 1, 0))
    finally:
        os.close(context)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
