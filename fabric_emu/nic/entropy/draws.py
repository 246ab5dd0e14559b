"""Random numbers within compiled loops: SplitMix64, its top bit left out.

Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
"""

from __future__ import annotations

import numpy as np

from fabric_emu.compiled import Ints, compiled

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
# Unsigned as a whole: the compiler makes floats of signed and unsigned together.
_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_POSITIVE = np.uint64((1 << 63) - 1)


def generator(seed: int) -> Ints:
    """Return (1,) the state of a generator for ``draw``."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)


@compiled
def mix(number: int) -> np.int64:
    """Return a hash of a number, 0 to 2^63 - 1."""
    x = np.uint64(number)
    x = (x ^ x >> _SHIFT_1) * _FACTOR_1
    x = (x ^ x >> _SHIFT_2) * _FACTOR_2
    return np.int64((x ^ x >> _SHIFT_3) & _POSITIVE)


@compiled
def draw(state: Ints, size: int) -> np.int64:
    """Return a random number, 0 to ``size`` - 1."""
    state[0] += _STEP
    return mix(state[0]) % size
