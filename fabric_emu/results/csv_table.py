"""The tables of a run as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io

from fabric_emu.results.columns import by_scheme, columns
from fabric_emu.results.fault_columns import fault_columns
from fabric_emu.results.run import RunResult


def csv_of(run: RunResult) -> str:
    """Return both tables as CSV: a line per scheme and seed, figures unrounded in SI units."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    shown = {
        column.key: column
        for of_table in (columns, fault_columns)
        for column in of_table(run.schemes, ascii_only=True)
    }
    writer.writerow(["scheme", "seed", *shown, "trustworthy"])
    for rows in by_scheme(run).values():
        for row in rows:
            figures = [column.figure(row) for column in shown.values()]
            cells = [_written(figure) for figure in figures]
            trusted = str(row["verdict"]["trustworthy"]).lower()
            writer.writerow([row["name"], row["seed"], *cells, trusted])
    return text.getvalue()


def _written(figure: float | None) -> str:
    if figure is None:
        return ""
    return str(int(figure)) if figure.is_integer() else repr(figure)
