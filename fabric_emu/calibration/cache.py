"""What was found out about a scenario on this machine, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import pwd
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from fabric_emu.calibration.search import MARGIN
from fabric_emu.calibration.slower import slowed
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.folder import write_file

_IRRELEVANT = ("title", "claim", "source", "expect", "seed")
_BYTES_MAX = 4096


@dataclass(frozen=True)
class Calibration:
    """What a machine carries of a scenario.

    Attributes:
        factor: of the rates asked for, at most 1.
        link_rate_bps: what that makes of ``link_rate``.
        delay_floor_s: the least delay of a packet in the control run.
        base_delay_s: the share of it that every message of the ideal gets.
    """

    factor: float
    link_rate_bps: int
    delay_floor_s: float
    base_delay_s: float

    def applied_to(self, scenario: Scenario) -> Scenario:
        """Return the scenario at the rates that were found."""
        return slowed(scenario, self.factor)

    def document(self) -> dict[str, Any]:
        """Return what ``run.json`` has of it, under ``machine``."""
        return {"calibration": asdict(self)}


def key_of(scenario: Scenario) -> str:
    """Return what a calibration holds for: machine, kernel, version, and what loads the machine."""
    data = scenario.model_dump(mode="json", by_alias=True)
    for name in _IRRELEVANT:
        del data[name]
    del data["workload"]["duration"], data["topology"]["rate"]
    processors = sorted(os.sched_getaffinity(0))
    what = [data, platform.release(), _processor(), processors, _version(), MARGIN]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def cache_file(key: str) -> Path:
    """Return where a calibration is kept: with the user behind sudo, if there is one."""
    chosen, user = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("SUDO_UID", "")
    if os.path.isabs(chosen):
        folder = Path(chosen)
    elif os.geteuid() == 0 and user.isdecimal():
        folder = Path(pwd.getpwuid(int(user)).pw_dir, ".cache")
    else:
        folder = Path.home() / ".cache"
    return folder / "fabric-emu" / f"calibration-{key}.json"


def load(key: str) -> Calibration | None:
    """Return a calibration that was kept; None when there is none, or none that can be used.

    The file belongs to a user, and root reads it: no link is followed and nothing is believed that
    a calibration could not say.
    """
    try:
        fd = os.open(cache_file(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            data = json.loads(file.read(_BYTES_MAX))
        numbers = {name: float(data[name]) for name in Calibration.__dataclass_fields__}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    floor, base = numbers["delay_floor_s"], numbers["base_delay_s"]
    rate = numbers.pop("link_rate_bps")
    if not (0 < numbers["factor"] <= 1 and 0 <= base <= floor < 1 and math.isfinite(rate)):
        return None
    return Calibration(link_rate_bps=int(rate), **numbers)


def keep(key: str, found: Calibration) -> None:
    """Keep a calibration.

    Raises:
        FabricError: it cannot be written.
    """
    write_file(cache_file(key), (json.dumps(asdict(found), indent=2) + "\n").encode())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _version() -> str:
    try:
        return metadata.version("fabric-emu")
    except metadata.PackageNotFoundError:
        return ""
