"""Control planes: who tells the switches where the hosts are."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from fabric_emu.model.fields import Description, Duration, Moment


def _never(value: Any) -> Any:
    return None if value == "never" else value


ConvergenceField = Annotated[
    Moment | None,
    BeforeValidator(_never, json_schema_input_type=Literal["never"] | Moment | None),
]


class Static(Description):
    """Routes are set when the fabric is built.

    A switch whose own link goes down leaves it at once. Others send towards the loss until
    ``convergence`` has passed, then leave the next hops that lead nowhere; all take the link again
    when it comes back. A link that loses packets without going down is never left.
    """

    kind: Literal["static"] = "static"
    convergence: ConvergenceField = Field(
        None,
        description="from the loss of a link to the repair by switches not at its ends, or never",
    )


class Bgp(Description):
    """FRR in every switch: eBGP on every link between switches, private AS numbers, ECMP.

    Source: RFC 7938, sections 5.2 and 6; RFC 8950 (IPv4 routes over IPv6 link-local sessions).
    Fidelity: the daemons of all switches share this machine's processors with the traffic.
    """

    kind: Literal["bgp"] = "bgp"
    keepalive: int = Field(3, ge=1, le=21845, description="seconds between keepalives")
    hold: int = Field(9, ge=3, le=65535, description="seconds of silence that end a session")
    connect_retry: int = Field(1, ge=1, le=65535, description="seconds between attempts")
    bfd: bool = Field(False, description="BFD on every session, which finds silent failures")
    bfd_interval: Duration = Field(0.3, ge=0.01, le=60, description="between BFD packets")
    bfd_multiplier: int = Field(3, ge=2, le=255, description="BFD packets missed: link lost")
    ready_within: Duration = Field(60.0, description="all routes must be in the kernels by then")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hold < 3 * self.keepalive:  # RFC 4271, section 4.4
            raise ValueError(f"hold: three keepalives ({3 * self.keepalive} s) or more")
        return self


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _kind(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else "static"


ControlPlane = Static | Bgp

ControlPlaneField = Annotated[
    Annotated[Static, Tag("static")] | Annotated[Bgp, Tag("bgp")],
    Discriminator(_kind),
    BeforeValidator(_named, json_schema_input_type=str | Static | Bgp),
]
