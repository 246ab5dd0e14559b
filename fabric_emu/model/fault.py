"""Faults: what goes wrong with a link, when, and for how long."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from fabric_emu.errors import ScenarioError
from fabric_emu.model.fields import Description, Duration, Moment, Rate
from fabric_emu.model.topology import Link, Topology


class Fault(Description):
    """One fault of one link.

    Actions: ``down``, both ends lose the link and know it; ``blackhole``, everything sent
    vanishes and nobody is told; ``slow``, the link drops to ``rate``; ``loss``, every packet is
    lost with ``probability``; ``flap``, down and up in turns, each for half a ``period``.
    ``blackhole``, ``slow`` and ``loss`` hit one direction when ``towards`` names the receiving
    end, both when it is left out.
    """

    model_config = ConfigDict(**Description.model_config, populate_by_name=True)

    at: Moment = Field(description="when, after the hosts began to send")
    link: str = Field(description="the link's name, such as leaf1-spine2")
    action: Literal["down", "blackhole", "slow", "loss", "flap"]
    duration: Duration | None = Field(
        None, alias="for", description="how long it lasts; to the end when left out"
    )
    towards: str | None = Field(None, description="the receiving end of the direction hit")
    rate: Rate | None = Field(None, description="slow: what is left of the link's rate")
    probability: float | None = Field(None, gt=0, le=1, description="loss: of each packet")
    period: Duration | None = Field(None, description="flap: from one loss to the next")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needed = {"slow": "rate", "loss": "probability", "flap": "period"}
        for action, key in needed.items():
            if self.action == action and getattr(self, key) is None:
                raise ValueError(f"{key}: a value with action {action}")
            if self.action != action and getattr(self, key) is not None:
                raise ValueError(f"{key}: nothing with action {self.action}")
        if self.action in ("down", "flap") and self.towards is not None:
            raise ValueError(f"towards: nothing with action {self.action}, which hits both ends")
        return self

    def find(self, topology: Topology, path: str) -> Link:
        """Return the link that is hit.

        Raises:
            ScenarioError: the topology has no such link, or ``towards`` is not an end of it.
        """
        found = [link for link in topology.links if link.name == self.link]
        if not found:
            some = ", ".join(link.name for link in topology.links[-3:])
            raise ScenarioError(f"{path}.link", self.link, f"the name of a link, such as {some}")
        ends = (found[0].lower.name, found[0].upper.name)
        if self.towards is not None and self.towards not in ends:
            raise ScenarioError(f"{path}.towards", self.towards, f"{ends[0]} or {ends[1]}")
        return found[0]
