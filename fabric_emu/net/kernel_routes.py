"""What a kernel's routing table holds, read back."""

from __future__ import annotations

import socket
import struct

from pyroute2.netlink.rtnl import RTM_GETROUTE

from fabric_emu.net.encoding import encode
from fabric_emu.net.netlink import NLM_F_REQUEST, NetlinkSocket, RouteMessage, attributes

_NLM_F_DUMP = 0x300
_RTA_DST, _RTA_OIF, _RTA_MULTIPATH = 1, 4, 9
_RTM_HEADER = struct.Struct("=BBBBBBBBI")
RTPROT_STATIC, RTPROT_BGP = 4, 186

Routes = dict[str, tuple[int, ...]]


def kernel_routes(sock: NetlinkSocket, family: int, protocol: int) -> Routes:
    """Return the interface indexes of each prefix of a protocol's routes, in ECMP order."""
    number = socket.AF_INET if family == 4 else socket.AF_INET6
    request = encode(RouteMessage, RTM_GETROUTE, NLM_F_REQUEST | _NLM_F_DUMP, [], family=number)
    found: Routes = {}
    for message in sock.dump(request):
        _, length, _, _, _, by, *_ = _RTM_HEADER.unpack_from(message, 16)
        known = attributes(message, 28)
        if by != protocol or _RTA_DST not in known:
            continue
        prefix = f"{socket.inet_ntop(number, known[_RTA_DST])}/{length}"
        if _RTA_MULTIPATH in known:
            hops = _hops(known[_RTA_MULTIPATH])
        else:
            hops = struct.unpack("=I", known[_RTA_OIF])
        found[prefix] = found.get(prefix, ()) + hops
    return found


def _hops(data: bytes) -> tuple[int, ...]:
    """Return the interface index of each ``struct rtnexthop``."""
    found, offset = [], 0
    while offset + 8 <= len(data):
        length, _, _, index = struct.unpack_from("=HBBi", data, offset)
        found.append(index)
        offset += (length + 3) & ~3
    return tuple(found)
