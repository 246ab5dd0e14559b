"""Figures and lines as people read them."""

from __future__ import annotations

import math
import textwrap

from rich.console import Console
from rich.text import Text

from fabric_emu.units import format_duration

NONE = "-"


def percent(ratio: float | None, digits: int) -> str:
    """Return ``137.6 %`` for 1.376; what is not quite 0 or 100 % does not read as if it were."""
    if ratio is None:
        return NONE
    step = 10.0**-digits
    value = 100 * ratio
    text = f"{value:.{digits}f}"
    if 0 < value < 100 and float(text) >= 100:
        return f"{100 - step:.{digits}f} %"
    if value > 0 and float(text) == 0:
        return f"<{step:.{digits}f} %"
    return f"{text} %"


def ratio(value: float | None) -> str:
    """Return ``1.53``."""
    return NONE if value is None else f"{value:.2f}"


def three_digits(value: float) -> str:
    """Return ``9.30``, ``10.6``, ``412``."""
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits)}f}"


def count(value: float | None) -> str:
    """Return ``12,345``, over a million ``1.23 M``."""
    if value is None:
        return NONE
    if value >= 10**6:
        return f"{value / 10**6:.3g} M"
    return f"{value:,.0f}"


def duration(seconds: float | None, ascii_only: bool) -> str:
    """Return ``1.25 ms``: three digits."""
    if seconds is None:
        return NONE
    # Rounded first, so that 0.9999 ms is 1 ms.
    digits = 0 if not seconds else 2 - math.floor(math.log10(abs(seconds)))
    text = format_duration(round(seconds, digits))
    return text.replace("µ", "u") if ascii_only else text


def gpu_time(seconds: float | None) -> str:
    """Return ``7.09 h``, ``16.0 min`` or ``12.5 s``: time of many GPUs, three digits."""
    if seconds is None:
        return NONE
    size, unit = next((one for one in ((3600, "h"), (60, "min")) if seconds >= one[0]), (1, "s"))
    return f"{three_digits(seconds / size)} {unit}"


def printable(text: str) -> str:
    """Return text in one line and without control characters, which a terminal would obey."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())


def print_wrapped(console: Console, line: Text, indent: str = "    ") -> None:
    """Print a line; what does not fit goes on indented."""
    for part in textwrap.wrap(line.plain, max(console.width, 40), subsequent_indent=indent):
        console.print(Text(part, style=line.style), no_wrap=True, crop=False, overflow="ignore")
