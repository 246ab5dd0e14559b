"""Switch policies: how a switch chooses among equal next hops.

Times left out are those of hardware, made longer by as much as the fabric is slower: 256 µs at
400 Gbit/s are 1.024 s at 100 Mbit/s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fabric_emu.model.fields import Description, Duration, Size
from fabric_emu.model.scale import bdp_bytes, hardware_scale, largest_frame_bytes
from fabric_emu.model.topology import Topology

QUALITIES = 8
"""Bands of quality, 0 to 7; 7 is the best."""

MAX_FLOWS = 1 << 16

_GAP_S, _SAMPLING_S = 256e-6, 16e-6
_AGEING_INTERVALS = 4
_SHORTEST_INTERVAL_S = 0.005

DlbMode = Literal[
    "flowlet-quality", "flowlet-random", "per-packet-quality", "per-packet-random", "fixed"
]
Mode = Literal["kernel", DlbMode, "round-robin"]


@dataclass(frozen=True)
class Balancing:
    """A policy in numbers.

    Attributes:
        mode: how a port is chosen.
        flowlet_gap_s: a longer pause begins a new flowlet.
        max_flows: entries of the flowlet table.
        hash_seed: of the table's hash.
        sampling_s: interval of the load's moving average; 0: the load is not measured.
        exponent: the average takes in 2^-exponent of each sample.
        load_weight, queue_weight: of load and queue in the quality; together 1.
        load_range: loads, over the link rate, that count as none and as full.
        queue_range: queues in bytes that count as none and as full.
        glb_interval_s: between two adverts; 0: there are none.
        ageing_s: how long an advert counts.
    """

    mode: Mode
    flowlet_gap_s: float = 0.0
    max_flows: int = 1
    hash_seed: int = 0
    sampling_s: float = 0.0
    exponent: int = 0
    load_weight: float = 0.0
    queue_weight: float = 0.0
    load_range: tuple[float, float] = (0.0, 1.0)
    queue_range: tuple[int, int] = (0, 1)
    glb_interval_s: float = 0.0
    ageing_s: float = 0.0


class Ecmp(Description):
    """Equal-cost multipath: the kernel's multipath hash decides, packet by packet alike.

    Fidelity: the kernel itself forwards.
    Source: RFC 2992; Linux net/ipv4/route.c, fib_multipath_hash.
    """

    kind: Literal["ecmp"] = "ecmp"

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Balancing:
        """Return the policy in numbers."""
        return Balancing("kernel")


class SwitchSpray(Description):
    """Packet spraying by the switch: each packet goes its own way, whatever its flow.

    ``random``: each next hop is as likely; ``round-robin``: in turn, per group of next hops.

    Fidelity: the turn moves on with every packet of a group, whichever port it came in by; a
    switch of several pipelines has a turn in each.
    Source: Dixit et al., On the impact of packet spraying in data center networks, INFOCOM 2013.
    """

    kind: Literal["switch-spray"] = "switch-spray"
    order: Literal["random", "round-robin"] = "random"

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Balancing:
        """Return the policy in numbers."""
        return Balancing("per-packet-random" if self.order == "random" else "round-robin")


class _Adaptive(Description):
    """Parameters of dynamic load balancing, with or without adverts."""

    mode: DlbMode = "flowlet-quality"
    flowlet_gap: Duration | None = Field(
        None, description="a longer pause begins a new flowlet; 256 us of hardware when left out"
    )
    max_flows: int = Field(
        512, ge=1, le=MAX_FLOWS, description="entries of each switch's flowlet table"
    )
    sampling: Duration | None = Field(
        None, description="interval of the load's average; 16 us of hardware when left out"
    )
    exponent: int = Field(2, ge=0, le=7, description="the average takes in 2^-exponent of a sample")
    load_weight: int = Field(50, ge=0, le=255, description="of the average load in the quality")
    queue_weight: int = Field(50, ge=0, le=255, description="of the queue in the quality")
    load_min: float = Field(0.0, ge=0, lt=1, description="load over link rate: best up to here")
    load_max: float = Field(1.0, gt=0, le=4, description="load over link rate: worst from here on")
    queue_min: Size | None = Field(None, description="queue: best up to here; 0 when left out")
    queue_max: Size | None = Field(
        None, description="queue: worst from here on; 1 BDP when left out"
    )
    hash_seed: int = Field(0, ge=0, lt=1 << 32, description="of the flowlet table's hash")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.load_weight + self.queue_weight:
            raise ValueError("load_weight: over 0, if queue_weight is 0")
        if self.load_min >= self.load_max:
            raise ValueError(f"load_min: less than load_max ({self.load_max:g})")
        if self.queue_max is not None and (self.queue_min or 0) >= self.queue_max:
            raise ValueError(f"queue_min: less than queue_max ({self.queue_max})")
        return self

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Balancing:
        """Return the policy in numbers.

        Args:
            topology: the fabric.
            frame_bytes: largest frame that the hosts send; the MTU's when left out.
        """
        scale = hardware_scale(topology)
        frame = frame_bytes or largest_frame_bytes(topology)
        queue_min = self.queue_min or 0
        full = bdp_bytes(topology, frame)
        weights = self.load_weight + self.queue_weight
        return Balancing(
            self.mode,
            _GAP_S * scale if self.flowlet_gap is None else self.flowlet_gap,
            self.max_flows,
            self.hash_seed,
            _SAMPLING_S * scale if self.sampling is None else self.sampling,
            self.exponent,
            self.load_weight / weights,
            self.queue_weight / weights,
            (self.load_min, self.load_max),
            (queue_min, queue_min + full if self.queue_max is None else self.queue_max),
        )


class Dlb(_Adaptive):
    """Dynamic load balancing: a switch chooses by the load and queue of its own ports.

    A flow's packets hash into an entry of the flowlet table. After a pause longer than
    ``flowlet_gap`` the next packet takes the port of the best quality, one of them at random when
    several have it; until then the entry keeps its port. Per-packet modes have no table; ``fixed``
    never moves an entry; the random modes take no notice of quality. The quality is one of eight
    bands, from the weighted mean of average load and present queue.

    Elsewhere these are called (default in brackets; Cisco stands for ACI)::

        mode: flowlet-quality     SAI MODE_FLOWLET_QUALITY, SONiC per_flowlet_quality,
                                  FBOSS FLOWLET_QUALITY, Juniper flowlet, Cisco flowlet
              flowlet-random      SAI MODE_FLOWLET_RANDOM
              per-packet-quality  SAI MODE_PER_PACKET_QUALITY, SONiC per_packet_quality,
                                  FBOSS PER_PACKET_QUALITY, Juniper per-packet
              per-packet-random   SAI MODE_PER_PACKET_RANDOM, FBOSS PER_PACKET_RANDOM
              fixed               SAI MODE_FIXED, FBOSS FIXED_ASSIGNMENT, Juniper assigned-flow
        flowlet_gap               SAI IDLE_TIME (256 us), SONiC flowlet_idle_time (256 us),
                                  FBOSS inactivityIntervalUsecs,
                                  Juniper inactivity-interval (256 us),
                                  Cisco flowletAgingTime (500 us)
        max_flows                 SAI MAX_FLOWS (512), SONiC max_flows (512),
                                  FBOSS flowletTableSize, Juniper flowset-table-size (256)
        sampling                  SAI SAMPLING_INTERVAL (16 us), SONiC sampling_interval (16 us),
                                  FBOSS dynamicSampleRate, per second
        exponent                  SAI PORT_LOAD_EXPONENT (2), FBOSS dynamicEgressLoadExponent;
                                  SAI's and SONiC's load weights average as well
        load_weight, queue_weight FBOSS loadWeight, queueWeight, Juniper rate-weightage (half)
        load_min, load_max        SAI LOAD_PAST_MIN_VAL, _MAX_VAL, SONiC past_load_min_value,
                                  _max_value, FBOSS dynamicEgressMin-, MaxThreshold...,
                                  Cisco seven DRE thresholds (5 to 25 %)
        queue_min, queue_max      SAI LOAD_FUTURE_MIN_VAL, _MAX_VAL, SONiC
                                  future_load_min_value, _max_value,
                                  FBOSS dynamicQueueMin-, MaxThresholdBytes
        hash_seed                 SAI ARS_RANDOM_SEED
        the eight bands           SAI QUANT_BANDS, Juniper quality bands 0 to 7

    Fidelity: the load is a moving average that counts each packet as it is queued, the queue is
    the true one at the moment of the choice; hardware looks at both once per sampling interval.
    Bands are of equal width. There is one flowlet table per switch, not per group of next hops.
    Reactive path rebalancing, which moves flows that never pause, is left out.
    Source: saiars.h and saiarsprofile.h of SAI; SONiC's Local ARS design; FBOSS
    switch_config.thrift; Junos "Dynamic Load Balancing", "Customize Egress Port Link Quality
    Metrics for DLB"; Cisco APIC topoctrlDynamicLoadBalancingPol; Alizadeh et al. (CONGA), SIGCOMM
    2014 (the moving average); Vanini et al. (LetFlow), NSDI 2017 (flowlet-random).
    """

    kind: Literal["dlb"] = "dlb"


class Glb(_Adaptive):
    """Global load balancing: dynamic load balancing that knows of the links beyond its own.

    Every switch tells its neighbours in adverts how good the paths through it are, leaf by leaf;
    the quality of a path is the worse of the own port's and the neighbour's word. An advert older
    than ``ageing`` does not count: then the own port's quality stands alone.

    Three tiers: super-spines hear from spines below about the leaves of a pod, spines from
    super-spines above about all others, leaves from their spines about every leaf; each passes on
    the best of its next hops, as the worse of own port and word heard. So a leaf knows the whole
    path, an advert's age at each tier later.

    Fidelity: adverts come from a process, every ``glb_interval`` and never closer than 5 ms when
    that is left out; hardware's intervals are not published, and 16 µs is the sampling interval.
    Products do two tiers and tell of links to next-next-hops; the third tier is our reading of
    the same idea. Hosts' own links are not part of a path's quality.
    Source: Junos "Global Load Balancing" (QFX5240; helper-only and load-balancer-only modes, up to
    64 leaves); draft-ietf-idr-next-next-hop-nodes; "Global Load Balancing (GLB) for AI/ML
    Fabrics", IETF 124.
    """

    kind: Literal["glb"] = "glb"
    glb_interval: Duration | None = Field(
        None, description="between two adverts; 16 us of hardware, 5 ms at least, when left out"
    )
    ageing: Duration | None = Field(
        None, description="how long an advert counts; four intervals when left out"
    )

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Balancing:
        """Return the policy in numbers; see ``Dlb``."""
        local = super().resolved(topology, frame_bytes)
        interval = self.glb_interval
        if interval is None:
            interval = max(_SAMPLING_S * hardware_scale(topology), _SHORTEST_INTERVAL_S)
        ageing = _AGEING_INTERVALS * interval if self.ageing is None else self.ageing
        return replace(local, glb_interval_s=interval, ageing_s=ageing)


def _by_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


POLICIES = ("ecmp", "dlb", "glb", "switch-spray")

Policy = Annotated[
    Annotated[Ecmp | Dlb | Glb | SwitchSpray, Field(discriminator="kind")],
    BeforeValidator(
        _by_name,
        json_schema_input_type=Literal["ecmp", "dlb", "glb", "switch-spray"]
        | Annotated[Ecmp | Dlb | Glb | SwitchSpray, Field(discriminator="kind")],
    ),
]
"""A policy by its name alone or with parameters."""
