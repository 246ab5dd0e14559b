"""Schemes: how a NIC spreads its packets, times what the switches do with them."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from fabric_emu.errors import ScenarioError
from fabric_emu.model.control_plane import ControlPlaneField
from fabric_emu.model.fields import Description, Duration, Size
from fabric_emu.model.policies import Dlb, Ecmp, Glb, Policy, SwitchSpray
from fabric_emu.model.queueing import (
    CONTROL_DSCP,
    DATA_DSCP,
    TRIMMABLE_DSCP,
    Ecn,
    EcnField,
    Trimming,
    TrimmingField,
)

QUEUE_PAIRS_MAX = 256


class Nic(Description):
    """How a NIC chooses the entropy (UDP source port) of each packet.

    ``qp``: one source port per queue pair, the same for its life; with several queue pairs a
    flow's messages or packets go round robin over them. ``random``: a fresh random entropy value
    for every packet. ``even``: entropy values chosen beforehand with the switches' own hash so
    that every path gets the same number, used in a shuffled rotation. ``reps``: values whose
    packets were acknowledged unmarked are used again, others are drawn at random; ``oblivious``:
    round robin over all values in an order of its own (both only where a transport learns; an
    open loop draws at random).

    With several planes a NIC has a port in each. Of messages the entropy names the plane: the
    values of ``random`` and ``even`` are spread evenly over planes and take turns, those that are
    drawn hit all alike, and a queue pair of ``qp`` stays in the plane of its source port. In an
    open loop every queue pair keeps to its flow's plane.

    Where a transport learns, a value of ``random`` or ``even`` is left out once a packet with it
    is taken for lost: timed out, or overtaken by more than paths differ. That is a base round
    trip, and the time of full queues where switches trim, else another round trip, the queueing
    delay that congestion control (NSCC) aims for. Never more than three quarters of a queue
    pair's values are left out. Every four base round trips some of them are probed with a packet
    without data; an answer puts a value back. That is how a dead path or plane is left, and found
    again after repair. ``reps`` needs no probes, it uses again only what was acknowledged;
    ``oblivious`` leaves nothing out.

    Fidelity: on a real fabric an MRC queue pair has 128 to 256 entropy values, about as many as
    there are paths, and as many packets in flight; each value that leads nowhere costs a packet
    before it is left out. A scaled fabric has few paths and few packets in flight, so by default
    it gets two values for every path. A real MRC NIC learns from ECN, trims and losses which
    entropy values to leave out; in an open loop nothing is learnt.
    Source: OCP MRC 1.0 (entropy value modes GENERATED and EXPLICIT), UE specification 1.0.
    """

    entropy: Literal["qp", "random", "even", "reps", "oblivious"] = "qp"
    queue_pairs: int = Field(1, ge=1, le=QUEUE_PAIRS_MAX, description="queue pairs of each flow")
    round_robin: Literal["message", "packet", "split"] = Field(
        "message",
        description="what goes round robin over a flow's queue pairs; split: every message is cut "
        "over all of them (in an open loop, as packet)",
    )
    transport: Literal["rc", "mrc", "uet"] = Field(
        "rc",
        description="of messages: RoCEv2's reliable connection, MRC, or Ultra Ethernet; open loops "
        "have none",
    )
    credits: bool = Field(
        True, description="uet: receivers grant credit (RCCC); else windows rule (NSCC)"
    )
    ack_every: int = Field(1, ge=1, le=64, description="packets per acknowledgement")
    window: int = Field(32, ge=1, le=4096, description="rc: unacknowledged packets, at most")
    timeout: Duration | None = Field(
        None,
        description="retransmission timeout; 20 base round trips (rc), 8 (with trimming), else 4",
    )
    retries: int = Field(
        7, ge=0, le=100, description="timeouts in a row after which a queue pair fails"
    )
    entropy_values: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="entropy values of each queue pair; left out: two for every path with a "
        "transport, 256 in an open loop",
    )
    ecn: bool = Field(True, description="packets say that they understand ECN: switches may mark")
    trimmable: bool = Field(
        False, description="packets carry a DSCP that lets switches trim them instead of dropping"
    )
    check_payloads: bool = Field(
        False,
        description="RoCEv2: receivers read every byte for the ICRC instead of taking payloads for "
        "what NICs send; slower",
    )


class Switch(Description):
    """What the switches do: how they choose among equal next hops, and what with a long queue.

    A policy left to itself falls back to the kernel's multipath hash for what it does not know.

    Fidelity: ``lossless`` stands for priority flow control by having room for all that the NICs'
    windows let out. A real lossless fabric pauses the ports that feed a full queue: pauses
    spread backwards, hold up packets for other ports (head-of-line blocking) and may form cycles;
    none of that happens here.
    """

    policy: Policy = Field(Ecmp(), description="ecmp, dlb, glb or switch-spray")
    hash_policy: Literal[0, 1, 2, 3] = Field(
        1, description="fib_multipath_hash_policy: 0 addresses, 1 five-tuple, 3 chosen fields"
    )
    hash_fields: int = Field(0x37, ge=1, le=0x3F, description="fib_multipath_hash_fields, policy 3")
    hash_seeds: Literal["per-switch", "same"] | None = Field(
        None, description="overrides the scenario's hash_seeds"
    )
    control_plane: ControlPlaneField | None = Field(
        None, description="overrides the scenario's control_plane"
    )
    drop_at: Size | None = Field(
        None,
        description="queue limit of a port in bytes; 10 ms of its rate when left out, 8 full "
        "frames or, with trimming, twice its threshold at least",
    )
    lossless: bool | None = Field(
        None,
        description="queues without a limit, deep enough for all windows; left out: where reliable "
        "connections carry messages",
    )
    ecn: EcnField = Field(None, description="marking; true for defaults")
    trimming: TrimmingField = Field(None, description="trimming; true for defaults")

    @property
    def control_dscps(self) -> tuple[int, ...]:
        """DSCPs of packets that belong in the control class."""
        trimmed = self.trimming.trimmed_dscps if self.trimming else ()
        return (CONTROL_DSCP, *trimmed)


class Scheme(Description):
    """A NIC behaviour and a switch behaviour under one name."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    nic: Nic = Nic()
    switch: Switch = Switch()

    @property
    def hashed(self) -> bool:
        """True when every queue pair keeps to one path that the hash decides."""
        return self.nic.entropy == "qp" and isinstance(self.switch.policy, Ecmp)

    @property
    def data_dscp(self) -> int:
        """DSCP of the hosts' data packets."""
        if not self.nic.trimmable:
            return DATA_DSCP
        return self.switch.trimming.trimmable[0] if self.switch.trimming else TRIMMABLE_DSCP

    def with_messages(self) -> Scheme:
        """Return the scheme as it is where messages are carried."""
        if self.switch.lossless is not None:
            return self
        lossless = self.nic.transport == "rc" and self.switch.drop_at is None
        switch = self.switch.model_copy(update={"lossless": lossless})
        return self.model_copy(update={"switch": switch})

    @staticmethod
    def named(name: str) -> Scheme:
        """Return a scheme by its well-known name.

        ``ecmp``, ``ecmp-4qp`` (any number of queue pairs); ``dlb`` (flowlets by quality),
        ``dlb-packet`` (each packet by quality), ``glb``; ``switch-spray`` (each packet at random),
        ``switch-spray-rr`` (in turn); ``ecmp-dcqcn`` (rate control by
        marks instead of lossless queues); ``mrc`` (even spraying by the NIC) and ``mrc-random`` (a
        random entropy value per packet); ``uec`` (Ultra Ethernet with trimming, receiver credit
        and REPS) and ``uec-no-trimming``.

        Raises:
            ScenarioError: no scheme has this name.
        """
        if name in _NAMED:
            nic, switch = _NAMED[name]
            return Scheme(name=name, nic=nic, switch=switch)
        match = re.fullmatch(r"ecmp-(\d{1,3})qp", name)
        if match and 1 <= int(match[1]) <= QUEUE_PAIRS_MAX:
            return Scheme(name=name, nic=Nic(queue_pairs=int(match[1])))
        raise ScenarioError("scheme", name, f"one of {', '.join(Scheme.names())}")

    @staticmethod
    def names() -> list[str]:
        """Return the well-known names; N stands for a number of queue pairs."""
        return ["ecmp", "ecmp-Nqp", *sorted(_NAMED.keys() - {"ecmp"})]


_NAMED = {
    "ecmp": (Nic(), Switch()),
    "dlb": (Nic(), Switch(policy=Dlb())),
    "dlb-packet": (Nic(), Switch(policy=Dlb(mode="per-packet-quality"))),
    "glb": (Nic(), Switch(policy=Glb())),
    "switch-spray": (Nic(), Switch(policy=SwitchSpray())),
    "switch-spray-rr": (Nic(), Switch(policy=SwitchSpray(order="round-robin"))),
    "ecmp-dcqcn": (Nic(), Switch(ecn=Ecn(), lossless=False)),
    "mrc": (Nic(entropy="even", transport="mrc"), Switch(ecn=Ecn(host_ports=False))),
    "mrc-random": (Nic(entropy="random", transport="mrc"), Switch(ecn=Ecn(host_ports=False))),
    "uec": (
        Nic(entropy="reps", transport="uet", trimmable=True),
        Switch(ecn=Ecn(host_ports=False), trimming=Trimming()),
    ),
    "uec-no-trimming": (
        Nic(entropy="reps", transport="uet"),
        Switch(ecn=Ecn(host_ports=False)),
    ),
}
