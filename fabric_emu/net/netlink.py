"""Netlink in batches: one raw socket per namespace carries what ``encoding`` makes.

Sent one by one and answered one by one, the messages of a large fabric take ten seconds; queued
and acknowledged once per batch they take a tenth of that.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence

from pyroute2.netlink import NLA_F_NESTED, nlmsg
from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTFILTER
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from fabric_emu.errors import CommandFailed, FabricError, HostUnfit

NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
CREATE = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL
REPLACE = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
ASK_DOCTOR = "fabric-emu doctor says how to get it"
"""The remedy where the kernel lacks something."""

_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLA_TYPE_MASK = 0x3FFF
_HEADER = struct.Struct("=IHHII")
_SEQUENCE, _SEQUENCE_OFFSET = struct.Struct("=I"), 8
_BATCH_BYTES = 64 * 1024
_QUESTIONS = 32
"""Asked at a time: each answer occupies a page or two of the socket's receive buffer."""


class NexthopMessage(nlmsg):  # type: ignore[misc]
    """``struct nhmsg`` and its attributes, which pyroute2 does not have.

    Source: include/uapi/linux/nexthop.h.
    """

    prefix = "NHA_"
    fields = (("family", "B"), ("scope", "B"), ("protocol", "B"), ("resvd", "B"), ("flags", "I"))
    nla_map = (
        ("NHA_UNSPEC", "none"),
        ("NHA_ID", "uint32"),
        ("NHA_GROUP", "cdata"),
        ("NHA_GROUP_TYPE", "uint16"),
        ("NHA_BLACKHOLE", "flag"),
        ("NHA_OIF", "uint32"),
        ("NHA_GATEWAY", "target"),
        ("NHA_ENCAP_TYPE", "uint16"),
        ("NHA_ENCAP", "cdata"),
        ("NHA_GROUPS", "flag"),
        ("NHA_MASTER", "uint32"),
        ("NHA_FDB", "flag"),
        ("NHA_RES_GROUP", "cdata", NLA_F_NESTED),
    )


class ResilientGroup(nlmsg):  # type: ignore[misc]
    """What ``NHA_RES_GROUP`` holds; timers in hundredths of a second (``USER_HZ``).

    Source: include/uapi/linux/nexthop.h.
    """

    prefix = "NHA_RES_GROUP_"
    fields = ()
    nla_map = (
        ("NHA_RES_GROUP_PAD", "none"),
        ("NHA_RES_GROUP_BUCKETS", "uint16"),
        ("NHA_RES_GROUP_IDLE_TIMER", "uint32"),
        ("NHA_RES_GROUP_UNBALANCED_TIMER", "uint32"),
    )


class RouteMessage(rtmsg):  # type: ignore[misc]
    """``struct rtmsg`` with the attributes that came after those pyroute2 has.

    Source: include/uapi/linux/rtnetlink.h.
    """

    nla_map = (
        *rtmsg.nla_map,
        ("RTA_PAD", "none"),
        ("RTA_UID", "uint32"),
        ("RTA_TTL_PROPAGATE", "uint8"),
        ("RTA_IP_PROTO", "uint8"),
        ("RTA_SPORT", "be16"),
        ("RTA_DPORT", "be16"),
        ("RTA_NH_ID", "uint32"),
    )


class TrafficControlMessage(tcmsg):  # type: ignore[misc]
    """``struct tcmsg`` with the attributes that came after those pyroute2 has.

    Source: include/uapi/linux/rtnetlink.h.
    """

    nla_map = (
        *tcmsg.nla_map,
        ("TCA_PAD", "none"),
        ("TCA_DUMP_INVISIBLE", "flag"),
        ("TCA_CHAIN", "uint32"),
        ("TCA_HW_OFFLOAD", "uint8"),
        ("TCA_INGRESS_BLOCK", "uint32"),
        ("TCA_EGRESS_BLOCK", "uint32"),
    )


