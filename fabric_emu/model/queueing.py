"""What a port does with its queue besides dropping: marking (ECN) and trimming.

Thresholds left out follow from the bandwidth-delay product (BDP, ``model.scale.bdp_bytes``).

Fidelity: a scaled fabric has about ten packets in a round trip where a real one has a hundred, so
its thresholds are a tenth as many packets: chance alone fills a queue that far at high loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from fabric_emu.model.fields import Description, Size, default_when_true
from fabric_emu.model.scale import bdp_bytes, largest_frame_bytes
from fabric_emu.model.topology import Topology

CONTROL_DSCP = 48
"""DSCP of control packets (acknowledgements, adverts): class selector 6."""

DATA_DSCP, TRIMMABLE_DSCP = 0, 10
"""DSCPs of data that a switch must not, and may, trim; operators choose their own."""

Dscp = Annotated[int, Field(ge=0, le=63)]

_STEP, _RAMP_LOW, _RAMP_HIGH = 0.5, 0.2, 0.8
_LAST_HOP = 1.5


@dataclass(frozen=True)
class Marking:
    """ECN thresholds in numbers.

    Attributes:
        above_bytes: nothing is marked up to this queue.
        all_above_bytes: everything is marked above this one.
        per_million: probability of a mark just below it.
        host_ports: whether ports that face hosts mark.
    """

    above_bytes: int
    all_above_bytes: int
    per_million: int
    host_ports: bool


class Ecn(Description):
    """Marking with congestion experienced (CE), by the true length of the data class's queue.

    A step at ``mark_at``, unless a ``mark_min``, ``mark_max`` or ``max_probability`` is given:
    then the probability rises from nothing at ``mark_min`` to ``max_probability`` at ``mark_max``
    and is 1 above. Left out: a step at half a BDP, a ramp from 0.2 to 0.8 BDP. Only packets that
    say they understand (ECT) are marked.

    Fidelity: the queue is the one a packet finds, not an average as in classic RED; like the
    switches that DCQCN was made for.
    Source: RFC 3168; thresholds: Ultra Ethernet specification 1.0; ramp: Zhu et al., SIGCOMM 2015
    (Kmin, Kmax, Pmax).
    """

    mark_at: Size | None = Field(None, description="step: queue in bytes; 0.5 BDP when left out")
    mark_min: Size | None = Field(None, description="ramp: its lower end; 0.2 BDP when left out")
    mark_max: Size | None = Field(None, description="ramp: its upper end; 0.8 BDP when left out")
    max_probability: float | None = Field(
        None, gt=0, le=1, description="ramp: at its upper end; 1 when left out"
    )
    host_ports: bool = Field(
        True, description="false: not on ports to hosts, so that a mark tells of a path (MRC)"
    )

    @property
    def _is_ramp(self) -> bool:
        return (self.mark_min, self.mark_max, self.max_probability) != (None, None, None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mark_at is not None and self._is_ramp:
            raise ValueError("mark_at: nothing beside mark_min, mark_max and max_probability")
        if self.mark_min and self.mark_max and self.mark_min >= self.mark_max:
            raise ValueError(f"mark_min: less than mark_max ({self.mark_max})")
        return self

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Marking:
        """Return the thresholds on a fabric.

        Args:
            topology: the fabric.
            frame_bytes: largest frame that the hosts send; the MTU's when left out.
        """
        frame = frame_bytes or largest_frame_bytes(topology)
        bdp = bdp_bytes(topology, frame)
        if not self._is_ramp:
            step = self.mark_at or round(_STEP * bdp)
            return Marking(step, step, 1_000_000, self.host_ports)
        high = self.mark_max or round(_RAMP_HIGH * bdp)
        low = self.mark_min or min(round(_RAMP_LOW * bdp), high - 1)
        high = max(high, low + 1)
        chance = 1.0 if self.max_probability is None else self.max_probability
        return Marking(max(low, 1), high, round(chance * 1e6), self.host_ports)


@dataclass(frozen=True)
class Trims:
    """Trimming in numbers.

    Attributes:
        trim_to_bytes: of a frame, without its frame check sequence.
        above_bytes: queue of the data class above which packets are cut.
        last_hop_above_bytes: the same at ports that face hosts.
        control_limit_bytes: queue of the control class above which they are dropped instead.
        trimmable: DSCPs that allow it.
        trimmed, trimmed_last_hop: DSCP of what is left.
    """

    trim_to_bytes: int
    above_bytes: int
    last_hop_above_bytes: int
    control_limit_bytes: int
    trimmable: tuple[int, ...]
    trimmed: int
    trimmed_last_hop: int


class Trimming(Description):
    """Cutting packets that find the queue too long down to their headers, instead of dropping them.

    What is left goes on at once, in the control class, with a DSCP that tells the receiver. A
    packet is never cut into its headers (IP, UDP, and the BTH or 16 bytes after it), and one that
    is as short already is queued as any other. Left out, thresholds are 1 BDP and, at ports that
    face hosts, 1.5 BDP.

    Fidelity: headers are served strictly before data, where the specification wants at most half
    the link for them; the UDP checksum of what is left is zero, also over IPv6.
    Source: Ultra Ethernet specification 1.0, section 4.1; Handley et al. (NDP), SIGCOMM 2017
    (headers get as much memory as data); SAI 1.14 and SONiC trim to 128 bytes by default.
    """

    trim_to: Size = Field(64, le=1500, description="bytes left of a frame; SONiC's default is 128")
    trim_at: Size | None = Field(None, description="queue in bytes; 1 BDP when left out")
    trim_at_last_hop: Size | None = Field(
        None, description="the same at ports to hosts; 1.5 times trim_at when left out"
    )
    control_limit: Size | None = Field(
        None, description="queue of headers above which packets are dropped; as trim_at"
    )
    trimmable: tuple[Dscp, ...] = Field(
        (TRIMMABLE_DSCP,), min_length=1, description="DSCPs of packets that may be cut"
    )
    trimmed: Dscp = Field(46, description="DSCP of what is left")
    trimmed_last_hop: Dscp = Field(44, description="DSCP of what is left, if cut at the last hop")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key in ("trimmed", "trimmed_last_hop"):
            if getattr(self, key) in (*self.trimmable, DATA_DSCP, CONTROL_DSCP):
                raise ValueError(
                    f"{key}: a DSCP that neither data ({DATA_DSCP} or trimmable) nor control "
                    f"packets ({CONTROL_DSCP}) have"
                )
        if CONTROL_DSCP in self.trimmable:
            raise ValueError(f"trimmable: not the DSCP of control packets ({CONTROL_DSCP})")
        return self

    @property
    def trimmed_dscps(self) -> tuple[int, ...]:
        """DSCPs by which a receiver knows a trimmed packet."""
        return tuple({self.trimmed: None, self.trimmed_last_hop: None})

    def resolved(self, topology: Topology, frame_bytes: int | None = None) -> Trims:
        """Return the limits on a fabric.

        Args:
            topology: the fabric.
            frame_bytes: largest frame that the hosts send; the MTU's when left out.
        """
        frame = frame_bytes or largest_frame_bytes(topology)
        above = self.trim_at or bdp_bytes(topology, frame)
        return Trims(
            self.trim_to,
            above,
            self.trim_at_last_hop or round(_LAST_HOP * above),
            self.control_limit or above,
            self.trimmable,
            self.trimmed,
            self.trimmed_last_hop,
        )


EcnField = Annotated[
    Ecn | None, BeforeValidator(default_when_true, json_schema_input_type=Ecn | bool | None)
]
TrimmingField = Annotated[
    Trimming | None,
    BeforeValidator(default_when_true, json_schema_input_type=Trimming | bool | None),
]
