"""``fabric-emu predict``: what a scenario will do, without building it."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_emu.commands.scenarios import (
    ScenarioFile,
    choose_schemes,
    find,
    scheme_option,
    seed_option,
    set_option,
)
from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_emu.model.scenario import Scenario
    from fabric_emu.predict.distribution import FoundSeed
    from fabric_emu.predict.spread import Spread

FORMAT = 1
SEEDS_MAX = 100_000
PLOTTED_SEEDS = 1000
ASSUMES = "switches hash as Linux 6.11 and later do"


@click.command()
@click.argument("scenario", type=ScenarioFile())
@scheme_option
@seed_option
@click.option(
    "--seeds",
    type=click.IntRange(1, SEEDS_MAX),
    metavar="N",
    help="Also give the distribution over N seeds, counting up from the first.",
)
@click.option(
    "--find-seed",
    "wanted",
    metavar="worst=LOAD",
    help="Take the seed, of 1 to 1000 (or --seeds), whose worst uplink is loaded most nearly so; "
    "worst=1.40 means 140 %.",
)
@set_option
@click.option("--flows", is_flag=True, help="Print the path of every queue pair.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Also write everything as JSON; - is standard output, the tables then go to stderr.",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the distribution over seeds (1000 if --seeds is not given) as a page of HTML.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Processes.  [default: one per processor where it pays]",
)
def predict(
    scenario: str,
    schemes: tuple[str, ...],
    seed: int | None,
    seeds: int | None,
    wanted: str | None,
    overrides: tuple[str, ...],
    flows: bool,
    json_file: Path | None,
    plot_file: Path | None,
    jobs: int | None,
) -> None:
    """Predict where every packet of a scenario goes, and how loaded the uplinks get.

    SCENARIO is a file or the name of a shipped scenario (see list). Needs no root and no fabric:
    it computes the hash that switches on Linux 6.11 and later use. Large fabrics are given as the
    distribution over their leaves.
    """
    from fabric_emu.model.load import load_scenario
    from fabric_emu.predict.scale import is_large

    load = None if wanted is None else _wanted_load(wanted)
    described = choose_schemes(load_scenario(find(scenario), overrides), schemes)
    if seed is not None:
        described = described.model_copy(update={"seed": seed})
    large = is_large(described.topology)
    if flows and large:
        raise ScenarioError("--flows", described.topology.total_hosts, "a fabric of fewer hosts")
    console = terminal(sys.stderr if str(json_file) == "-" else None)
    document: dict[str, Any] = {"format": FORMAT, "kind": "prediction", "assumes": ASSUMES}
    if load is not None:
        found = _find_seed(described, load, seeds)
        described = described.model_copy(update={"seed": found[1].seed})
        document["found_seed"] = _found(*found)
    elif seeds is None:
        seeds = PLOTTED_SEEDS if plot_file and not large else 1 if large else None
    document |= {
        "title": described.title,
        "scenario": described.model_dump(mode="json"),
        "seed": described.seed,
        "schemes": [{"name": scheme.name} for scheme in described.schemes],
    }
    _print_head(console, described, document)
    if not large:
        _forecast(console, described, document["schemes"], flows)
    if large or (seeds is not None and load is None):
        number = 1 if seeds is None or load is not None else seeds
        _over_seeds(console, described, document["schemes"], number, jobs, plot_file)
    if json_file is not None:
        _write_json(json_file, document)


def _wanted_load(text: str) -> float:
    match = re.fullmatch(r"worst=(\d+(?:\.\d*)?|\.\d+)", text)
    if not match:
        raise ScenarioError("--find-seed", text, "worst=LOAD, such as worst=1.40 for 140 %")
    return float(match[1])


def _find_seed(scenario: Scenario, load: float, seeds: int | None) -> tuple[str, FoundSeed]:
    from fabric_emu.predict.distribution import SEEDS_SEARCHED, find_seed

    for scheme in scenario.schemes:
        if scheme.nic.entropy == "qp":
            with _progress("searching seeds") as told:
                tried = range(1, (seeds or SEEDS_SEARCHED) + 1)
                return scheme.name, find_seed(scenario, scheme, load, tried, told)
    names = ", ".join(scheme.name for scheme in scenario.schemes)
    raise ScenarioError("--find-seed", names, "a scheme whose queue pairs keep to one path")


def _found(scheme: str, found: FoundSeed) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "seed": found.seed,
        "worst_uplink_load": found.worst,
        "wanted": found.wanted,
        "off": found.off,
        "searched": found.searched,
    }


def _print_head(console: Console, scenario: Scenario, document: dict[str, Any]) -> None:
    from rich.text import Text

    from fabric_emu.results.describe import nodes, rates
    from fabric_emu.results.figures import percent, print_wrapped, printable

    topology = scenario.topology
    lines = [f"{nodes(topology)}; {rates(topology)}", f"Predicted: {ASSUMES}, queues are left out."]
    if getattr(scenario, "faults", ()):
        lines.append("The scenario's faults are left out: all links are whole.")
    if found := document.get("found_seed"):
        off = found["off"]
        lines.append(
            f"Seed {found['seed']} gives {found['scheme']} a worst uplink of "
            f"{percent(found['worst_uplink_load'], 1)}, "
            f"{percent(abs(off), 1)} {'above' if off > 0 else 'below'} what is wanted: the nearest "
            f"of {found['searched']:,} seeds. To run it: --seed {found['seed']}"
        )
    print_wrapped(console, Text(printable(scenario.title), style="bold"))
    for line in lines:
        print_wrapped(console, Text(line))


def _forecast(
    console: Console, scenario: Scenario, found: list[dict[str, Any]], flows: bool
) -> None:
    """Predict every scheme at the scenario's seed, print it, and add it to what was found."""
    from fabric_emu.predict.forecast import forecast
    from fabric_emu.results.forecast_table import print_flows, print_forecasts

    forecasts = []
    with _progress("placing flows") as told:
        for number, scheme in enumerate(scenario.schemes, start=1):
            forecasts.append(forecast(scenario, scheme, scenario.seed))
            told(number / len(scenario.schemes))
    console.print()
    print_forecasts(console, [one.summary for one in forecasts], scenario.seed)
    for entry, one in zip(found, forecasts, strict=True):
        entry |= one.summary
        entry["flows"] = one.flows
        if flows:
            print_flows(console, entry["name"], one.flows)


