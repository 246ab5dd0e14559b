"""Faults: what goes wrong with a link or a switch, when, and for how long."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from fabric_emu.errors import ScenarioError
from fabric_emu.model.fields import Description, Duration, Moment, Rate
from fabric_emu.model.topology import Link, Topology


class Fault(Description):
    """One fault of one link, or of one switch.

    Actions: ``down``, both ends lose the link and know it; ``blackhole``, everything sent
    vanishes and nobody is told; ``slow``, the link drops to ``rate``; ``loss``, every packet is
    lost with ``probability``; ``flap``, down and up in turns, each for half a ``period``.
    ``blackhole``, ``slow`` and ``loss`` hit one direction when ``towards`` names the receiving
    end, both when it is left out.

    ``reboot`` hits a switch: all its links go down, and come back when it has started again.
    """

    model_config = ConfigDict(**Description.model_config, populate_by_name=True)

    at: Moment = Field(description="when, after the hosts began to send")
    link: str | None = Field(None, description="the link's name, such as leaf1-spine2")
    switch: str | None = Field(None, description="reboot: the switch's name, such as spine2")
    action: Literal["down", "blackhole", "slow", "loss", "flap", "reboot"]
    duration: Duration | None = Field(
        None, alias="for", description="how long it lasts; to the end when left out"
    )
    towards: str | None = Field(None, description="the receiving end of the direction hit")
    rate: Rate | None = Field(None, description="slow: what is left of the link's rate")
    probability: float | None = Field(None, gt=0, le=1, description="loss: of each packet")
    period: Duration | None = Field(None, description="flap: from one loss to the next")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needed = {"slow": "rate", "loss": "probability", "flap": "period", "reboot": "switch"}
        for action, key in needed.items():
            if self.action == action and getattr(self, key) is None:
                raise ValueError(f"{key}: a value with action {action}")
            if self.action != action and getattr(self, key) is not None:
                raise ValueError(f"{key}: nothing with action {self.action}")
        if (self.link is None) != (self.action == "reboot"):
            expected = "nothing" if self.link else "the name of a link"
            raise ValueError(f"link: {expected} with action {self.action}")
        if self.action in ("down", "flap", "reboot") and self.towards is not None:
            raise ValueError(f"towards: nothing with action {self.action}, which hits both ends")
        return self

    @property
    def place(self) -> str:
        """Name of the link or switch that is hit."""
        return self.switch or self.link or ""

    def links(self, topology: Topology, path: str) -> tuple[Link, ...]:
        """Return the links that are hit: all those of a switch.

        Raises:
            ScenarioError: the topology has no such link or switch, or ``towards`` is not an end.
        """
        if self.switch is None:
            return (self._link(topology, path),)
        names = [switch.name for switch in topology.switches]
        if self.switch not in names:
            some = ", ".join(names[-3:])
            raise ScenarioError(
                f"{path}.switch", self.switch, f"the name of a switch, such as {some}"
            )
        return topology.uplinks[self.switch] + topology.downlinks[self.switch]

    def _link(self, topology: Topology, path: str) -> Link:
        found = [link for link in topology.links if link.name == self.link]
        if not found:
            some = ", ".join(link.name for link in topology.links[-3:])
            raise ScenarioError(f"{path}.link", self.link, f"the name of a link, such as {some}")
        ends = (found[0].lower.name, found[0].upper.name)
        if self.towards is not None and self.towards not in ends:
            raise ScenarioError(f"{path}.towards", self.towards, f"{ends[0]} or {ends[1]}")
        return found[0]
