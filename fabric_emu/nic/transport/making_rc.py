"""Reliable connections out of a recipe."""

from __future__ import annotations

from fabric_emu.compiled import Bools
from fabric_emu.model.messages import MessageGraph
from fabric_emu.nic.congestion.dcqcn import CnpGate, Dcqcn, DcqcnSettings
from fabric_emu.nic.transport.rc import Rc, RcSettings
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.space import PacketSpace


def make_rc(recipe: TransportRecipe, graph: MessageGraph, space: PacketSpace, local: Bools) -> Rc:
    """Return the transport of a worker's hosts."""
    settings = RcSettings(recipe.window_packets, recipe.timeout_s, recipe.retries, recipe.ack_every)
    ports = recipe.source_port[:, 0]
    if not recipe.dcqcn:
        return Rc(graph, space, local, ports, settings)
    n = space.queue_pairs
    constants = DcqcnSettings.scaled(recipe.line_rate_bps, recipe.scale)
    return Rc(
        graph,
        space,
        local,
        ports,
        settings,
        Dcqcn(n, recipe.line_rate_bps, constants),
        CnpGate(n, constants.cnp_interval_s),
    )
