"""Bars of the load that each switch offered to its uplinks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from fabric_emu.results.figures import percent

SWITCHES_MAX = 4
UPLINKS_MAX = 32
_BAR_MIN, _BAR_MAX = 12, 50
_NUMBER = 8
_GAP = "   "


@dataclass(frozen=True)
class _Ink:
    """Characters of a bar: below 100 %, above it, the mark at 100 %, and parts of a cell."""

    filled: str
    over: str
    mark: str
    eighths: str


_PLAIN = _Ink("#", "!", "|", "")
_DRAWN = _Ink("█", "█", "│", "▏▎▍▌▋▊▉")


def print_bars(console: Console, summaries: Sequence[Mapping[str, Any]], caption: str) -> None:
    """Print the uplinks of every switch that sends, the summaries (one per scheme) side by side.

    Of many switches the busiest are shown. All bars have one scale; a mark stands at 100 %, and
    what is over it is drawn differently.
    """
    blocks = {
        (switch, summary["name"]): uplinks
        for summary in summaries
        for switch, uplinks in summary["uplinks"].items()
        if any(uplink["offered"] > 0 for uplink in uplinks)
    }
    if not blocks:
        return
    peaks: dict[str, float] = {}
    for (switch, _), uplinks in blocks.items():
        peaks[switch] = max(peaks.get(switch, 0.0), *(uplink["offered"] for uplink in uplinks))
    busiest = sorted(peaks, key=peaks.__getitem__, reverse=True)[:SWITCHES_MAX]
    shown = [
        [(switch, summary["name"]) for summary in summaries if (switch, summary["name"]) in blocks]
        for switch in peaks
        if switch in busiest
    ]
    keys = [key for of_switch in shown for key in of_switch]
    names = max(len(_label(key[0], uplink)) for key in keys for uplink in blocks[key])
    columns, bar = _layout(console.width, names, max(map(len, shown)))
    # Each switch in a new row, so that its schemes are what stands side by side.
    rows = [of[first:][:columns] for of in shown for first in range(0, len(of), columns)]
    ink = _DRAWN if console.is_terminal and not console.options.ascii_only else _PLAIN
    top = max(1.0, *peaks.values())
    console.print()
    console.print(f"{caption}; {ink.mark} is 100 %")
    for row_keys in rows:
        drawn = [_block(key, blocks[key], names, bar, top, ink) for key in row_keys]
        console.print()
        blank = Text(" " * drawn[0][0].cell_len)
        for row in itertools.zip_longest(*drawn, fillvalue=blank):
            line = Text(_GAP).join(row)
            line.rstrip()
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    left_out = [peaks[switch] for switch in peaks if switch not in busiest]
    if left_out:
        console.print()
        console.print(
            f"{len(left_out)} more switches send; their busiest uplink: {percent(max(left_out), 1)}"
        )


def _layout(width: int, names: int, blocks: int) -> tuple[int, int]:
    """Return how many blocks stand side by side and the length of a full bar."""
    beside = names + 1 + 1 + _NUMBER
    half = (width - len(_GAP)) // 2 - beside
    if blocks > 1 and half >= _BAR_MIN:
        return 2, min(half, _BAR_MAX)
    return 1, min(max(width - beside, _BAR_MIN), _BAR_MAX)


def _label(switch: str, uplink: Mapping[str, Any]) -> str:
    above: str = uplink.get("spine") or uplink.get("super_spine") or ""
    link: str = uplink.get("link", "")
    # With parallel links the name of the link says which: leaf1-spine2.1.
    return link.removeprefix(f"{switch}-") or above


def _block(
    key: tuple[str, str],
    uplinks: Sequence[Mapping[str, Any]],
    names: int,
    bar: int,
    top: float,
    ink: _Ink,
) -> list[Text]:
    switch, scheme = key
    width = names + 1 + bar + 1 + _NUMBER
    lines = [_title(f"{switch}, {scheme}", width)]
    busiest_first = sorted(range(len(uplinks)), key=lambda i: uplinks[i]["offered"], reverse=True)
    for i in sorted(busiest_first[:UPLINKS_MAX]):
        offered = uplinks[i]["offered"]
        line = Text(_label(switch, uplinks[i]).ljust(names) + " ")
        line.append(_bar(offered, bar, top, ink))
        line.append(f" {percent(offered, 1):>{_NUMBER}}", style="bold red" if offered > 1 else "")
        lines.append(line)
    if left_out := busiest_first[UPLINKS_MAX:]:
        most = uplinks[left_out[0]]["offered"]
        lines.append(_title(f"{len(left_out)} more, up to {percent(most, 1)}", width))
    return lines


def _title(text: str, width: int) -> Text:
    line = Text(text, style="bold")
    line.truncate(width, pad=True)
    return line


def _bar(offered: float, bar: int, top: float, ink: _Ink) -> Text:
    """Draw one bar: cells up to 100 %, the mark, cells over it."""
    scale = (bar - 1) / top
    below = bar - 1 if top <= 1 else min(bar - 2, round(scale))
    filled = min(offered, 1.0) * below
    text = Text()
    text.append(ink.filled * int(filled), style="green")
    if ink.eighths and (part := int(8 * (filled - int(filled)))):
        text.append(ink.eighths[part - 1], style="green")
    text.append(" " * (below - len(text)))
    text.append(ink.mark, style="bold")
    if offered > 1:
        # However little is over, it shows.
        text.append(ink.over * max(1, min(bar - 1 - below, round((offered - 1) * scale))), "red")
    text.append(" " * (bar - len(text)))
    return text
