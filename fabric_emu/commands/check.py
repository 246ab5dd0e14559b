"""``fabric-emu check``: read scenarios and say what a run of them would build."""

from __future__ import annotations

import click

from fabric_emu.commands.scenarios import (
    ScenarioFile,
    find,
    set_option,
)
from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import FabricError, ScenarioError

_LABEL = 18


@click.command()
@click.argument("scenarios", nargs=-1, required=True, type=ScenarioFile(), metavar="SCENARIO...")
@set_option
def check(scenarios: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Check scenarios and print what each would build.

    Needs no root. Ends with 2 when one of them is wrong; every mistake is named.
    """
    from rich.text import Text

    from fabric_emu.model.load import load_scenario
    from fabric_emu.results.asked import asked
    from fabric_emu.results.figures import print_wrapped

    console = terminal()
    wrong = []
    for number, name in enumerate(scenarios):
        try:
            file = find(name)
            scenario = load_scenario(file, overrides)
        except FabricError as error:
            wrong.append(str(error))
            continue
        if number > len(wrong):
            click.echo()
        print_wrapped(console, Text(f"{file}: good"))
        for label, text in asked(scenario):
            print_wrapped(console, Text(f"  {label:{_LABEL}}{text}"), " " * (2 + _LABEL))
    if wrong:
        click.echo("\n".join(wrong), err=True)
        raise click.exceptions.Exit(ScenarioError.exit_code)
