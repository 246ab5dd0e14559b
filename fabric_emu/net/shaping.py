"""Link rates: HTB on every interface with a control and a data class, and the BPF hooks.

The requests of an interface differ in nothing but its index, so each is encoded once and patched.
The hooks of all interfaces of a node lead to the same two blocks of filters, so that a program is
put there once per node: the kernel looks through a list of every block there is for each new one
(``indir_dev_add`` in net/core/flow_offload.c).

Fidelity: HTB lets a burst of one millisecond pass an idle link unshaped; a real port serialises
every frame.
"""

from __future__ import annotations

import functools
import struct

from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from fabric_emu.net.encoding import encode
from fabric_emu.net.netlink import (
    CREATE,
    NLM_F_REQUEST,
    NetlinkSocket,
    TrafficControlMessage,
)

HANDLE = 0x10000
ROOT_CLASS, CONTROL_CLASS, DATA_CLASS = HANDLE + 0x1, HANDLE + 0x10, HANDLE + 0x20
CONTROL_SHARE = 0.1
"""Guaranteed to the control class; both classes may use the whole link when the other is idle."""

_TC_H_ROOT = 0xFFFFFFFF
_CLSACT, _CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_INGRESS_BLOCK, _EGRESS_BLOCK = 1, 2
_INDEX_OF_BLOCKS = 0xFFFFFFFF
_ETH_P_ALL_BE = 0x0300
_ACT_DIRECT = 1
_TICK_NS = 64
_LINKLAYER_ETHERNET = 1
_INDEX_OFFSET = 20


def burst_bytes(rate_bps: int, frame_bytes: int) -> int:
    """Return HTB's burst: one millisecond of the link, at least two frames.

    A burst must cover the timer's lateness or the link falls short of its rate.
    """
    return max(rate_bps // 8 // 1000, 2 * frame_bytes)


def shape(sock: NetlinkSocket, index: int, rate_bps: int, frame_bytes: int, label: str) -> None:
    """Queue the requests that limit an interface to its link's rate.

    Args:
        sock: socket in the interface's namespace.
        index: interface index.
        rate_bps: of the link.
        frame_bytes: largest frame.
        label: the interface, for errors.
    """
    for request in (_root(), *_classes(rate_bps, frame_bytes, CREATE)):
        sock.queue(_patched(request, index), f"HTB on {label}")


def reshape(sock: NetlinkSocket, index: int, rate_bps: int, frame_bytes: int, label: str) -> None:
    """Queue the requests that give a shaped interface another rate; what it holds stays queued."""
    for request in _classes(rate_bps, frame_bytes, NLM_F_REQUEST):
        sock.queue(_patched(request, index), f"rate of {label}")


def make_hooks(sock: NetlinkSocket, index: int, label: str) -> None:
    """Queue the request for the places where programs can be put.

    A program put there at once waits for an RCU grace period, a later one finds it passed
    (``mini_qdisc_pair_swap`` in net/sched/sch_generic.c).
    """
    sock.queue(_patched(_clsact(), index), f"clsact on {label}")


def attach(sock: NetlinkSocket, ingress_fd: int, egress_fd: int, label: str) -> None:
    """Queue the requests that put BPF programs on the hooks of all interfaces of a namespace.

    Args:
        sock: socket in the namespace; one of its interfaces at least has its hooks.
        ingress_fd, egress_fd: the programs.
        label: the node, for errors.
    """
    for block, fd in ((_INGRESS_BLOCK, ingress_fd), (_EGRESS_BLOCK, egress_fd)):
        sock.queue(_filter(block, fd), f"BPF program on {label}")


def _patched(request: bytes, index: int) -> bytes:
    return request[:_INDEX_OFFSET] + struct.pack("=I", index) + request[_INDEX_OFFSET + 4 :]


@functools.lru_cache(maxsize=1)
def _root() -> bytes:
    init = {"version": 3, "rate2quantum": 10, "defcls": DATA_CLASS & 0xFFFF}
    init |= {"debug": 0, "direct_pkts": 0}
    attributes = [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": [("TCA_HTB_INIT", init)]})]
    return encode(tcmsg, RTM_NEWQDISC, CREATE, attributes, handle=HANDLE, parent=_TC_H_ROOT)


@functools.lru_cache(maxsize=64)
def _classes(rate_bps: int, frame_bytes: int, flags: int) -> tuple[bytes, ...]:
    classes = (
        (ROOT_CLASS, HANDLE, 1.0, 0),
        (CONTROL_CLASS, ROOT_CLASS, CONTROL_SHARE, 0),
        (DATA_CLASS, ROOT_CLASS, 1 - CONTROL_SHARE, 1),
    )
    burst = burst_bytes(rate_bps, frame_bytes)
    requests = []
    for classid, parent, share, priority in classes:
        own = round(rate_bps * share)
        options = _class_options(own, rate_bps, burst, frame_bytes, priority)
        attributes = [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": options})]
        request = encode(tcmsg, RTM_NEWTCLASS, flags, attributes, handle=classid, parent=parent)
        requests.append(request)
    return tuple(requests)


def _class_options(
    rate_bps: int, ceil_bps: int, burst: int, frame_bytes: int, priority: int
) -> list[tuple[str, object]]:
    rate, ceil = rate_bps // 8, ceil_bps // 8
    low = (1 << 32) - 1
    parameters = {
        "rate": min(rate, low),
        "ceil": min(ceil, low),
        "rate___reserved": _LINKLAYER_ETHERNET,
        "ceil___reserved": _LINKLAYER_ETHERNET,
        "buffer": _ticks(burst, rate),
        "cbuffer": _ticks(burst, ceil),
        "quantum": frame_bytes,
        "prio": priority,
    }
    options: list[tuple[str, object]] = [("TCA_HTB_PARMS", parameters)]
    # A tc_ratespec has 32 bits for bytes per second: 34 Gbit/s.
    if rate > low:
        options.append(("TCA_HTB_RATE64", rate))
    if ceil > low:
        options.append(("TCA_HTB_CEIL64", ceil))
    return options


def _ticks(size_bytes: int, rate_bytes_per_s: int) -> int:
    return max(1, min(size_bytes * 10**9 // rate_bytes_per_s // _TICK_NS, (1 << 32) - 1))


@functools.lru_cache(maxsize=1)
def _clsact() -> bytes:
    attributes = [
        ("TCA_KIND", "clsact"),
        ("TCA_INGRESS_BLOCK", _INGRESS_BLOCK),
        ("TCA_EGRESS_BLOCK", _EGRESS_BLOCK),
    ]
    message, parent = TrafficControlMessage, _CLSACT
    return encode(message, RTM_NEWQDISC, CREATE, attributes, handle=_CLSACT_HANDLE, parent=parent)


@functools.lru_cache(maxsize=64)
def _filter(block: int, fd: int) -> bytes:
    options = [
        ("TCA_BPF_FD", fd),
        ("TCA_BPF_NAME", "fabric_emu"),
        ("TCA_BPF_FLAGS", _ACT_DIRECT),
    ]
    attributes = [("TCA_KIND", "bpf"), ("TCA_OPTIONS", {"attrs": options})]
    info = 1 << 16 | _ETH_P_ALL_BE
    request = encode(tcmsg, RTM_NEWTFILTER, CREATE, attributes, handle=1, parent=block, info=info)
    return _patched(request, _INDEX_OF_BLOCKS)
