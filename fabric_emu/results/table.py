"""The table of a run: one row per scheme, then uplinks as bars, then what to make of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fabric_emu.model.scenario import Scenario
from fabric_emu.results.bars import print_bars
from fabric_emu.results.describe import nodes, rates
from fabric_emu.results.figures import count, duration, percent, print_wrapped, printable, ratio
from fabric_emu.results.remarks import expectation_lines, prediction_lines, verdict_lines
from fabric_emu.results.run import RunResult

_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_SCHEME_MAX = 16
_TRUST_WIDTH = 6

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class _Column:
    """A column: its header, the figure of a summary, and how it is written.

    Attributes:
        rank: columns of the highest rank go first where the width does not suffice.
    """

    header: str
    figure: Callable[[Summary], float | None]
    write: Callable[[float | None], str]
    rank: int


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
    pictured = _pictured(run)
    with_seed = f" with seed {pictured[0]['seed']}" if several else ""
    print_bars(console, pictured, f"Load offered to uplinks{with_seed}")
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


def _columns(rows: Sequence[Summary], ascii_only: bool) -> list[_Column]:
    worst = worst_load_figure(rows)

    def of(figure: str) -> Callable[[Summary], float | None]:
        return lambda summary: figure_of(summary, figure)

    return [
        _Column(
            "worst\nuplink" if worst == "worst_uplink_load" else "worst\nlink",
            of(worst),
            lambda value: percent(value, 1),
            0,
        ),
        _Column("max /\nmean", _imbalance, ratio, 5),
        _Column("\nefficiency", of("efficiency"), lambda value: percent(value, 2), 1),
        _Column("\nreordered", of("reordering.ratio"), lambda value: percent(value, 2), 2),
        _Column("max\nextent", of("reordering.max_extent"), count, 6),
        _Column("delay\np99", of("delay.p99"), lambda value: duration(value, ascii_only), 4),
        _Column("\ndropped", _dropped, count, 3),
    ]


def _imbalance(summary: Summary) -> float | None:
    ratios = [figure_of(leaf, "max_over_mean") for leaf in summary["imbalance"].values()]
    return max((value for value in ratios if value is not None), default=None)


def _dropped(summary: Summary) -> float:
    return float(sum(summary["packets"]["dropped"].values()))


def _table(console: Console, run: RunResult) -> Table:
    ascii_only = not console.is_terminal or console.options.ascii_only
    schemes: dict[str, list[Summary]] = {}
    for summary in run.schemes:
        schemes.setdefault(summary["name"], []).append(summary)
    columns = _columns(run.schemes, ascii_only)
    cells = [[_cell(column, rows) for column in columns] for rows in schemes.values()]
    _mark_worst(cells, [_median(columns[0], rows) for rows in schemes.values()])
    verdicts = [_trust(rows) for rows in schemes.values()]
    name_width = max(6, min(_SCHEME_MAX, max(map(len, schemes))))
    kept, gap = _fit(columns, cells, console.width - name_width - _TRUST_WIDTH)

    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    table.add_column("\nscheme", width=name_width, overflow="fold")
    for i in kept:
        table.add_column(columns[i].header, justify="right", no_wrap=True)
    table.add_column("trust-\nworthy", no_wrap=True)
    for name, row, verdict in zip(schemes, cells, verdicts, strict=True):
        doubtful = not all(summary["verdict"]["trustworthy"] for summary in schemes[name])
        style = "yellow" if doubtful else ""
        table.add_row(name, *(row[i] for i in kept), Text(verdict, style=style))
    return table


def _cell(column: _Column, rows: Sequence[Summary]) -> Text:
    """Write the figure of one seed; of several the median and, below it, the range."""
    values = [value for row in rows if (value := column.figure(row)) is not None]
    if len(values) < 2:
        return Text(column.write(values[0] if values else None))
    texts = [column.write(value) for value in (statistics.median(values), min(values), max(values))]
    text = Text(texts[0])
    if len(set(texts)) > 1:
        unit = f" {texts[0].rpartition(' ')[2]}"
        if all(one.endswith(unit) for one in texts):
            texts = [one.removesuffix(unit) for one in texts]
        text.append(f"\n[{texts[1]}..{texts[2]}]", style="dim")
    return text


def _median(column: _Column, rows: Sequence[Summary]) -> float | None:
    values = [value for row in rows if (value := column.figure(row)) is not None]
    return statistics.median(values) if values else None


def _mark_worst(cells: Sequence[list[Text]], loads: Sequence[float | None]) -> None:
    """Mark the highest load, if one is higher than the others or over 100 %."""
    known = [load for load in loads if load is not None]
    if not known or (max(known) <= 1 and percent(max(known), 1) == percent(min(known), 1)):
        return
    for row, load in zip(cells, loads, strict=True):
        if load == max(known):
            row[0] = Text("*").append_text(row[0])
            row[0].stylize("bold red", 0, len(row[0].plain.partition("\n")[0]))


def _trust(rows: Sequence[Summary]) -> str:
    good = sum(row["verdict"]["trustworthy"] for row in rows)
    if len(rows) > 1:
        return f"{good}/{len(rows)}"
    return "yes" if good else "no"


def _fit(
    columns: Sequence[_Column], cells: Sequence[Sequence[Text]], room: int
) -> tuple[list[int], int]:
    """Return the columns that fit and the gap between them; the least telling go first."""
    widths = [
        max(len(line) for text in (column.header, *(row[i].plain for row in cells))
            for line in text.split("\n"))
        for i, column in enumerate(columns)
    ]  # fmt: skip
    kept = list(range(len(columns)))
    while True:
        for gap in (3, 2, 1):
            if sum(widths[i] for i in kept) + gap * (len(kept) + 1) <= room or len(kept) == 1:
                return kept, gap
        kept.remove(max(kept, key=lambda i: columns[i].rank))


def _pictured(run: RunResult) -> list[Summary]:
    """Return the summaries whose uplinks are drawn: of several seeds, those of the median one."""
    by_load = sorted(
        (row for row in run.schemes if row["name"] == run.schemes[0]["name"]),
        key=lambda row: figure_of(row, "worst_uplink_load") or 0.0,
    )
    seed = by_load[len(by_load) // 2]["seed"]
    return [row for row in run.schemes if row["seed"] == seed]
