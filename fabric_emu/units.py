"""Quantities as people write them ("100mbit", "4KB", "500us") and as the code keeps them.

The code keeps rates in bit/s, sizes in bytes and times in seconds; names carry the unit where
the type does not (``rate_bps``, ``gap_ns``).
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Zµ/]*)\s*")

_RATE = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_SIZE = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _parse(text: str, units: dict[str, float] | dict[str, int], kind: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match and match[2].lower() in units:
        return float(match[1]) * units[match[2].lower()]
    known = ", ".join(unit for unit in units if unit)
    raise ValueError(f"a {kind} such as {_EXAMPLE[kind]} (units: {known})")


_EXAMPLE = {"rate": "100mbit", "size": "4096 or 4KiB", "duration": "500us"}


def parse_rate(value: str | int | float) -> int:
    """Return bit/s for "100mbit" (also a plain number of bit/s). Raises ValueError."""
    if not isinstance(value, str):
        return round(value)
    return round(_parse(re.sub(r"bps$|bit/s$", "bit", value.lower()), _RATE, "rate"))


def parse_size(value: str | int | float) -> int:
    """Return bytes for "4KiB", "1MB" or a plain number. Raises ValueError."""
    return round(_parse(value, _SIZE, "size") if isinstance(value, str) else value)


def parse_duration(value: str | int | float) -> float:
    """Return seconds for "500us" (also a plain number of seconds). Raises ValueError."""
    return _parse(value, _TIME, "duration") if isinstance(value, str) else float(value)


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.4g} {unit}"


def format_rate(rate_bps: float) -> str:
    """Return "100 Mbit/s" for 1e8."""
    return _scaled(
        rate_bps,
        [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")],
    )


def format_size(size_bytes: float) -> str:
    """Return "1.5 MB" for 1,500,000."""
    return _scaled(size_bytes, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


def format_duration(seconds: float) -> str:
    """Return "350 µs" for 0.00035."""
    return _scaled(seconds, [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])
