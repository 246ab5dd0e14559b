"""The table of a run: one row per scheme, then uplinks as bars, then what to make of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fabric_emu.model.scenario import Scenario
from fabric_emu.results.bars import print_bars
from fabric_emu.results.columns import (
    Column,
    Summary,
    by_scheme,
    cell,
    columns,
    judging,
    pictured,
    worst_rows,
)
from fabric_emu.results.describe import nodes, rates
from fabric_emu.results.figures import print_wrapped, printable
from fabric_emu.results.remarks import expectation_lines, prediction_lines, verdict_lines
from fabric_emu.results.run import RunResult

_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_SCHEME_MAX = 16
_TRUST = ("trust-\nworthy", "\ntrust")
"""The last column's header, and where the width is scarce."""


def print_run(console: Console, run: RunResult) -> None:
    """Print a run for people; on what is no terminal in plain ASCII without colours."""
    topology = Scenario.model_validate(run.scenario).topology
    several = len(run.seeds) > 1
    seed = "" if several else f"; seed {run.seed}"
    print_wrapped(console, Text(printable(run.scenario["title"]), style="bold"))
    print_wrapped(console, Text(f"{nodes(topology)}; {rates(topology)}{seed}"))
    if several:
        console.print(f"seeds {run.seed} to {run.seeds[-1]}: median [min..max]")
    if not run.schemes:
        return
    console.print()
    _print_trimmed(console, _table(console, run))
    drawn = pictured(run)
    with_seed = f" with seed {drawn[0]['seed']}" if several else ""
    print_bars(console, drawn, f"Load offered to uplinks{with_seed}")
    console.print()
    for line in (*verdict_lines(run), *prediction_lines(run), *expectation_lines(run)):
        print_wrapped(console, line)


def _print_trimmed(console: Console, table: Table) -> None:
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(line.rstrip())


def _table(console: Console, run: RunResult) -> Table:
    ascii_only = not console.is_terminal or console.options.ascii_only
    schemes = by_scheme(run)
    shown = columns(run.schemes, ascii_only)
    cells = [[_cell(column, rows) for column in shown] for rows in schemes.values()]
    at = shown.index(judging(shown))
    for i in worst_rows(shown, list(schemes.values())):
        cells[i][at] = _marked(cells[i][at])
    verdicts = [_trust(rows) for rows in schemes.values()]
    name_width = max(6, min(_SCHEME_MAX, max(map(len, schemes))))
    headers, kept, gap = _fit(
        shown,
        [[*row, Text(verdict)] for row, verdict in zip(cells, verdicts, strict=True)],
        console.width - name_width,
    )

    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    table.add_column("\nscheme", width=name_width, overflow="fold")
    for i in kept:
        table.add_column(headers[i], justify="right", no_wrap=True)
    table.add_column(headers[-1], no_wrap=True)
    for name, row, verdict in zip(schemes, cells, verdicts, strict=True):
        doubtful = not all(summary["verdict"]["trustworthy"] for summary in schemes[name])
        style = "yellow" if doubtful else ""
        table.add_row(name, *(row[i] for i in kept), Text(verdict, style=style))
    return table


def _cell(column: Column, rows: Sequence[Summary]) -> Text:
    """Write the figure of one seed; of several the median and, below it, the range."""
    whole, spread = cell(column, rows)
    text = Text(whole)
    if spread:
        text.append(f"\n{spread}", style="dim")
    return text


def _marked(text: Text) -> Text:
    marked = Text("*").append_text(text)
    marked.stylize("bold red", 0, len(marked.plain.partition("\n")[0]))
    return marked


def _trust(rows: Sequence[Summary]) -> str:
    good = sum(row["verdict"]["trustworthy"] for row in rows)
    if len(rows) > 1:
        return f"{good}/{len(rows)}"
    return "yes" if good else "no"


def _fit(
    shown: Sequence[Column], cells: Sequence[Sequence[Text]], room: int
) -> tuple[list[str], list[int], int]:
    """Return headers (the verdict's last), the columns that fit, and the gap between them.

    Where all do not fit, headers are narrower; where that does not do, the columns that tell least
    go.
    """
    wide = [*(column.header for column in shown), _TRUST[0]]
    narrow = [*(column.narrow or column.header for column in shown), _TRUST[1]]
    every = list(range(len(shown)))
    for headers in (wide, narrow):
        widths = _widths(headers, cells)
        if gap := _gap(widths, every, room):
            return headers, every, gap
    kept = every
    while len(kept) > 1:
        kept.remove(max(kept, key=lambda i: shown[i].rank))
        if gap := _gap(widths, kept, room):
            return narrow, kept, gap
    return narrow, kept, 1


def _widths(headers: Sequence[str], cells: Sequence[Sequence[Text]]) -> list[int]:
    return [
        max(len(line) for text in (header, *(row[i].plain for row in cells))
            for line in text.split("\n"))
        for i, header in enumerate(headers)
    ]  # fmt: skip


def _gap(widths: Sequence[int], kept: Sequence[int], room: int) -> int:
    """Return the widest gap with which these columns and the last fit; 0 when none does."""
    taken = widths[-1] + sum(widths[i] for i in kept)
    return next((gap for gap in (3, 2, 1) if taken + gap * (len(kept) + 1) <= room), 0)
