"""``fabric-emu calibrate``: which rate this machine carries a scenario at; ``rate: auto`` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fabric_emu.commands.scenarios import (
    ScenarioFile,
    check_live,
    choose_schemes,
    find,
    scheme_option,
    set_option,
)
from fabric_emu.commands.terminal import stops_as
from fabric_emu.errors import FabricError
from fabric_emu.units import format_duration, format_rate

if TYPE_CHECKING:
    from fabric_emu.calibration.cache import Calibration
    from fabric_emu.model.scenario import Scenario


@click.command()
@click.argument("scenario", type=ScenarioFile())
@scheme_option
@set_option
def calibrate(scenario: str, schemes: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Find the highest link rate at which this machine's figures can be trusted.

    Never above what SCENARIO asks. With rate: auto in its topology, run takes what was found, for
    as long as machine, kernel and scenario stay the same. Needs root.
    """
    from fabric_emu.commands.run import need_root
    from fabric_emu.model.load import load_scenario

    file = find(scenario)
    described = choose_schemes(load_scenario(file, overrides), schemes)
    check_live(described, file)
    need_root()
    with stops_as(KeyboardInterrupt()):
        found = _measured(described)
    click.echo(_text(described, found))


def calibrated(scenario: Scenario) -> Calibration:
    """Return what is known of a scenario on this machine, found out first when nothing is.

    Raises:
        HostUnfit: the machine carries it at no rate.
    """
    from fabric_emu.calibration.cache import key_of, load

    with stops_as(KeyboardInterrupt()):
        found = load(key_of(scenario)) or _measured(scenario)
    click.echo(f"rate: auto: {_text(scenario, found)}", err=True)
    return found


def _measured(scenario: Scenario) -> Calibration:
    from fabric_emu.calibration.cache import keep, key_of
    from fabric_emu.calibration.trials import calibrate_scenario

    found = calibrate_scenario(scenario, lambda line: click.echo(line, err=True))
    try:
        keep(key_of(scenario), found)
    except FabricError as error:  # what was found holds all the same
        click.echo(f"not kept for the next run: {error}", err=True)
    return found


def _text(scenario: Scenario, found: Calibration) -> str:
    asked, taken = scenario.topology.link_rate, found.link_rate_bps
    of = "as asked" if taken == asked else f"of {format_rate(asked)} asked"
    floor = format_duration(found.delay_floor_s)
    return f"links at {format_rate(taken)}, {of}; delay floor {floor}"
