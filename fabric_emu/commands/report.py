"""``fabric-emu report``: the pictures of runs again, also side by side, also for slides."""

from __future__ import annotations

from pathlib import Path

import click

from fabric_emu.commands.saved import LATEST, SavedRunFolder, read_runs

COMPARISON = Path("report.html")


@click.command()
@click.argument("runs", nargs=-1, type=SavedRunFolder(), metavar="[RUN]...")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes.  [default: report.html in the run's folder; here, for several]",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write every plot into DIR, as SVG and PNG for slides. Needs Chromium.",
)
def report(runs: tuple[str, ...], out: Path | None, plots: Path | None) -> None:
    """Draw the report of a run again, or one that compares several runs.

    RUN is a folder, its name in results, a scenario (its latest run there), or "latest", which is
    also meant when none is given. The page needs no network; open it in a browser. Needs no root.
    """
    from fabric_emu.results.browser import chromium
    from fabric_emu.results.folder import refuse_link, write_file
    from fabric_emu.results.report import report_page

    found = read_runs(runs or (LATEST,))
    if plots is not None:
        refuse_link(plots)
        chromium()  # missed now rather than after the page
    file = out or (found[0][0] / "report.html" if len(found) == 1 else COMPARISON)
    results = [run for _, run in found]
    write_file(file, report_page(results).encode())
    click.echo(f"Report in {file}")
    if plots is not None:
        from fabric_emu.results.slides import draw_slides

        pictures = draw_slides(results, plots)
        click.echo(f"{len(pictures)} pictures in {plots}")
