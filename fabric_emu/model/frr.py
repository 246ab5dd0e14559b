"""FRR's configuration of every switch: the AS plan of RFC 7938 on a topology."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.topology import Node, Role, Topology

TOP_AS, FIRST_POD_AS, FIRST_LEAF_AS = 65534, 64601, 65001
_FIRST_LONG_AS = 4_200_000_000
_SHORT_LEAVES = TOP_AS - FIRST_LEAF_AS


def as_number(topology: Topology, switch: Node) -> int:
    """Return a switch's private AS number: the top tier shares one, the spines of a pod another.

    Every leaf has its own, of four octets when there are more leaves than private ones of two.

    Source: RFC 7938, section 5.2.2; RFC 6996.
    """
    if switch.role is Role.SUPER_SPINE or (switch.role is Role.SPINE and topology.tiers == 2):
        return TOP_AS
    if switch.role is Role.SPINE:
        return FIRST_POD_AS + switch.pod
    first = FIRST_LEAF_AS if topology.total_leaves <= _SHORT_LEAVES else _FIRST_LONG_AS
    return first + switch.number - 1


def configuration(topology: Topology, bgp: Bgp, switch: Node) -> str:
    """Return what FRR's daemons of a switch read."""
    environment = Environment(
        loader=PackageLoader("fabric_emu.model"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    of = {4: topology.leaf_prefix4, 6: topology.leaf_prefix6}
    leaf = switch.role is Role.LEAF
    down = [link for link in topology.downlinks[switch.name] if link.lower.role is not Role.HOST]
    interfaces = [link.lower_interface for link in topology.uplinks[switch.name]]
    return environment.get_template("frr.conf.j2").render(
        switch=switch,
        bgp=bgp,
        bfd_ms=round(bgp.bfd_interval * 1e3),
        asn=as_number(topology, switch),
        router_id=topology.address4(switch),
        interfaces=[*interfaces, *(link.upper_interface for link in down)],
        networks={family: of[family](switch) if leaf else None for family in topology.families},
    )


def configurations(topology: Topology, bgp: Bgp) -> dict[str, str]:
    """Return the configuration of every switch, by name."""
    return {switch.name: configuration(topology, bgp, switch) for switch in topology.switches}
