"""Rows of a comparison: what is required of them, their table, their JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

MISSING = "not installed; remedy: scripts/setup --with-bench"

Samples = tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One thing measured, alone or beside an alternative.

    Attributes:
        subject, what: the subject it belongs to, and what was measured.
        unit: of ``ours`` and ``theirs``.
        ours, theirs: one figure per repetition; where both have as many, they were taken in pairs.
        alternative: who ``theirs`` are of; empty without one.
        less_is_better: for durations and losses.
        required_ratio: how many times better ours must be.
        limit: the worst that ours may be.
        note: what the reader should know.
    """

    subject: str
    what: str
    unit: str
    ours: Samples
    alternative: str = ""
    theirs: Samples = ()
    less_is_better: bool = False
    required_ratio: float | None = None
    limit: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """Median of ours."""
        return statistics.median(self.ours)

    @property
    def their_value(self) -> float | None:
        """Median of theirs."""
        return statistics.median(self.theirs) if self.theirs else None

    @property
    def ratio(self) -> float | None:
        """How many times better ours is: the median over pairs, or of the medians."""
        if not self.theirs:
            return None
        if len(self.ours) == len(self.theirs):
            return statistics.median(map(self._times_better, self.ours, self.theirs))
        return self._times_better(self.value, statistics.median(self.theirs))

    def _times_better(self, ours: float, theirs: float) -> float:
        better, worse = (theirs, ours) if self.less_is_better else (ours, theirs)
        return better / worse if worse else float("inf")

    @property
    def passed(self) -> bool | None:
        """Whether all that is required holds; None where nothing is, or it was not measured."""
        checks: list[bool | None] = []
        if self.limit is not None:
            within = self.value <= self.limit if self.less_is_better else self.value >= self.limit
            checks.append(within)
        if self.required_ratio is not None:
            checks.append(None if self.ratio is None else self.ratio >= self.required_ratio)
        if False in checks:
            return False
        return None if None in checks or not checks else True

    @property
    def required(self) -> str:
        """What is required, in words; empty for nothing."""
        parts = []
        if self.required_ratio is not None:
            parts.append(f"≥ {self.required_ratio:g}×")
        if self.limit is not None:
            sign = "≤" if self.less_is_better else "≥"
            parts.append(f"{sign} {figure(self.limit, self.unit)}")
        return ", ".join(parts)


def figure(value: float | None, unit: str = "") -> str:
    """Write a number with three digits and its unit: 83.2 k/s, 0.71 s."""
    if value is None:
        return ""
    scale, prefix = next(
        ((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= scale), (1.0, "")
    )
    digits = f"{value / scale:.3g}"
    return f"{digits} {prefix}{unit}".rstrip()


_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """Print the rows as a table, one section per subject, and below it what they note."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("", "ours", "alternative", "theirs", "ratio", "required", "verdict"):
        right = header in ("ours", "theirs", "ratio")
        table.add_column(header, justify="right" if right else "left")
    for subject in dict.fromkeys(row.subject for row in rows):
        table.add_section()
        table.add_row(Text(subject, style="bold"))
        for row in rows:
            if row.subject == subject:
                table.add_row(*_cells(row))
    console.print(table)
    for row in rows:
        if row.note:
            beside = f" ({row.alternative})" if row.alternative else ""
            console.print(f"{row.what}{beside}: {row.note}")


def _cells(row: Row) -> tuple[str | Text, ...]:
    return (
        row.what,
        figure(row.value, row.unit),
        row.alternative,
        figure(row.their_value, row.unit),
        f"{figure(row.ratio)}×" if row.ratio is not None else "",
        row.required,
        _VERDICT[row.passed],
    )


_VERDICT = {True: Text("pass", "green"), False: Text("fail", "bold red"), None: Text("")}


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as plain data; units as in the rows, medians beside all samples."""
    return [
        {
            "subject": row.subject,
            "what": row.what,
            "unit": row.unit,
            "ours": row.value,
            "ours_samples": list(row.ours),
            "alternative": row.alternative or None,
            "theirs": row.their_value,
            "theirs_samples": list(row.theirs),
            "less_is_better": row.less_is_better,
            "ratio": row.ratio,
            "required_ratio": row.required_ratio,
            "limit": row.limit,
            "passed": row.passed,
            "note": row.note,
        }
        for row in rows
    ]
