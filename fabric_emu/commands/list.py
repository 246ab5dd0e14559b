"""``fabric-emu list``: the scenarios that are shipped."""

from __future__ import annotations

import textwrap

import click

from fabric_emu.commands.scenarios import SHIPPED_DIR, shipped
from fabric_emu.commands.terminal import terminal


@click.command("list")
def list_scenarios() -> None:
    """List the shipped scenarios with their titles.

    Needs no root.
    """
    from fabric_emu.model.load import load_scenario
    from fabric_emu.results.figures import printable

    files = shipped()
    if not files:
        click.echo(f"No scenarios in {SHIPPED_DIR}.", err=True)
        return
    label = max(len(file.stem) for file in files) + 2
    width = max(terminal().width, label + 40)
    for file in files:
        title = printable(load_scenario(file).title)
        indent = " " * label
        click.echo(
            textwrap.fill(title, width, initial_indent=indent, subsequent_indent=indent).replace(
                indent, f"{file.stem:{label}}", 1
            )
        )
