"""Small multiples: what each scheme asked of every link of the busiest switch, as one SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS, _PANEL, _HEIGHT, _GAP, _TOP = 4, 216, 110, 24, 22
_CARRIED, _OVER, _TEXT = "#1f83c9", "#d9601a", "#30363d"


def link_bars_svg(summaries: Sequence[Mapping[str, Any]], downlinks: bool = False) -> str:
    """Return bars per uplink, a panel per scheme, a line at 100 %; empty when none has uplinks.

    All panels have one scale. The switch is the one with the busiest uplink of all.

    Args:
        summaries: one per panel.
        downlinks: draw the links that lead down to a switch instead of its uplinks.
    """
    loads = [_loads(summary, downlinks) for summary in summaries]
    peaks: dict[str, float] = {}
    for of_scheme in loads:
        for switch, offered in of_scheme.items():
            peaks[switch] = max([peaks.get(switch, 0.0), *offered])
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
    for i, (summary, of_scheme) in enumerate(zip(summaries, loads, strict=True)):
        offered = of_scheme.get(switch, [])
        left = _GAP + (i % columns) * (_PANEL + _GAP)
        base = _GAP / 2 + (i // columns) * (_HEIGHT + _TOP + _GAP) + _TOP + _HEIGHT
        title = html.escape(f"{summary['name']}, {'down to ' if downlinks else ''}{switch}")
        parts.append(
            f'<text x="{left}" y="{base - _HEIGHT - 8:g}" fill="{_TEXT}">{title}: '
            f"{100 * max(offered, default=0.0):.0f} %</text>"
        )
        parts += _panel(offered, left, base, top)
    return "\n".join([*parts, "</svg>", ""])


def _loads(summary: Mapping[str, Any], downlinks: bool) -> dict[str, list[float]]:
    """Return by switch what was asked of each link, over what it could carry."""
    links = summary["downlinks" if downlinks else "uplinks"]
    return {
        switch: [link["offered"] / (link.get("room") or 1.0) for link in of_switch]
        for switch, of_switch in links.items()
    }


def _panel(offered: Sequence[float], left: float, base: float, top: float) -> list[str]:
    """Return a panel's bars; what is over 100 % in a colour of its own."""
    scale = _HEIGHT / top
    step = _PANEL / max(len(offered), 1)
    found = []
    for i, load in enumerate(offered):
        x, bar = left + i * step + 0.1 * step, 0.8 * step
        carried, over = min(load, 1.0) * scale, max(load - 1.0, 0.0) * scale
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
