"""``fabric-emu import``: the configuration of a real switch as a scheme of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabric_emu.commands.scenarios import ScenarioFile, find

if TYPE_CHECKING:
    from fabric_emu.importers.policy import ImportedPolicy
    from fabric_emu.model.topology import Topology

KINDS = ("sonic", "fboss")


@click.command("import")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--for",
    "scenario",
    type=ScenarioFile(),
    metavar="SCENARIO",
    help="Make times longer for this scenario's topology; otherwise for the default one.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="KEY",
    help="Read the file without this key, wherever it stands. Repeatable.",
)
def import_(kind: str, file: Path, scenario: str | None, ignore: tuple[str, ...]) -> None:
    """Print what a switch is configured to, as a scheme to paste into a scenario.

    FILE is a SONiC config_db.json or an FBOSS agent's configuration; - is standard input. Comments
    say where each value comes from. A scenario may also name the file itself:

    \b
      switch: {import: {sonic: config_db.json}}

    Ends with 2 when the file is wrong or asks for what the emulator cannot do; all of it is named.
    """
    from fabric_emu.importers.policy import import_policy
    from fabric_emu.model.load import load_scenario
    from fabric_emu.model.topology import Topology

    topology = load_scenario(find(scenario)).topology if scenario else Topology()
    file = Path("/dev/stdin") if str(file) == "-" else file
    imported = import_policy(kind, file, topology, ignore)
    click.echo("\n".join(scheme_lines(kind, file, imported, topology)))


def scheme_lines(
    kind: str, file: Path, imported: ImportedPolicy, topology: Topology
) -> Iterator[str]:
    """Yield the YAML of a scheme with these policies, with comments, line by line."""
    from fabric_emu.model.scale import hardware_scale
    from fabric_emu.results.figures import printable
    from fabric_emu.units import format_rate

    scale = hardware_scale(topology)
    real = format_rate(topology.link_rate * scale)
    yield f"# From {printable(file.name)}. Times are {scale:,.6g} times longer than in hardware:"
    yield f"# {format_rate(topology.link_rate)} stand for {real}."
    yield "schemes:"
    yield f"  - name: {kind}"
    yield "    switch:"
    settings = {"policy": imported.found.policy, "trimming": imported.found.trimming}
    for section, values in imported.switch.items():
        yield f"      {section}:"
        for key, value in values.items():
            setting = settings[section].get(key)
            origin = f"  # {setting.origin}" if setting else ""
            yield f"        {key}: {value}{origin}"
    if imported.found.remarks:
        yield "# Read without effect:"
        for remark in imported.found.remarks:
            yield f"#   {printable(remark)}"
