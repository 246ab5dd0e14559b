"""MRC's and Ultra Ethernet's transports out of a recipe."""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Bools
from fabric_emu.model.messages import MessageGraph
from fabric_emu.model.queue_pair import plane_of
from fabric_emu.nic.congestion.nscc import Nscc
from fabric_emu.nic.congestion.nscc_settings import NsccSettings
from fabric_emu.nic.congestion.rccc import CreditScheduler
from fabric_emu.nic.congestion.rccc_account import CreditAccount
from fabric_emu.nic.entropy.ev_set import EvSet
from fabric_emu.nic.entropy.oblivious import Oblivious
from fabric_emu.nic.entropy.policy import EntropyPolicy
from fabric_emu.nic.entropy.reps import Reps
from fabric_emu.nic.transport.recipe import TransportRecipe
from fabric_emu.nic.transport.selective import Selective, SelectiveSettings
from fabric_emu.nic.transport.space import PacketSpace
from fabric_emu.nic.transport.uet import Credited
from fabric_emu.nic.transport.windows import CreditControl, WindowControl

PULL_PACKETS = 4
"""Credit of one grant."""

ANSWER_BYTES = 100
"""Of an acknowledgement, with its part of a credit packet. The answers to what a host sends take
room on the link that its receivers' credit fills: without it queues grow there, and are trimmed.
"""

REPS_FREEZE_TRIPS = 1000
"""Base round trips that REPS stays frozen: 10 ms in uet-htsim, where a trip takes 10 us or so."""

EV_FLOOR_SHARE = 4
"""One in so many entropy values of a queue pair stays in use whatever is learnt of them."""


def make_selective(
    recipe: TransportRecipe, graph: MessageGraph, space: PacketSpace, local: Bools
) -> Selective:
    """Return the transport of a worker's hosts."""
    settings = SelectiveSettings(
        recipe.timeout_s, recipe.overtaken_s, recipe.retries, recipe.ack_every
    )
    entropy = _entropy(recipe, space.queue_pairs)
    base_rtt_s, rate_bps = recipe.base_rtt_s, recipe.line_rate_bps
    if recipe.kind == "mrc" or not recipe.credits:
        nscc = NsccSettings.of(base_rtt_s, rate_bps, space.payload, recipe.trimming)
        window = WindowControl(Nscc(space.queue_pairs, nscc), space.payload)
        return Selective(graph, space, local, settings, entropy, window)
    frame_bytes = recipe.frame_bytes
    account = CreditAccount(
        space.queue_pairs, max(1, round(rate_bps * base_rtt_s / 8 / frame_bytes))
    )
    # Every other queue pair of the receiver may have its turn first.
    senders = int(np.bincount(space.destination).max())
    turn_s = senders * PULL_PACKETS * frame_bytes * 8 / rate_bps
    answer_bytes = ANSWER_BYTES / recipe.ack_every
    host = np.where(local[space.destination], space.destination, -1)
    return Credited(
        graph,
        space,
        local,
        settings,
        entropy,
        CreditControl(account, 4 * (turn_s + base_rtt_s)),
        CreditScheduler(host, rate_bps, frame_bytes + answer_bytes, PULL_PACKETS),
    )


def _entropy(recipe: TransportRecipe, queue_pairs: int) -> EntropyPolicy:
    if recipe.entropy == "reps":
        freeze_s = REPS_FREEZE_TRIPS * recipe.base_rtt_s if recipe.trimming else None
        return Reps(queue_pairs, None, recipe.seed, freeze_s=freeze_s)
    if recipe.entropy == "oblivious":
        return Oblivious(queue_pairs, None, recipe.seed)
    floor = max(1, recipe.source_port.shape[1] // EV_FLOOR_SHARE)
    plane = plane_of(recipe.source_port, recipe.planes)
    probing_s = 4 * recipe.base_rtt_s
    return EvSet(
        queue_pairs, recipe.source_port, recipe.seed, floor, plane, probe_interval_s=probing_s
    )
