"""The veth pairs that are the fabric's links: made with chosen indexes, set for exact order.

Offloads: per-device NAPI comes with ``gro on`` and needs every TSO flag of the peer off. Without
it, two CPUs feeding one veth reorder a single path.
Source: drivers/net/veth.c, veth_skb_is_eligible_for_gro.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from fabric_emu.errors import CommandFailed
from fabric_emu.model.topology import Link, mac_address
from fabric_emu.net.encoding import encode, pack
from fabric_emu.net.netlink import CREATE, NLM_F_REQUEST, NetlinkSocket, attributes

_IFF_UP, _IFF_NOARP = 0x1, 0x80
_IFLA_OPERSTATE, _IF_OPER_UP = 16, 6
_LINK_HEADERS = 32
_SIOCETHTOOL = 0x8946
_ETHTOOL_STSO, _ETHTOOL_SGRO = 0x1F, 0x2C


def make(
    sock: NetlinkSocket, link: Link, base: int, fds: tuple[int, int], mtu: int, queue_packets: int
) -> None:
    """Queue the request that makes a link's veth pair, down.

    Args:
        sock: a socket in any namespace.
        link: the link; its ends get indexes ``base + port``.
        base: interface index of port 0.
        fds: namespaces of the lower and the upper end.
        mtu: IP MTU of both ends, bytes.
        queue_packets: ``txqueuelen``, which every class of the shaper takes over as its limit.
    """

    def end(port: int, name: str, fd: int) -> list[tuple[str, object]]:
        return [
            ("IFLA_IFNAME", name),
            ("IFLA_ADDRESS", mac_address(port)),
            ("IFLA_MTU", mtu),
            ("IFLA_TXQLEN", queue_packets),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
            ("IFLA_NET_NS_FD", fd),
        ]

    # Only the peer's own header carries its index to the kernel.
    own_end = end(link.up_port, link.lower_interface, fds[0])
    peer_end = end(link.down_port, link.upper_interface, fds[1])
    peer = pack(ifinfmsg, peer_end, index=base + link.down_port)
    data = pack(ifinfmsg.ifinfo.veth_data, [("VETH_INFO_PEER", peer)])
    info = pack(ifinfmsg.ifinfo, [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)])
    attributes = [*own_end, ("IFLA_LINKINFO", info)]
    request = encode(ifinfmsg, RTM_NEWLINK, CREATE, attributes, index=base + link.up_port)
    sock.queue(request, f"make link {link.name}")


def set_up(sock: NetlinkSocket, index: int, label: str, up: bool = True) -> None:
    """Queue the request that sets an interface up, or down.

    Down, it asks nobody for link addresses: packets that still come for it get as far as its port
    and are counted there. Else some are lost in queues of neighbours that the kernel has forgotten.
    """
    flags, change = (_IFF_UP if up else _IFF_NOARP), _IFF_UP | _IFF_NOARP
    request = encode(
        ifinfmsg, RTM_NEWLINK, NLM_F_REQUEST, (), index=index, flags=flags, change=change
    )
    sock.queue(request, f"set {label} {'up' if up else 'down'}")


def is_operational(sock: NetlinkSocket, index: int) -> bool:
    """Tell whether an interface sends: up, its peer too, and its queues at work."""
    request = encode(ifinfmsg, RTM_GETLINK, NLM_F_REQUEST, (), index=index)
    (answer,) = sock.ask([request])
    state = attributes(answer, _LINK_HEADERS).get(_IFLA_OPERSTATE, b"\0")
    return state[0] == _IF_OPER_UP


class Offloads:
    """Sets an interface's offloads; opens its socket in the calling thread's namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def set_for_order(self, interface: str) -> None:
        """Turn TSO off and GRO on.

        Raises:
            CommandFailed: the kernel refuses.
        """
        for command, value in ((_ETHTOOL_STSO, 0), (_ETHTOOL_SGRO, 1)):
            words = array.array("I", (command, value))
            request = struct.pack("16sP16x", interface.encode(), words.buffer_info()[0])
            try:
                fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
            except OSError as error:
                raise CommandFailed(f"offloads of {interface}: {error.strerror}") from None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
