"""The pictures of a report as files for slides: SVG and PNG, on white."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric_emu.results.browser import Browser
from fabric_emu.results.entries import entries_of
from fabric_emu.results.fabric_map import standalone_svg
from fabric_emu.results.folder import safe_name, write_file
from fabric_emu.results.plots.plot import Plot
from fabric_emu.results.report import plots_of, report_page, template_file
from fabric_emu.results.run import RunResult

WIDTH, HEIGHT = 960, 540
"""Of a picture, sixteen to nine; PNG has twice as many pixels each way."""


@dataclass(frozen=True)
class _Picture:
    name: str
    svg: str
    png: bytes


def draw_slides(runs: Sequence[RunResult], folder: Path) -> list[Path]:
    """Write every plot of the runs' report, and the fabric under each scheme; return the files.

    Raises:
        HostUnfit: there is no Chromium.
        FabricError: the files cannot be written.
    """
    entries = entries_of(runs)
    draw = template_file("slides.js")
    pictures: list[_Picture] = []
    with (
        tempfile.TemporaryDirectory(prefix="fabric-emu-slides-") as temporary,
        Browser() as browser,
    ):
        page = Path(temporary) / "report.html"
        page.write_text(report_page(runs), encoding="utf-8")
        browser.open(page)
        browser.wait_for("document.documentElement.dataset.ready === 'yes'")
        for plot in plots_of(runs, entries):
            for variant in _variants(plot):
                for index, panel in enumerate(plot.variants[variant]):
                    of = [panel.title, variant if plot.choice == "switch" else ""]
                    title = ", ".join(part for part in of if part)
                    arguments = json.dumps([plot.key, variant, index, title, WIDTH, HEIGHT])
                    svg, png = browser.evaluate(f"{draw}(...{arguments})")
                    parts = (plot.key, variant if variant != plot.first else "", panel.title)
                    name = safe_name("-".join(part for part in parts if part), plot.key)
                    pictures.append(_Picture(name, svg, base64.b64decode(png)))
        for entry in entries:
            svg = standalone_svg(entry)
            browser.show(svg, WIDTH)
            name = f"fabric-{safe_name(entry.label, 'scheme')}"
            pictures.append(_Picture(name, svg, browser.screenshot(scale=2)))
    written = []
    for picture in pictures:
        for suffix, content in (("svg", picture.svg.encode()), ("png", picture.png)):
            written.append(folder / f"{picture.name}.{suffix}")
            write_file(written[-1], content)
    return written


def _variants(plot: Plot) -> list[str]:
    """Return what to write of a plot: of many switches the one that the page shows first."""
    return [plot.first] if plot.choice == "switch" else list(plot.variants)