class NetlinkSocket:
    """A route netlink socket of the namespace that the calling thread is in.

    Requests are queued with a label, sent together by ``flush`` and checked one by one; a failed
    one raises with its label.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._queue: list[tuple[bytes, str]] = []

    def queue(self, request: bytes, label: str) -> None:
        """Queue one request; ``label`` says in an error what was being done."""
        self._queue.append((request, label))

    def flush(self) -> None:
        """Send what is queued and wait for the kernel's word.

        Raises:
            CommandFailed: the first refused request, with its label and errno.
            HostUnfit: the same, of something that this kernel has not.
        """
        queue, self._queue = self._queue, []
        batch: list[tuple[bytes, str]] = []
        size = 0
        for request in queue:
            size += len(request[0])
            if size > _BATCH_BYTES and batch:
                self._send(batch)
                batch, size = [], len(request[0])
            batch.append(request)
        if batch:
            self._send(batch)

    def _send(self, batch: list[tuple[bytes, str]]) -> None:
        data = bytearray().join([request for request, _ in batch])
        first = self._sequence + 1
        self._sequence += len(batch)
        offset = last = 0
        for sequence, (request, _) in enumerate(batch, first):
            _SEQUENCE.pack_into(data, offset + _SEQUENCE_OFFSET, sequence)
            last, offset = offset, offset + len(request)
        # Errors always come back; a plain acknowledgement is asked of the last one only.
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, last)
        _HEADER.pack_into(data, last, length, kind, flags | NLM_F_ACK, sequence, 0)
        self._socket.send(data)
        failed: FabricError | None = None
        while True:
            for sequence, error in _answers(self._socket.recv(1 << 18)):
                if error and failed is None:
                    request, label = batch[sequence - first]
                    failed = _refused(
                        f"{self._owner}: {label}: "
                        f"{os.strerror(error)} ({errno.errorcode.get(error, error)})",
                        _HEADER.unpack_from(request)[1],
                        error,
                    )
                if sequence == self._sequence:
                    if failed:
                        raise failed
                    return

    def ask(self, requests: Sequence[bytes]) -> list[bytes]:
        """Send requests that the kernel answers with one message each; return the answers.

        Raises:
            CommandFailed: the first refused request, with its errno.
        """
        answers = []
        for start in range(0, len(requests), _QUESTIONS):
            batch = requests[start : start + _QUESTIONS]
            data = bytearray()
            for request in batch:
                self._sequence += 1
                length, kind, flags, _, _ = _HEADER.unpack_from(request)
                data += _HEADER.pack(length, kind, flags, self._sequence, 0)
                data += request[_HEADER.size :]
            self._socket.send(data)
            answers += [self._socket.recv(1 << 16) for _ in batch]
        for answer in answers:
            for _, error in _answers(answer):
                raise CommandFailed(
                    f"{self._owner}: {os.strerror(error)} ({errno.errorcode.get(error, error)})"
                )
        return answers

    def dump(self, request: bytes) -> list[bytes]:
        """Send a request for a dump and return its messages.

        Raises:
            CommandFailed: the kernel refused it.
        """
        self._sequence += 1
        length, kind, flags, _, _ = _HEADER.unpack_from(request)
        head = _HEADER.pack(length, kind, flags, self._sequence, 0)
        self._socket.send(head + request[_HEADER.size :])
        found: list[bytes] = []
        while True:
            data = self._socket.recv(1 << 18)
            for _, error in _answers(data):
                raise CommandFailed(
                    f"{self._owner}: {os.strerror(error)} ({errno.errorcode.get(error, error)})"
                )
            offset = 0
            while offset + _HEADER.size <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
                if kind == _NLMSG_DONE:
                    return found
                found.append(data[offset : offset + length])
                offset += (length + 3) & ~3

    def close(self) -> None:
        """Close the socket; what is queued is forgotten."""
        self._queue.clear()
        self._socket.close()


def _refused(what: str, kind: int, error: int) -> FabricError:
    """Return the error for a refused request; of kinds that a kernel lacks it says so.

    Source: net/core/rtnetlink.c (EOPNOTSUPP); net/sched/sch_api.c and cls_api.c (ENOENT).
    """
    lacking = error == errno.EOPNOTSUPP
    if lacking or (error == errno.ENOENT and kind in (RTM_NEWQDISC, RTM_NEWTFILTER)):
        return HostUnfit(f"{what}: this kernel does not know it", ASK_DOCTOR)
    return CommandFailed(what)


def attributes(message: bytes, offset: int) -> dict[int, bytes]:
    """Return the attributes of an answer by type.

    Args:
        message: one netlink message.
        offset: where they start: behind the header (16 bytes) and the family's own.
    """
    found = {}
    while offset + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, offset)
        found[kind & _NLA_TYPE_MASK] = message[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def _answers(data: bytes) -> Iterable[tuple[int, int]]:
    """Yield sequence number and positive errno (0: done) of each answer in a datagram."""
    offset = 0
    while offset + _HEADER.size + 4 <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, offset)
        if kind == _NLMSG_ERROR:
            yield sequence, -struct.unpack_from("=i", data, offset + _HEADER.size)[0]
        offset += (length + 3) & ~3
