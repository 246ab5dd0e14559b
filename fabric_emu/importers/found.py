"""What was found in a switch's configuration, under the names that a scenario gives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric_emu.importers.document import Section
from fabric_emu.importers.strict_json import Steps, dotted


@dataclass(frozen=True)
class Setting:
    """A value and where it comes from.

    Attributes:
        value: as a policy takes it; a time is one of hardware, in seconds.
        steps: keys that lead to it in the file; none for a default.
        written: what stands there, or whose default it is.
    """

    value: int | float | str
    steps: Steps
    written: object

    @classmethod
    def of(cls, section: Section, key: str, value: int | float | str, default: str) -> Setting:
        """Return a value read of a key, or else ``default``, which says whose default it is."""
        if key in section:
            return cls(value, (*section.steps, key), section.values[key])
        return cls(value, (), default)

    @property
    def origin(self) -> str:
        """Where the value comes from, for people."""
        return f"{dotted(self.steps)}: {self.written}" if self.steps else str(self.written)


@dataclass
class Found:
    """What a file configures.

    Attributes:
        policy: parameters of dynamic load balancing; none when the file has none.
        trimming: parameters of trimming; none when nothing is trimmed.
        remarks: what was read and has no effect here, and why.
    """

    policy: dict[str, Setting] = field(default_factory=dict)
    trimming: dict[str, Setting] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
