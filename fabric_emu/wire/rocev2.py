"""RoCEv2 packets as scapy layers: RETH and ImmDt beside scapy's BTH, AETH and CNP.

Importing this module binds the layers, so that any dissected frame to UDP port 4791 shows its
extension headers. A flow's packets are defined here once; ``template`` multiplies them.

Source: InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17; Linux
``include/rdma/ib_verbs.h`` (UDP source ports).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.fields import IntField, LongField, XIntField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from fabric_emu.wire.layout import EXTENSION_HEADERS, ROCEV2_PORT, Opcode, Syndrome

__all__ = [
    "AETH",
    "BTH",
    "ECT0",
    "RETH",
    "CNPPadding",
    "Envelope",
    "ImmDt",
    "Opcode",
    "Syndrome",
    "acknowledge_frame",
    "cnp_frame",
    "flow_label_to_source_port",
    "source_port",
    "write_frame",
]

ECT0 = 0b10
_FIRST_ENTROPY_PORT = 0xC000


class RETH(Packet):
    """RDMA extended transport header: where a WRITE puts, or a READ takes, its bytes."""

    name = "RETH"
    fields_desc = [  # noqa: RUF012
        LongField("address", 0),
        XIntField("r_key", 0),
        IntField("dma_length", 0),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return ImmDt when the opcode below carries an immediate after the RETH."""
        opcode = getattr(self.underlayer, "opcode", None)
        if EXTENSION_HEADERS.get(opcode or 0) == ("RETH", "ImmDt"):
            return ImmDt
        return Raw


class ImmDt(Packet):
    """Immediate data, handed to the receiver's completion queue."""

    name = "ImmDt"
    fields_desc = [XIntField("immediate", 0)]  # noqa: RUF012


def _bind_extension_headers() -> None:
    layers = {"RETH": RETH, "ImmDt": ImmDt, "AETH": AETH}
    # A layer bound last gives its opcode to frames built without one, so the usual go last.
    usual = (Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_ACKNOWLEDGE)
    for opcode in sorted(EXTENSION_HEADERS, key=usual.__contains__):
        first = EXTENSION_HEADERS[opcode][0]
        if first in layers:
            bind_layers(BTH, layers[first], opcode=int(opcode))


_bind_extension_headers()


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What lies under a transport header: Ethernet, IP and UDP.

    Attributes:
        source: IPv4 or IPv6 address as text; ``destination`` is of the same version.
        source_port: UDP source port, the entropy that ECMP hashes.
        ttl: IPv4 time to live or IPv6 hop limit.
        flow_label: of IPv6; ignored with IPv4.
    """

    source_mac: str
    destination_mac: str
    source: str
    destination: str
    source_port: int
    destination_port: int = ROCEV2_PORT
    dscp: int = 0
    ecn: int = ECT0
    ttl: int = 64
    flow_label: int = 0

    def frame(self, *layers: Packet) -> Packet:
        """Return Ethernet/IP/UDP with the given layers on top; the UDP checksum is zero.

        The layers become part of the frame: hand each to one frame only.
        """
        tos = self.dscp << 2 | self.ecn
        ip: Packet
        if ip_address(self.source).version == 4:
            ip = IP(src=self.source, dst=self.destination, ttl=self.ttl, tos=tos, flags="DF")
        else:
            ip = IPv6(
                src=self.source, dst=self.destination, hlim=self.ttl, tc=tos, fl=self.flow_label
            )
        udp = UDP(sport=self.source_port, dport=self.destination_port, chksum=0)
        # scapy's ``/`` copies everything below at each step: three times slower than this.
        frame = Ether(src=self.source_mac, dst=self.destination_mac)
        top: Packet = frame
        for layer in (ip, udp, *layers):
            top.add_payload(layer)
            top = layer
        return frame


def write_frame(
    envelope: Envelope,
    *,
    qpn: int,
    psn: int,
    payload: bytes,
    opcode: int = Opcode.RC_RDMA_WRITE_ONLY,
    address: int = 0,
    r_key: int = 0,
    dma_length: int | None = None,
    immediate: int = 0,
    ack_request: bool = False,
) -> Packet:
    """Return one data frame (WRITE, SEND, or anything with the headers its opcode asks for).

    The payload is padded to four bytes; scapy computes the ICRC when the frame is built.

    Args:
        qpn: queue pair number at the destination.
        dma_length: bytes of the whole message, where the opcode has a RETH; the payload's
            length unless given.
        immediate: used where the opcode has immediate data.

    Raises:
        ValueError: the opcode needs a header this function does not build.
    """
    headers = EXTENSION_HEADERS.get(opcode, ())
    length = len(payload) if dma_length is None else dma_length
    pad = -len(payload) % 4
    bth = BTH(opcode=opcode, dqpn=qpn, psn=psn, ackreq=int(ack_request), padcount=pad)
    layers: list[Packet] = [bth]
    for header in headers:
        if header == "RETH":
            layers.append(RETH(address=address, r_key=r_key, dma_length=length))
        elif header == "ImmDt":
            layers.append(ImmDt(immediate=immediate))
        else:
            raise ValueError(f"opcode {opcode:#04x} needs {header}, which a data frame has not")
    if payload:
        layers.append(Raw(payload + bytes(pad)))
    return envelope.frame(*layers)


def acknowledge_frame(
    envelope: Envelope, *, qpn: int, psn: int, syndrome: int = Syndrome.ACK, msn: int = 0
) -> Packet:
    """Return an ACK, or with another syndrome a NAK, for the requester's queue pair ``qpn``.

    Args:
        psn: last packet acknowledged, or for a sequence error the one expected.
        msn: messages completed.
    """
    bth = BTH(opcode=int(Opcode.RC_ACKNOWLEDGE), dqpn=qpn, psn=psn)
    return envelope.frame(bth, AETH(syndrome=int(syndrome), msn=msn))


def cnp_frame(envelope: Envelope, *, qpn: int) -> Packet:
    """Return a congestion notification packet for the sender's queue pair ``qpn``."""
    return envelope.frame(BTH(opcode=int(Opcode.CNP), becn=1, dqpn=qpn), CNPPadding())


def flow_label_to_source_port(label: int) -> int:
    """Return the UDP source port, 0xC000 to 0xFFFF, for a 20-bit IPv6 flow label.

    Source: Linux ``rdma_flow_label_to_udp_sport``.
    """
    return (label & 0x3FFF) ^ (label >> 14 & 0x3F) | _FIRST_ENTROPY_PORT


def source_port(local_qpn: int, remote_qpn: int) -> int:
    """Return the UDP source port of a queue pair without a flow label; symmetric in its ends.

    Source: Linux ``rdma_calc_flow_label``, ``rdma_get_udp_sport``.
    """
    mixed = local_qpn * remote_qpn
    mixed ^= mixed >> 20
    mixed ^= mixed >> 40
    return flow_label_to_source_port(mixed & 0xFFFFF)
