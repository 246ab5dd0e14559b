"""``fabric-emu doctor``: what this machine has and lacks, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import HostUnfit

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_emu.net.doctor import Finding

_STYLES = {"ok": "green", "warning": "yellow", "missing": "bold red"}


@click.command()
def doctor() -> None:
    """Say what this machine has and lacks for a run.

    Ends with 3 when something is missing that a run needs.
    """
    from fabric_emu.net.doctor import examine

    if not print_findings(terminal(), examine()):
        raise click.exceptions.Exit(HostUnfit.exit_code)


def print_findings(console: Console, findings: Iterable[Finding]) -> bool:
    """Print findings, a remedy below each that has one; return whether nothing is missing."""
    from rich.text import Text

    from fabric_emu.results.figures import print_wrapped

    found = list(findings)
    status_width, name_width = (
        max((len(text) for text in texts), default=0)
        for texts in ((one.status for one in found), (one.name for one in found))
    )
    indent = " " * (status_width + name_width + 4)
    for one in found:
        line = f"{one.status:{status_width}}  {one.name:{name_width}}  {one.detail}".rstrip()
        style = "" if one.status == "ok" else _STYLES[one.status]
        print_wrapped(console, Text(line, style=style), indent)
        if one.status != "ok" and one.remedy:
            print_wrapped(console, Text(f"{indent}remedy: {one.remedy}"), indent + "  ")
    return all(one.status != "missing" for one in found)
