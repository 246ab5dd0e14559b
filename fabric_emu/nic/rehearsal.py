"""A worker's first calls, made before the run: they take many times as long as later ones.

The first call of a compiled function works out the types of all that it is given.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fabric_emu.model.collectives import permutation
from fabric_emu.nic.formats import FrameFormat
from fabric_emu.nic.ring import HEADER_BYTES
from fabric_emu.nic.transport.packets import Kind, Packets
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.space import PacketSpace

_PACKETS = 4
_TURN_S = 1e-3


def rehearse_transport(recipe: TransportRecipe, payload: int) -> None:
    """Let two hosts that are not there send each other a message of a few packets."""
    graph = permutation([0, 1], _PACKETS * payload, 1)
    space = PacketSpace.of(graph.source, graph.destination, graph.size_bytes, payload)
    ports = recipe.source_port[np.arange(space.queue_pairs) % len(recipe.source_port)]
    here = np.ones(2, np.bool_)
    transport = replace(recipe, source_port=ports).make(graph, space, here)
    room = np.ones(2, np.int64)
    for turn in range(_PACKETS):
        now_s = turn * _TURN_S
        transport.receive(transport.transmit(now_s, room), now_s)


def rehearse_frames(frames: FrameFormat, queue_pair: int) -> None:
    """Write and read a packet of a queue pair that the worker sends on."""
    packet = Packets.of(Kind.DATA, np.array([queue_pair]))
    built = frames.writer.write(packet, 0)
    headers = np.zeros((1, max(HEADER_BYTES, built.rows.shape[1])), np.uint8)
    headers[:, : built.rows.shape[1]] = built.rows
    whole = np.ascontiguousarray(headers[:, :HEADER_BYTES])
    frames.reader.read(whole, built.lengths.astype(np.uint32), 0, 0)
