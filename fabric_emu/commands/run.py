"""``fabric-emu run``: every scheme of a scenario at every seed, then the table and the folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabric_emu import interrupts
from fabric_emu.commands.calibrate import calibrated
from fabric_emu.commands.scenarios import (
    ScenarioFile,
    check_live,
    choose_schemes,
    find,
    scheme_option,
    seed_option,
    set_option,
)
from fabric_emu.commands.terminal import Terminal, stops_as, terminal
from fabric_emu.commands.watch import Watch
from fabric_emu.errors import FabricError, HostUnfit, ScenarioError
from fabric_emu.nursery import nursery
from fabric_emu.units import parse_duration

if TYPE_CHECKING:
    from fabric_emu.experiment import Progress
    from fabric_emu.results.run import RunResult

SEEDS_MAX = 10_000
DOUBTFUL = 5
INTERRUPTED = 130
REDRAW_S = 0.1
SAMPLE_EVERY_MIN_S = 0.001


@click.command()
@click.argument("scenario", type=ScenarioFile())
@scheme_option
@seed_option
@click.option(
    "--seeds",
    type=click.IntRange(1, SEEDS_MAX),
    default=1,
    metavar="N",
    help="Run N seeds, counting up from the first, and give the spread.",
)
@set_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    metavar="DIR",
    help="Where the folder of this run is made.  [default: results]",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Also write the results as JSON; - is standard output, the table then goes to stderr.",
)
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Also write the table as CSV, unrounded; - is standard output, as with --json.",
)
@click.option(
    "--sample-every",
    metavar="TIME",
    help="Interval of the series of port counters, such as 2ms.  [default: a few hundred samples]",
)
@click.option(
    "--strict", is_flag=True, help="End with 5 when the verdict on any of the runs is doubtful."
)
@click.option("--live", is_flag=True, help="Show the uplinks' load in the terminal while it runs.")
@click.option(
    "--live-web",
    metavar="[ADDRESS:]PORT",
    help="Show the same as a web page, on the loopback address unless another is given.",
)
@click.option(
    "--pcap",
    multiple=True,
    metavar="LINK|HOST",
    help="Capture a link such as leaf1-spine2, or a host, as pcapng files. Repeatable.",
)
def run(
    scenario: str,
    schemes: tuple[str, ...],
    seed: int | None,
    seeds: int,
    overrides: tuple[str, ...],
    out: Path,
    json_file: Path | None,
    csv_file: Path | None,
    sample_every: str | None,
    strict: bool,
    live: bool,
    live_web: str | None,
    pcap: tuple[str, ...],
) -> None:
    """Run a scenario and print what came out of each scheme.

    SCENARIO is a file or the name of a shipped scenario (see list). Needs root.

    Ends with 0 when all is as expected, 1 when an expectation does not hold, 2 on bad input, 3
    when this machine cannot run it, 4 when the run broke, 130 when it was interrupted; with
    --strict, 5 when the figures are doubtful, whatever was expected of them.
    """
    from fabric_emu.model.load import load_scenario

    file = find(scenario)
    described = choose_schemes(load_scenario(file, overrides), schemes)
    if seed is not None:
        described = described.model_copy(update={"seed": seed})
    all_seeds = _seeds(described.seed, seeds)
    check_live(described, file)
    sample_every_s = _interval(sample_every)
    _check_writable("--out", out)
    if out.is_symlink():
        raise ScenarioError("--out", str(out), f"a folder, not a link to {os.readlink(out)}")
    for option, wanted in (("--json", json_file), ("--csv", csv_file)):
        if wanted is not None and str(wanted) != "-":
            _check_writable(option, wanted.absolute().parent)
    if str(json_file) == str(csv_file) == "-":
        raise click.UsageError("--json, --csv: only one of them can be standard output")
    watch = Watch(described, all_seeds, out, live=live, live_web=live_web, pcap=pcap)
    click.get_current_context().call_on_close(watch.close)
    need_root()
    # Only now: what runs a fabric takes long to import, and so does what workers need, beside it.
    nursery()
    from fabric_emu.experiment import machine, run_scheme
    from fabric_emu.results.run import RunResult

    found = calibrated(described) if described.topology.rate == "auto" else None
    described = found.applied_to(described) if found else described
    result = RunResult.begin(
        file.stem, described, all_seeds, machine() | (found.document() if found else {})
    )
    begun = True
    try:
        with (
            stops_as(KeyboardInterrupt()),
            _progress_bar(len(all_seeds) * len(described.schemes), watch.draws) as bar,
            watch.running(bar) as (report, hooks),
        ):
            if found:
                hooks["base_delay_s"] = found.base_delay_s
            for one_seed in all_seeds:
                for scheme in described.schemes:
                    measured = run_scheme(
                        described, scheme, one_seed, report, sample_every_s=sample_every_s, **hooks
                    )
                    watch.measured(scheme.name, one_seed, measured.summary)
                    result = result.with_scheme(measured)
        result = result.ended("complete")
    except KeyboardInterrupt:
        result = result.ended("partial", "interrupted")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except FabricError as error:
        result = result.ended("failed", str(error))
        begun = bool(result.schemes) or error.exit_code == FabricError.exit_code
        raise
    except BaseException as error:
        result = result.ended("failed", repr(error))
        raise
    finally:
        # Nothing is kept of a run that this machine could not even begin.
        if begun:
            _deliver(result, out, json_file, csv_file, watch.deliver)
    if strict and not result.trustworthy:
        raise click.exceptions.Exit(DOUBTFUL)
    if not result.expectations_hold:
        raise click.exceptions.Exit(1)


def _seeds(first: int, number: int) -> range:
    if first + number > 2**32:
        raise ScenarioError("--seeds", number, f"seeds that stay under 2^32, from {first} on")
    return range(first, first + number)


def _interval(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        interval_s = parse_duration(text)
    except ValueError as error:
        raise ScenarioError("--sample-every", text, str(error)) from None
    if interval_s < SAMPLE_EVERY_MIN_S:
        raise ScenarioError("--sample-every", text, "1ms or more")
    return interval_s


def _check_writable(option: str, folder: Path) -> None:
    """Refuse before the run what would be refused after it."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ScenarioError(option, str(folder), "a folder that can be written to")


