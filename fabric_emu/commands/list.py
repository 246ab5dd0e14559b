"""``fabric-emu list``: the scenarios that are shipped."""

from __future__ import annotations

import click

from fabric_emu.commands.scenarios import SHIPPED_DIR, shipped
from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import FabricError


@click.command("list")
def list_scenarios() -> None:
    """List the shipped scenarios with their titles.

    Needs no root.
    """
    from rich.text import Text

    from fabric_emu.model.load import load_scenario
    from fabric_emu.results.figures import print_wrapped, printable

    files = shipped()
    if not files:
        click.echo(f"no scenarios in {SHIPPED_DIR}", err=True)
    label = max((len(file.stem) for file in files), default=0) + 2
    console = terminal()
    for file in files:
        try:
            title = printable(load_scenario(file).title)
        except FabricError:
            title = f"(wrong: fabric-emu check {file.stem} says where)"
        print_wrapped(console, Text(f"{file.stem:{label}}{title}"), " " * label)
