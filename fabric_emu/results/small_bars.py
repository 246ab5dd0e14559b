"""Small multiples: what each scheme asked of every uplink of the busiest switch, as one SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS, _PANEL, _HEIGHT, _GAP, _TOP = 4, 216, 110, 24, 22
_CARRIED, _OVER, _TEXT = "#1f83c9", "#d9601a", "#30363d"


def uplink_bars_svg(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return bars per uplink, a panel per scheme, a line at 100 %; empty when none has uplinks.

    All panels have one scale. The switch is the one with the busiest uplink of all.
    """
    peaks: dict[str, float] = {}
    for summary in summaries:
        for switch, uplinks in summary["uplinks"].items():
            peaks[switch] = max([peaks.get(switch, 0.0), *(link["offered"] for link in uplinks)])
    if not peaks or not max(peaks.values()):
        return ""
    switch = max(peaks, key=peaks.__getitem__)
    top = max(1.1, 1.05 * peaks[switch])
    columns = min(_COLUMNS, len(summaries))
    rows = -(-len(summaries) // columns)
    width = columns * (_PANEL + _GAP) + _GAP
    height = rows * (_HEIGHT + _TOP + _GAP) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, summary in enumerate(summaries):
        left = _GAP + (i % columns) * (_PANEL + _GAP)
        base = _GAP / 2 + (i // columns) * (_HEIGHT + _TOP + _GAP) + _TOP + _HEIGHT
        title = html.escape(f"{summary['name']}, {switch}")
        worst = max((link["offered"] for link in summary["uplinks"].get(switch, ())), default=0.0)
        parts.append(
            f'<text x="{left}" y="{base - _HEIGHT - 8:g}" fill="{_TEXT}">{title}: worst '
            f"{100 * worst:.0f} %</text>"
        )
        parts += _panel(summary["uplinks"].get(switch, ()), left, base, top)
    return "\n".join([*parts, "</svg>", ""])


def _panel(uplinks: Sequence[Mapping[str, Any]], left: float, base: float, top: float) -> list[str]:
    """Return a panel's bars; what is over 100 % in a colour of its own."""
    scale = _HEIGHT / top
    step = _PANEL / max(len(uplinks), 1)
    found = []
    for i, uplink in enumerate(uplinks):
        x, bar = left + i * step + 0.1 * step, 0.8 * step
        carried = min(uplink["offered"], 1.0) * scale
        over = max(uplink["offered"] - 1.0, 0.0) * scale
        found.append(_rectangle(x, base - carried, bar, carried, _CARRIED))
        if over:
            found.append(_rectangle(x, base - carried - over, bar, over, _OVER))
    at = base - scale
    for y, dash in ((base, ""), (at, ' stroke-dasharray="4 3"')):
        found.append(
            f'<line x1="{left}" x2="{left + _PANEL}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{_TEXT}"{dash}/>'
        )
    return found


def _rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )
