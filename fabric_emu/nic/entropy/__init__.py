"""Entropy: which UDP source port, and so which path, each packet gets.

All policies follow ``EntropyPolicy``: ``EvSet`` (MRC), ``Reps`` and ``Oblivious`` (Ultra
Ethernet), ``RandomEntropy``.
"""

from fabric_emu.nic.entropy.ev_set import EvSet, EvState
from fabric_emu.nic.entropy.oblivious import Oblivious, RandomEntropy
from fabric_emu.nic.entropy.policy import EntropyPolicy, PortTable
from fabric_emu.nic.entropy.reps import Reps

__all__ = [
    "EntropyPolicy",
    "EvSet",
    "EvState",
    "Oblivious",
    "PortTable",
    "RandomEntropy",
    "Reps",
]
