"""``fabric-emu export``: results in the formats of other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from fabric_emu.commands.saved import LATEST, SavedRunFolder, read_runs


@click.command()
@click.argument("run", type=SavedRunFolder(), default=LATEST, metavar="[RUN]")
@click.option(
    "--format",
    "output",
    type=click.Choice(["nccl-tests", "prometheus"]),
    required=True,
    help="nccl-tests: a block like that of its programs, for each scheme of a collective. "
    "prometheus: gauges in its text format, as the node exporter's textfile collector reads them.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to FILE, replaced whole.  [default: standard output]",
)
def export(run: str, output: Literal["nccl-tests", "prometheus"], out: Path | None) -> None:
    """Write the figures of a run in the format of another tool.

    RUN is a folder, its name in results, a scenario (its latest run there), or "latest", which is
    also meant when it is left out.
    Needs no root.
    """
    from fabric_emu.results.export import nccl_tests, prometheus
    from fabric_emu.results.folder import write_file

    ((_, result),) = read_runs((run,))
    text = nccl_tests(result) if output == "nccl-tests" else prometheus(result)
    if out is None:
        sys.stdout.write(text)
    else:
        write_file(out, text.encode())
