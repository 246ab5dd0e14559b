"""Nexthop groups of the switches: how equal-cost paths share, and what keeps flows in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fabric_emu.model.fields import Description, Duration, Moment, default_when_true

WEIGHT_MAX = 256
"""Largest weight of a next hop that every kernel with nexthop groups takes: eight bits, plus 1."""


class Resilient(Description):
    """Resilient groups: a table of buckets, dealt out by weight, in the place of thresholds.

    A next hop that leaves gives up its buckets, and no other flow moves; one that comes back gets
    buckets that nothing has used for a while.

    Source: Documentation/networking/nexthop-group-resilient.rst.
    """

    buckets: int = Field(128, ge=1, le=65535, description="of each group; its next hops at least")
    idle_timer: Duration = Field(
        120.0, ge=0.01, description="how long a bucket is unused before it may move"
    )
    unbalanced_timer: Moment = Field(
        0.0, description="how long a group may stay unbalanced before busy buckets move; 0: forever"
    )


class NexthopGroups(Description):
    """How switches divide flows among their equal-cost next hops.

    Fidelity: for the kernel's choice only: where switches balance or spray by themselves they pass
    over it. A switch weighs its own links, not what lies behind them.
    """

    weights: Literal["equal", "rates"] = Field(
        "equal", description="rates: each next hop's share follows its link's rate"
    )
    resilient: Annotated[
        Resilient | None,
        BeforeValidator(default_when_true, json_schema_input_type=Resilient | bool | None),
    ] = Field(None, description="resilient groups; true for defaults")

    def weights_of(self, rates_bps: Sequence[int]) -> tuple[int, ...]:
        """Return the weights of next hops whose links have these rates.

        The smallest whole numbers in the rates' proportion; where they pass ``WEIGHT_MAX``, the
        nearest ones below it, 1 at least.
        """
        if self.weights == "equal":
            return (1,) * len(rates_bps)
        common, largest = math.gcd(*rates_bps), max(rates_bps)
        if largest // common <= WEIGHT_MAX:
            return tuple(rate // common for rate in rates_bps)
        return tuple(max(1, round(rate * WEIGHT_MAX / largest)) for rate in rates_bps)
