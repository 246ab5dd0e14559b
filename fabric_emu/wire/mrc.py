"""MRC on the wire: the headers of its answers, for scapy.

Multipath Reliable Connection keeps RoCEv2's BTH and puts a RETH into every write, so that packets
can be placed in any order.

Source: Open Compute Project, OCP-Multipath-Reliable-Connection (README, mrc.h, mrc_ctl.h), and
MRC 1.0 for the opcode numbers.
Fidelity: the headers behind the BTH of SACK and NACK hold what the specification says they carry
(the reflected entropy value and congestion mark, a 64-bit bitmap, received bytes), in a layout of
our own.
"""

from __future__ import annotations

from scapy.contrib.roce import BTH
from scapy.fields import BitField, ByteField, IntField, LongField, ShortField, XLongField
from scapy.packet import Packet, bind_layers

from fabric_emu.wire.mrc_layout import MrcOpcode, NackCode


class MrcSack(Packet):
    """Selective acknowledgement; the BTH's PSN is the first packet not yet received.

    Fields: the packet answered, its entropy value and whether it was marked; ``bitmap`` of the
    packets from the BTH's PSN on, the lowest bit first; ``received_bytes`` so far.
    """

    name = "MRC SACK"
    fields_desc = [  # noqa: RUF012
        IntField("echo_psn", 0),
        ShortField("entropy", 0),
        BitField("marked", 0, 1),
        BitField("reserved", 0, 15),
        XLongField("bitmap", 0),
        LongField("received_bytes", 0),
    ]


class MrcNack(Packet):
    """Negative acknowledgement of the packet that the BTH's PSN names."""

    name = "MRC NACK"
    fields_desc = [  # noqa: RUF012
        ShortField("entropy", 0),
        ByteField("code", NackCode.TRIMMED),
        ByteField("reserved", 0),
    ]


class MrcProbe(Packet):
    """A probe of one entropy value, and its answer, which names the value probed."""

    name = "MRC probe"
    fields_desc = [ShortField("entropy", 0), ShortField("reserved", 0)]  # noqa: RUF012


for _opcode, _layer in (
    (MrcOpcode.SACK, MrcSack),
    (MrcOpcode.NACK, MrcNack),
    (MrcOpcode.PROBE, MrcProbe),
    (MrcOpcode.PROBE_ACK, MrcProbe),
):
    bind_layers(BTH, _layer, opcode=int(_opcode))
