"""What a switch's configuration asks for, in the hardware's own units and under SAI's terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fabric_emu.importers.document import Section

Mode = Literal["flowlet-quality", "packet-quality", "packet-random", "fixed"]


@dataclass(frozen=True)
class Adaptive:
    """Adaptive routing (ARS, DLB) of one switch.

    A measure that is None is left to the emulator. A range runs from the best quality band to
    the worst.

    Attributes:
        mode: how a path is chosen.
        idle_us: silence after which a flow's next packet may take another path, microseconds.
        flows: entries of the flow table.
        sample_us: time between two measurements, microseconds.
        load_samples, queue_samples: samples that the moving averages reach back over.
        load_weight, queue_weight: of the port's load and of its queue in its quality, percent.
        load_range: of the load, as shares of the port's rate.
        queue_range: of the queue, bytes.
    """

    mode: Mode
    idle_us: int
    flows: int
    sample_us: float | None = None
    load_samples: int | None = None
    queue_samples: int | None = None
    load_weight: int | None = None
    queue_weight: int | None = None
    load_range: tuple[float, float] | None = None
    queue_range: tuple[int, int] | None = None


@dataclass(frozen=True)
class Trim:
    """Trimming of packets that find a queue full.

    Attributes:
        size: what is left of a packet, bytes.
        dscp: of what is left.
    """

    size: int
    dscp: int


@dataclass
class Found:
    """What was read of one file.

    Attributes:
        adaptive, trim: what it configures.
        origins: for a field of these two, where its value comes from.
        remarks: what was read and has no effect here, and why.
    """

    adaptive: Adaptive | None = None
    trim: Trim | None = None
    origins: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def note(self, name: str, section: Section, key: str, default: str) -> None:
        """Note that a field comes from a key of the file, or else from a default."""
        given = key in section
        self.origins[name] = f"{section.path(key)}: {section.values[key]}" if given else default
