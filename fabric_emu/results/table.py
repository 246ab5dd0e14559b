"""The tables of a run, one row per scheme, then uplinks as bars, then what to make of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.box import Box
from rich.console import Console, JustifyMethod
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
from fabric_emu.results.describe import fault_text, nodes, rates
from fabric_emu.results.fault_columns import fault_columns
from fabric_emu.results.figures import print_wrapped, printable
from fabric_emu.results.remarks import expectation_lines, prediction_lines, verdict_lines
from fabric_emu.results.run import RunResult

_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_SCHEME_MAX = 16


@dataclass(frozen=True)
class _Head:
    """What ``Column`` calls header, narrow and rank."""

    wide: str
    narrow: str
    rank: int
    justify: JustifyMethod = "right"


_TRUST = _Head("trust-\nworthy", "\ntrust", -1, "left")
"""The last column; it stays whatever the width."""


def print_run(console: Console, run: RunResult) -> None:
    """Print a run for people; on what is no terminal in plain ASCII without colours."""
    scenario = Scenario.model_validate(run.scenario)
    topology = scenario.topology
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
    if faults := _fault_table(console, run):
        console.print()
        for fault in scenario.faults:
            print_wrapped(console, Text(f"Fault: {fault_text(fault)}"))
        console.print()
        _print_trimmed(console, faults)
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
    schemes = by_scheme(run)
    shown = columns(run.schemes, _ascii_only(console))
    cells = _cells(shown, schemes)
    at = shown.index(judging(shown))
    for i in worst_rows(shown, list(schemes.values())):
        cells[i][at] = _marked(cells[i][at])
    for row, summaries in zip(cells, schemes.values(), strict=True):
        doubtful = not all(summary["verdict"]["trustworthy"] for summary in summaries)
        row.append(Text(_trust(summaries), style="yellow" if doubtful else ""))
    heads = [_Head(column.header, column.narrow, column.rank) for column in shown]
    return _grid(console, [*heads, _TRUST], schemes, cells)


def _fault_table(console: Console, run: RunResult) -> Table | None:
    """Return what recovery took; None when there was nothing to recover from."""
    shown = fault_columns(run.schemes, _ascii_only(console))
    if not shown:
        return None
    schemes = by_scheme(run)
    heads = [_Head(column.header, column.narrow, column.rank) for column in shown]
    return _grid(console, heads, schemes, _cells(shown, schemes))


def _ascii_only(console: Console) -> bool:
    return not console.is_terminal or console.options.ascii_only


def _cells(shown: Sequence[Column], schemes: Mapping[str, Sequence[Summary]]) -> list[list[Text]]:
    return [[_cell(column, rows) for column in shown] for rows in schemes.values()]


def _grid(
    console: Console, heads: Sequence[_Head], names: Iterable[str], cells: Sequence[Sequence[Text]]
) -> Table:
    names = list(names)
    name_width = max(6, min(_SCHEME_MAX, max(map(len, names))))
    headers, kept, gap = _fit(heads, cells, console.width - name_width)
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    table.add_column("\nscheme", width=name_width, overflow="fold")
    for i in kept:
        table.add_column(headers[i], justify=heads[i].justify, no_wrap=True)
    for name, row in zip(names, cells, strict=True):
        table.add_row(name, *(row[i] for i in kept))
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
    heads: Sequence[_Head], cells: Sequence[Sequence[Text]], room: int
) -> tuple[list[str], list[int], int]:
    """Return headers, the columns that fit, and the gap between them.

    Where all do not fit, headers are narrower; where that does not do, the columns that tell least
    go.
    """
    wide = [head.wide for head in heads]
    narrow = [head.narrow or head.wide for head in heads]
    every = list(range(len(heads)))
    for headers in (wide, narrow):
        widths = _widths(headers, cells)
        if gap := _gap(widths, every, room):
            return headers, every, gap
    kept = every
    while len(kept) > 2:
        kept.remove(max(kept, key=lambda i: heads[i].rank))
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
    """Return the widest gap with which these columns fit; 0 when none does."""
    taken = sum(widths[i] for i in kept)
    return next((gap for gap in (3, 2, 1) if taken + gap * len(kept) <= room), 0)
