"""Command line of ``scripts/bench``."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from fabric_emu.bench.table import Row, as_json, print_rows
from fabric_emu.commands.run import INTERRUPTED
from fabric_emu.commands.terminal import stops_as, terminal, tolerate_narrow_encodings
from fabric_emu.errors import FabricError, HostUnfit

SUBJECTS = ("packets", "policies", "build", "predict", "transports")
WITHOUT_ROOT = ("predict",)
FORMAT = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("subjects", nargs=-1, type=click.Choice(SUBJECTS), metavar="[SUBJECT]...")
@click.option("--quick", is_flag=True, help="Fewer repetitions and smaller sizes.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Also write the rows as JSON; - is standard output, the table then goes to stderr.",
)
def main(subjects: tuple[str, ...], quick: bool, json_file: Path | None) -> None:
    """Measure what fabric_emu does beside what does the same.

    \b
    packets   packets per second through host, leaf, spine, leaf, host, unshaped, with a new
              source port and a valid ICRC on each, beside iperf3, tcpreplay and scapy's sendp
    policies  packets per second of the same path with each switch policy, beside plain ECMP
    build     time to build and free fabrics, beside stock Mininet
    predict   five-tuples hashed per second
    transports  the highest link rate at which 16 hosts keep a trustworthy verdict, per transport

    All of them unless some are named. Needs root, but for predict. Ends with 0 when all that is
    required holds, 1 when something does not, 3 when this machine cannot, 4 when a run broke, 130
    when interrupted.
    """
    tolerate_narrow_encodings()
    try:
        with stops_as(KeyboardInterrupt()):
            rows = _measure_all(dict.fromkeys(subjects or SUBJECTS), quick)
        _deliver(rows, quick, json_file)
    except FabricError as error:
        click.echo(f"bench: {error}", err=True)
        raise click.exceptions.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    if any(row.passed is False for row in rows):
        raise click.exceptions.Exit(1)


def _measure_all(subjects: Iterable[str], quick: bool) -> list[Row]:
    needing_root = [subject for subject in subjects if subject not in WITHOUT_ROOT]
    if needing_root and os.geteuid() != 0:
        raise HostUnfit(f"{' and '.join(needing_root)} need root", "sudo scripts/bench")
    return [row for subject in subjects for row in _measure(subject, quick)]


def _measure(subject: str, quick: bool) -> Iterator[Row]:
    # Only now: each subject imports what takes long, and some of it needs Mininet.
    module = importlib.import_module(f"fabric_emu.bench.{subject}")
    yield from module.measure(quick, lambda text: click.echo(f"{subject}: {text}", err=True))


def _deliver(rows: Sequence[Row], quick: bool, json_file: Path | None) -> None:
    to_stdout = json_file is not None and str(json_file) == "-"
    print_rows(terminal(sys.stderr if to_stdout else sys.stdout), rows)
    if json_file is None:
        return
    from fabric_emu.experiment import machine
    from fabric_emu.results.folder import write_file

    content = {"format": FORMAT, "quick": quick, "machine": machine(), "rows": as_json(rows)}
    text = json.dumps(content, indent=2) + "\n"
    if to_stdout:
        sys.stdout.write(text)
    else:
        write_file(json_file, text.encode())


if __name__ == "__main__":
    main()
