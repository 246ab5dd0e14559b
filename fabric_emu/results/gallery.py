"""Figures and pictures of ``scenarios/README.md``, out of the folders of runs.

What is between ``<!-- NAME... -->`` and ``<!-- end -->`` is this module's; the rest is people's.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fabric_emu.errors import FabricError
from fabric_emu.results.columns import by_scheme, cell, columns, downlinks_matter, pictured
from fabric_emu.results.folder import write_file
from fabric_emu.results.read import load_run
from fabric_emu.results.remarks import expectation_lines, verdict_lines
from fabric_emu.results.run import RunResult
from fabric_emu.results.slides import draw_slides
from fabric_emu.results.small_bars import link_bars_svg

COLUMNS_MAX = 8
"""Of the table: of more, those are left out that no expectation is about and that tell least."""

_PLACE = re.compile(r"<!-- (?P<names>[\w .-]+) -->\n.*?<!-- end -->", re.DOTALL)


def update_gallery(readme: Path, runs: Sequence[RunResult]) -> None:
    """Write figures and pictures of runs into their places in the gallery.

    A place may name several runs, which are then compared in one table; it is left as it is unless
    all of them are given.

    Raises:
        FabricError: the gallery has no place for one of them, or a file cannot be written.
        HostUnfit: a picture needs Chromium and there is none.
    """
    text = readme.read_text(encoding="utf-8")
    by_name = {run.name: run for run in runs}
    placed: set[str] = set()

    def filled(place: re.Match[str]) -> str:
        names = place["names"].split()
        if not by_name.keys() >= set(names):
            return place[0]
        placed.update(names)
        of_place = [by_name[name] for name in names]
        block = figures_block(together(of_place))
        if picture := _picture(of_place):
            write_file(readme.parent / "pictures" / f"{names[0]}.svg", picture.encode())
            block += f"\n![{names[0]}](pictures/{names[0]}.svg)\n"
        return f"<!-- {place['names']} -->\n{block}<!-- end -->"

    text = _PLACE.sub(filled, text)
    if missing := by_name.keys() - placed:
        raise FabricError(f"{readme}: expected <!-- {min(missing)} --> ... <!-- end -->")
    write_file(readme, text.encode())


def together(runs: Sequence[RunResult]) -> RunResult:
    """Return runs as one, whose schemes are named after the runs too; a single run as it is."""
    if len(runs) == 1:
        return runs[0]
    alone = all(len(run.schemes) == 1 for run in runs)
    schemes = [
        {**summary, "name": run.name if alone else f"{run.name} {summary['name']}"}
        for run in runs
        for summary in run.schemes
    ]
    return replace(runs[0], schemes=tuple(schemes))


def figures_block(run: RunResult) -> str:
    """Return the table as Markdown, as the terminal shows it, and what was not as it should be."""
    shown = columns(run.schemes, ascii_only=True)
    figures = {figure for scheme in run.scenario["expect"].values() for figure in scheme}
    spoken_of = [any(f".{figure}".endswith(f".{one.key}") for figure in figures) for one in shown]
    order = sorted(range(len(shown)), key=lambda i: (not spoken_of[i], shown[i].rank))
    kept = sorted(order[:COLUMNS_MAX])
    several = len(run.seeds) > 1
    headers = ["scheme", *(" ".join(shown[i].header.split()) for i in kept), "trustworthy"]
    lines = [_row(headers), _row(["---", *["--:"] * len(kept), "---"])]
    for name, rows in by_scheme(run).items():
        cells = [" ".join(cell(shown[i], rows)).strip() for i in kept]
        good = sum(row["verdict"]["trustworthy"] for row in rows)
        verdict = f"{good} of {len(rows)}" if several else "yes" if good else "no"
        lines.append(_row([name, *cells, verdict]))
    remarks = [] if run.trustworthy else verdict_lines(run)
    remarks += [] if run.expectations_hold else expectation_lines(run)
    if several:
        lines += ["", f"Seeds {run.seeds[0]} to {run.seeds[-1]}: median [least..most]."]
    if remarks:
        lines += ["", "```", *(line.plain for line in remarks), "```"]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _picture(runs: Sequence[RunResult]) -> str:
    """Return an SVG: messages complete over time, or else the uplinks of every scheme."""
    if not any("completion" in row for run in runs for row in run.schemes):
        drawn = pictured(together(runs))
        return link_bars_svg(drawn, downlinks=downlinks_matter(drawn))
    with tempfile.TemporaryDirectory(prefix="fabric-emu-gallery-") as folder:
        slides = {path.name: path for path in draw_slides(runs, Path(folder))}
        return slides["completion.svg"].read_text(encoding="utf-8")


def main() -> None:
    """``python -m fabric_emu.results.gallery README RUN...``."""
    try:
        update_gallery(Path(sys.argv[1]), [load_run(path) for path in sys.argv[2:]])
    except FabricError as error:
        print(f"gallery: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
