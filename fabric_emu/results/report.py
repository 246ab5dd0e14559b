"""The report: one page of HTML with everything in it, which needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from fabric_emu.errors import HostUnfit
from fabric_emu.results.entries import Entry, entries_of
from fabric_emu.results.fabric_map import BUCKETS, map_svg, natural_width
from fabric_emu.results.frames import frames
from fabric_emu.results.page import text_of
from fabric_emu.results.plots.completion import completion
from fabric_emu.results.plots.goodput import goodput
from fabric_emu.results.plots.iterations import iterations
from fabric_emu.results.plots.loads import uplink_loads
from fabric_emu.results.plots.paths import path_bytes
from fabric_emu.results.plots.plot import Plot
from fabric_emu.results.plots.queues import losses, queue_depth
from fabric_emu.results.plots.reordering import reordering
from fabric_emu.results.plots.seeds import seeds
from fabric_emu.results.run import RunResult

_UNIT = re.compile(r"(?<=\d) (?=%|[kMGT]?(?:B|bit/s)\b|[mµn]?s\b)")

_LEGEND = {0: "idle", 5: "50 %", 10: "100 %", 11: "to 125 %", 12: "to 150 %", 13: "more"}


def report_page(runs: Sequence[RunResult]) -> str:
    """Return the report of a run, or of several side by side.

    Args:
        runs: at least one; what is drawn of a run with several seeds is the median one.

    Raises:
        HostUnfit: the plotly package is not whole.
    """
    entries = entries_of(runs)
    plots = plots_of(runs, entries)
    data = {"frames": frames(entries), "plots": {plot.key: _plot_data(plot) for plot in plots}}
    scripts = {
        "theme_js": template_file("theme.js"),
        "plotly_js": _plotly_js(),
        "report_js": template_file("report.js"),
    }
    maps = [
        {"label": entry.label, "colour": entry.colour, "svg": map_svg(entry)} for entry in entries
    ]
    template = _environment().get_template("report.html.jinja")
    return template.render(
        text_of(runs, entries),
        css=template_file("report.css"),
        script_hashes=" ".join(_csp_hash(script) for script in scripts.values()),
        **scripts,
        data=_json_in_html(data),
        legend=[_LEGEND.get(i, "") for i in range(BUCKETS)],
        maps=maps,
        map_width=max((natural_width(entry.topology) for entry in entries), default=0),
        plots=plots,
    )


def plots_of(runs: Sequence[RunResult], entries: Sequence[Entry]) -> list[Plot]:
    """Return the plots that the runs have data for, in the page's order."""
    found = [
        uplink_loads(entries),
        queue_depth(entries),
        losses(entries),
        completion(entries),
        goodput(entries),
        iterations(entries),
        reordering(entries),
        path_bytes(entries),
        seeds(runs, entries),
    ]
    return [plot for plot in found if plot is not None]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fabric_emu.results"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
    )
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(text: str) -> str:
    """Return text whose numbers keep their units on the same line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def template_file(name: str) -> str:
    """Return the text of a file beside the page's template."""
    content = pkgutil.get_data("fabric_emu.results", f"templates/{name}")
    assert content is not None
    return content.decode()


def _plotly_js() -> str:
    # Not by plotly.offline, which takes ten times as long to import.
    content = pkgutil.get_data("plotly", "package_data/plotly.min.js")
    if content is None:
        raise HostUnfit("the plotly package has no plotly.min.js", "pip install plotly")
    return content.decode()


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json_in_html(value: Any) -> str:
    """Return JSON that no HTML parser takes for the end of its element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plot_data(plot: Plot) -> dict[str, Any]:
    variants = {
        name: [
            {"title": panel.title, "colour": panel.colour, "figure": panel.figure}
            for panel in panels
        ]
        for name, panels in plot.variants.items()
    }
    return {"variants": variants, "default": plot.first}
