"""Scenarios: topology, workload and schemes side by side, as one validated description."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from fabric_emu.errors import ScenarioError
from fabric_emu.model.control_plane import Bgp, ControlPlane, ControlPlaneField, Static
from fabric_emu.model.ecmp import NexthopGroups
from fabric_emu.model.expectation import BoundField
from fabric_emu.model.fault import Fault
from fabric_emu.model.fields import Description
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import PATH_STAMPS, Topology
from fabric_emu.model.workload import OpenLoop

LIVE_NODES = 1000
"""Hosts and switches of a live fabric, at most."""


def _scheme(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return Scheme.named(value)
        except ScenarioError as error:
            raise ValueError(error.expected) from None
    return value


SchemeField = Annotated[Scheme, BeforeValidator(_scheme, json_schema_input_type=str | Scheme)]


def _kind(value: Any) -> str:
    """Return a workload's kind; one that says none is open loop."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else "open-loop"


WorkloadField = Annotated[
    Annotated[OpenLoop, Tag("open-loop")] | Annotated[Messages, Tag("messages")],
    Discriminator(_kind),
]


class Scenario(Description):
    """Everything that defines a run; a YAML file read with ``load_scenario``."""

    title: str = Field(min_length=1, max_length=200)
    claim: str = Field("", description="what the scenario is to show, in own words")
    source: str = Field("", description="where the claim comes from")
    topology: Topology = Topology()
    workload: WorkloadField = OpenLoop()
    schemes: tuple[SchemeField, ...] = Field(
        (Scheme.named("ecmp"),), min_length=1, description="names, or NIC and switch composed"
    )
    seed: int = Field(1, ge=0, lt=2**32, description="of everything drawn at random")
    hash_seeds: Literal["per-switch", "same"] = Field(
        "per-switch",
        description="same: one hash seed everywhere, which shows polarisation; a scheme's switch "
        "may say otherwise",
    )
    control_plane: ControlPlaneField = Field(
        Static(), description="static, or bgp; a scheme's switch may say otherwise"
    )
    faults: tuple[Fault, ...] = Field(
        (), description="what goes wrong with links and switches, and when"
    )
    expect: dict[str, dict[str, BoundField]] = Field(
        {}, description="bounds by scheme and figure: expect.ecmp.efficiency: '< 0.99'"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [scheme.name for scheme in self.schemes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"schemes: different names ({name} comes twice)")
        for name in self.expect:
            if name not in names:
                raise ValueError(f"expect: names among the schemes {', '.join(names)}, not {name}")
        return self

    def hash_seeds_of(self, scheme: Scheme) -> Literal["per-switch", "same"]:
        """Return which hash seeds the switches get under a scheme."""
        return scheme.switch.hash_seeds or self.hash_seeds

    def control_plane_of(self, scheme: Scheme) -> ControlPlane:
        """Return which control plane the switches have under a scheme."""
        return scheme.switch.control_plane or self.control_plane

    def check(self) -> None:
        """Check what only topology and workload together can tell.

        Raises:
            ScenarioError: the workload does not fit the topology.
        """
        self.workload.check(self.topology)
        planes = [self.control_plane, *(self.control_plane_of(one) for one in self.schemes)]
        if self.topology.tiers == 1 and any(isinstance(one, Bgp) for one in planes):
            raise ScenarioError(
                "control_plane", "bgp", "static with tiers: 1, which has one switch"
            )
        if self.topology.ecmp != NexthopGroups() and any(isinstance(one, Bgp) for one in planes):
            raise ScenarioError(
                "topology.ecmp",
                "weights or resilient groups",
                "left out with control_plane: bgp, which makes next-hop groups of its own",
            )
        for scheme in self.schemes:
            plane, policy = self.control_plane_of(scheme), scheme.switch.policy.kind
            repaired = isinstance(plane, Static) and plane.convergence is not None
            if repaired and policy != "ecmp":
                raise ScenarioError(
                    "control_plane.convergence",
                    plane.model_dump()["convergence"],
                    f"never with scheme {scheme.name}: policy {policy} has no remote repair",
                    "a scheme's switch section may have a control_plane of its own",
                )
        for i, fault in enumerate(self.faults):
            fault.links(self.topology, f"faults[{i}]")

    def check_live(self) -> None:
        """Check the limits of a live fabric, which predictions do not have.

        Raises:
            ScenarioError: more nodes than one machine carries, or more top switches than a path
                stamp can name.
        """
        self.check()
        topology = self.topology
        switches = topology.pods * (topology.leaves + topology.spines) + topology.super_spines
        nodes = topology.total_hosts + topology.planes * switches
        if nodes > LIVE_NODES:
            raise ScenarioError(
                "topology",
                f"{nodes} hosts and switches",
                f"at most {LIVE_NODES}, run live",
                "fabric-emu predict takes fabrics of any size",
            )
        tops = self.topology.spines + self.topology.super_spines
        if tops > PATH_STAMPS:
            raise ScenarioError(
                "topology.spines", tops, f"at most {PATH_STAMPS} spines and super-spines, run live"
            )