def need_root() -> None:
    """Raise HostUnfit for a user without root."""
    if os.geteuid() != 0:
        words = shlex.join(["fabric-emu", *sys.argv[1:]])
        raise HostUnfit("network namespaces need root", f"sudo {words}")


@contextlib.contextmanager
def _progress_bar(runs: int, hidden: bool) -> Iterator[Callable[[Progress], None]]:
    """Show how far a number of scheme runs is, on standard error if that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    seen: set[tuple[str, int]] = set()
    drawn = 0.0
    # No refreshing thread: what is measured has few cores to itself.
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=terminal(sys.stderr),
        auto_refresh=False,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=runs)

        def report(progress: Progress) -> None:
            nonlocal drawn
            seen.add((progress.scheme, progress.seed))
            bar.update(
                task,
                completed=len(seen) - 1 + progress.share,
                description=f"{progress.scheme}, seed {progress.seed}: {progress.stage:7}",
            )
            if (now := time.monotonic()) > drawn + REDRAW_S:
                drawn = now
                bar.refresh()

        yield report


def _deliver(
    result: RunResult,
    out: Path,
    json_file: Path | None,
    csv_file: Path | None,
    add_to: Callable[[Path], None],
) -> None:
    """Save a run, print it, draw it: a reader who leaves early loses nothing."""
    from fabric_emu.results.csv_table import csv_of
    from fabric_emu.results.folder import write_file
    from fabric_emu.results.table import print_run

    texts = ((json_file, result.to_json), (csv_file, lambda: csv_of(result)))
    wanted = [(file, text) for file, text in texts if file is not None]
    to_stdout = [text for file, text in wanted if str(file) == "-"]
    console = terminal(sys.stderr if to_stdout else sys.stdout)
    folder = None
    try:
        with interrupts.held():
            folder = result.save(out)
            add_to(folder)
            for file, text in wanted:
                if str(file) != "-":
                    write_file(file, text().encode())
    finally:
        try:
            for text in to_stdout:
                click.echo(text(), nl=False)
            if result.schemes:
                print_run(console, result)
            if folder is not None:
                _say_where(console, result, folder)
        finally:
            if folder is not None:
                with interrupts.held():
                    result.save_report(folder)


def _say_where(console: Terminal, result: RunResult, folder: Path) -> None:
    from fabric_emu.results.run import REPORT_FILE

    if result.status == "complete":
        # Not wrapped: paths are copied.
        console.print(f"Results in {folder}", soft_wrap=True)
        console.print(f"For a browser: {folder / REPORT_FILE}", soft_wrap=True)
    else:
        ended = "interrupted" if result.status == "partial" else "the run broke"
        click.echo(f"{ended}; partial results in {folder}", err=True)
