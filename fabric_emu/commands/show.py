"""``fabric-emu show``: the table of a run again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fabric_emu.commands.saved import LATEST, SavedRunFolder, read_runs
from fabric_emu.commands.terminal import terminal


@click.command()
@click.argument("runs", nargs=-1, type=SavedRunFolder(), metavar="[RUN]...")
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the table as CSV instead, unrounded, in SI units; - is standard output.",
)
def show(runs: tuple[str, ...], csv_file: Path | None) -> None:
    """Print the table of runs again.

    RUN is a folder, its name in results, a scenario (its latest run there), or "latest", which is
    also meant when none is given.
    Needs no root.
    """
    from fabric_emu.results.csv_table import csv_of
    from fabric_emu.results.folder import write_file
    from fabric_emu.results.table import print_run

    found = [run for _, run in read_runs(runs or (LATEST,))]
    if csv_file is not None:
        if len(found) > 1:
            raise click.UsageError("--csv: one run at a time")
        if str(csv_file) == "-":
            sys.stdout.write(csv_of(found[0]))
        else:
            write_file(csv_file, csv_of(found[0]).encode())
        return
    for number, run in enumerate(found):
        if number:
            click.echo()
        print_run(terminal(), run)
