"""Finding scenario files: a path, or the name of one that is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from fabric_emu.errors import ScenarioError

if TYPE_CHECKING:
    from fabric_emu.model.scenario import Scenario

SHIPPED_DIR = Path(__file__).resolve().parents[2] / "scenarios"


def shipped() -> list[Path]:
    """Return the scenario files that come with the checkout."""
    return sorted(SHIPPED_DIR.glob("*.yaml"))


def find(name: str) -> Path:
    """Return the file that a user means: an existing path first, then a shipped name.

    Raises:
        ScenarioError: there is neither.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():
        return path
    by_name = {one.stem: one for one in shipped()}
    wanted = path.name.removesuffix(".yaml")
    if path.parent.name in ("", SHIPPED_DIR.name) and wanted in by_name:
        return by_name[wanted]
    from fabric_emu.model.mistakes import did_you_mean

    expected = "a scenario file"
    if by_name:
        expected += f" or one of the shipped scenarios {', '.join(by_name)}"
    raise ScenarioError("SCENARIO", name, expected, did_you_mean(wanted, by_name))


def check_live(scenario: Scenario, file: Path) -> None:
    """Check that a scenario can be run, not only predicted.

    Raises:
        ScenarioError: it cannot.
    """
    try:
        scenario.check_live()
    except ScenarioError as error:
        place = f"{file}: {error.path}"
        raise ScenarioError(place, error.value, error.expected, error.hint) from None


class ScenarioFile(click.ParamType):
    """A scenario as command line argument; completes shipped names and files."""

    name = "scenario"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the shipped names that begin so; files where there are none."""
        names = [one.stem for one in shipped() if one.stem.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


class SchemeName(click.ParamType):
    """A scheme as command line option; completes the scenario's schemes and well-known ones."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        from fabric_emu.model.scheme import Scheme

        names = [name.replace("Nqp", "4qp") for name in Scheme.names()]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


scheme_option = click.option(
    "--scheme",
    "schemes",
    type=SchemeName(),
    multiple=True,
    help="This scheme only: one of the scenario's, or a well-known one. Repeatable.",
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the scenario, such as topology.spines=4. Repeatable.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of everything random."
)


def choose_schemes(scenario: Scenario, names: tuple[str, ...]) -> Scenario:
    """Return the scenario with the schemes named: its own, or well-known ones; all if none is.

    Raises:
        ScenarioError: neither the scenario nor the package has a scheme of that name.
    """
    if not names:
        return scenario
    from fabric_emu.model.mistakes import did_you_mean
    from fabric_emu.model.scheme import Scheme

    own = {scheme.name: scheme for scheme in scenario.schemes}
    chosen = {}
    for name in names:
        try:
            chosen[name] = own.get(name) or Scheme.named(name)
        except ScenarioError:
            known = list(dict.fromkeys([*own, *Scheme.names()]))
            near = did_you_mean(name, [one.replace("Nqp", "4qp") for one in known])
            raise ScenarioError("--scheme", name, f"one of {', '.join(known)}", near) from None
    expect = {name: bounds for name, bounds in scenario.expect.items() if name in chosen}
    return scenario.model_copy(update={"schemes": tuple(chosen.values()), "expect": expect})
