"""The live picture in a terminal: lines of text that fit its width and height."""

from __future__ import annotations

from rich.text import Text

from fabric_emu.results.figures import count, percent, printable
from fabric_emu.results.live import STAGES, Layout, Picture
from fabric_emu.units import format_rate

_PAST_MAX = 4
_BAR_MIN, _BAR_MAX = 10, 30
_PERCENT, _QUEUE = 6, 7
_GAP = "  "
_FULL_SHARE = 2 / 3
"""Where in a bar 100 % stands: there is room for loads up to 150 %."""


def lines(
    layout: Layout, picture: Picture, width: int, height: int, ascii_only: bool
) -> list[Text]:
    """Return the picture as lines, ``height`` at most, none wider than ``width``."""
    head = [*_head(layout, picture), *_past(layout, picture)]
    room = max(height - len(head) - 1, 3)
    drawn = [*head, Text(), *_bars(layout, picture, width, room, ascii_only)]
    for line in drawn:
        line.truncate(width)
    return drawn[: max(height, 1)]


def _head(layout: Layout, picture: Picture) -> list[Text]:
    scheme, seed = layout.runs[picture.run]
    title = Text(printable(layout.title), style="bold")
    left_s = max(layout.duration_s - picture.elapsed_s, 0.0)
    which = f"{picture.run + 1} of {len(layout.runs)}: {scheme}, seed {seed}"
    stage = STAGES[picture.stage]
    elapsed = max(picture.elapsed_s, 0.0)
    time = f"   {elapsed:.1f} s, {left_s:.1f} s to go at most" if stage == "send" else f"   {stage}"
    status = Text(which, style="bold cyan").append(time, style="")
    rate = format_rate(round(picture.offered_bps, -3))
    flow = Text(f"offered {rate}   queued {_bytes(picture.queued_bytes)}   ")
    flow.append(f"reordered {percent(picture.reordered, 1)}")
    totals = Text("dropped ")
    totals.append(count(picture.dropped), style="red" if picture.dropped else "")
    totals.append(f"   trimmed {count(picture.trimmed)}   marked {count(picture.marked)}")
    return [title, status, flow, totals]


def _past(layout: Layout, picture: Picture) -> list[Text]:
    """Return a line for each run that is over, the latest."""
    shown = picture.past[-_PAST_MAX:]
    names = [f"{layout.runs[one.run][0]}, seed {layout.runs[one.run][1]}" for one in shown]
    width = max(map(len, names), default=0)
    return [
        Text(
            f"{name:<{width}}: {percent(one.load, 0)} on {one.link}, "
            f"reordered {percent(one.reordered, 1)}, "
            f"dropped {count(one.dropped)}, trimmed {count(one.trimmed)}",
            style="dim",
        )
        for name, one in zip(names, shown, strict=True)
    ]


def _bars(
    layout: Layout, picture: Picture, width: int, height: int, ascii_only: bool
) -> list[Text]:
    """Return the leaves' bars side by side; of leaves that do not fit, how busy they are."""
    name_width = max(map(len, layout.names), default=0)
    beside = name_width + _PERCENT + _QUEUE + 3
    columns = max(1, (width + len(_GAP)) // (beside + _BAR_MIN + len(_GAP)))
    columns = min(columns, len(layout.switches))
    each = (width - (columns - 1) * len(_GAP)) // columns
    bar = min(max(each - beside, _BAR_MIN), _BAR_MAX)
    drawn: list[Text] = []
    for first in range(0, len(layout.switches), columns):
        row = layout.switches[first : first + columns]
        tallest = 1 + max(end - begin for _, begin, end in row)
        left = height - len(drawn)
        last = first + columns >= len(layout.switches)
        if tallest > left - (0 if last else 1) and first:
            drawn.append(_rest(layout, picture, first))
            break
        if first and left > tallest + 1:
            drawn.append(Text())
        blocks = [
            _block(layout, picture, switch, name_width, bar, left, ascii_only) for switch in row
        ]
        for i in range(max(map(len, blocks))):
            cells = [block[i] if i < len(block) else Text(" " * (beside + bar)) for block in blocks]
            drawn.append(Text(_GAP).join(cells))
    return drawn


def _rest(layout: Layout, picture: Picture, first: int) -> Text:
    begin = layout.switches[first][1]
    busiest = begin + int(picture.load[begin:].argmax())
    more = len(layout.switches) - first
    load = percent(float(picture.load[busiest]), 0)
    return Text(f"{more} more leaves, up to {load} ({layout.links[busiest]})", style="dim")


def _block(
    layout: Layout,
    picture: Picture,
    switch: tuple[str, int, int],
    name_width: int,
    bar: int,
    height: int,
    ascii_only: bool,
) -> list[Text]:
    name, begin, end = switch
    width = name_width + bar + _PERCENT + _QUEUE + 3
    title = Text(f"{name:<{width}}", style="bold")
    title.truncate(width)
    shown = range(begin, min(end, begin + max(height - 2, 1)) if end - begin >= height else end)
    found = [title]
    for i in shown:
        load = float(picture.load[i])
        line = Text(f"{layout.names[i]:<{name_width}} ")
        line.append_text(_bar(load, bar, ascii_only))
        line.append(f" {percent(load, 0):>{_PERCENT}}", style="bold red" if load > 1 else "")
        line.append(f" {_bytes(int(picture.depth_bytes[i])):>{_QUEUE}}", style="dim")
        found.append(line)
    if len(shown) < end - begin:
        most = percent(float(picture.load[begin + len(shown) : end].max()), 0)
        text = f"{end - begin - len(shown)} more, up to {most}"
        found.append(Text(f"{text:<{width}}", style="dim"))
    return found


def _bar(load: float, width: int, ascii_only: bool) -> Text:
    """Draw a bar with a mark at 100 %; what is over it is red."""
    full = round(_FULL_SHARE * (width - 1))
    below = round(min(load, 1.0) * full)
    room = width - 1 - full
    above = min(max(1, round((load - 1) * full)), room) if load > 1 else 0
    filled, mark = ("#", "|") if ascii_only else ("█", "│")
    text = Text()
    text.append(filled * below, "green").append(" " * (full - below)).append(mark, "bold")
    return text.append(filled * above, "red").append(" " * (room - above))


def _bytes(number: int) -> str:
    if number >= 10**6:
        return f"{number / 10**6:.1f} MB"
    return f"{number / 1000:.0f} kB" if number >= 10**4 else f"{number} B"