def _over_seeds(
    console: Console,
    scenario: Scenario,
    found: list[dict[str, Any]],
    number: int,
    jobs: int | None,
    plot_file: Path | None,
) -> None:
    """Predict every scheme at many seeds, print and draw it, and add it to what was found."""
    from fabric_emu.predict.scale import spreads, summarise_spread
    from fabric_emu.results.forecast_table import print_spreads

    if scenario.seed + number > 2**32:
        raise ScenarioError("--seeds", number, "seeds that stay under 2^32")
    seeds = range(scenario.seed, scenario.seed + number)
    with _progress("placing flows") as told:
        seen = spreads(scenario, scenario.schemes, seeds, jobs, told)
    summaries = []
    for entry, scheme in zip(found, scenario.schemes, strict=True):
        one = seen[scheme.name]
        entry["over_seeds"] = summarise_spread(scenario, scheme, one)
        entry["over_seeds"]["by_seed"] = {
            "seed": one.seeds.tolist(),
            "worst_uplink_load": one.worst.tolist(),
        }
        summaries.append(entry["over_seeds"])
    print_spreads(console, summaries)
    if plot_file is not None:
        _draw(scenario, seen, plot_file)


def _draw(scenario: Scenario, seen: dict[str, Spread], plot_file: Path) -> None:
    from fabric_emu.predict.distribution import law_of
    from fabric_emu.results.folder import write_file
    from fabric_emu.results.forecast_plot import histogram_page

    parts = []
    for scheme in scenario.schemes:
        one = seen[scheme.name]
        law, _ = law_of(scenario, scheme, one)
        chosen = one.leaf_mean > 0 if law is None else one.leaf_streams == law.streams
        if chosen.any():
            parts.append((scheme.name, one.leaf_imbalance[chosen], law))
    if not parts:
        raise ScenarioError("--plot", str(plot_file), "flows that leave their leaf, to draw")
    write_file(plot_file, histogram_page(scenario.title, parts).encode())


def _write_json(file: Path, document: dict[str, Any]) -> None:
    from fabric_emu.results.folder import write_file

    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if str(file) == "-":
        sys.stdout.write(text)
    else:
        write_file(file, text.encode())


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[float], None]]:
    """Show how far a computation is, on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        console=terminal(sys.stderr),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
