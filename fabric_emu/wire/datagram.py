"""One received UDP datagram at a time, for compiled loops; ``udp`` reads many as columns.

Frames are rows of 98 bytes or more, from the Ethernet header on, cut anywhere.
"""

from __future__ import annotations

from fabric_emu.compiled import Bytes, compiled
from fabric_emu.wire.layout import (
    DESTINATION_PORT,
    ETHERTYPE,
    IP,
    IPV4,
    IPV4_FRAGMENT,
    IPV4_PROTOCOL,
    IPV4_TOS,
    IPV6,
    IPV6_NEXT_HEADER,
    UDP_LENGTH,
)
from fabric_emu.wire.udp import LEAST_DATAGRAM, UDP

WITHIN = 44
"""Bytes from the UDP header on that lie within every row."""

_IPV4_TYPE, _IPV4_UDP = IPV4.ethertype, IPV4.udp
_IPV6_TYPE, _IPV6_UDP = IPV6.ethertype, IPV6.udp


@compiled
def number(frame: Bytes, at: int, size: int) -> int:
    """Return so many bytes from ``at`` on as one number; eight make it a signed one."""
    value = 0
    for byte in range(at, at + size):
        value = value << 8 | frame[byte]
    return value


@compiled
def udp_of(frame: Bytes, length: int, port: int) -> int:
    """Return where the UDP header of a datagram to a port is; 0 if the frame is no such thing.

    What ``UdpColumns.found`` says. The datagram is as long as its own length says, 20 bytes at
    least, and the frame holds it all; the row, its first ``WITHIN`` bytes.

    Args:
        frame: a row.
        length: bytes of the whole frame.
        port: UDP port.
    """
    ethertype, version = number(frame, ETHERTYPE, 2), frame[IP]
    if ethertype == _IPV4_TYPE:
        fragment = number(frame, IPV4_FRAGMENT, 2) & 0x3FFF
        if version != 0x45 or fragment or frame[IPV4_PROTOCOL] != UDP:
            return 0
        udp = _IPV4_UDP
    elif ethertype == _IPV6_TYPE:
        if version >> 4 != 6 or frame[IPV6_NEXT_HEADER] != UDP:
            return 0
        udp = _IPV6_UDP
    else:
        return 0
    whole = LEAST_DATAGRAM <= number(frame, udp + UDP_LENGTH, 2) <= length - udp
    return udp if whole and number(frame, udp + DESTINATION_PORT, 2) == port else 0


@compiled
def traffic_class(frame: Bytes) -> int:
    """Return the code point and, in the low two bits, the congestion bits of an IP header."""
    if frame[IP] >> 4 == 4:
        return number(frame, IPV4_TOS, 1)
    return number(frame, IP, 2) >> 4 & 0xFF
