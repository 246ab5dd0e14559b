"""``fabric-emu shell``: Mininet's command line on a scenario's fabric."""

from __future__ import annotations

import click

from fabric_emu.commands.run import INTERRUPTED, need_root
from fabric_emu.commands.scenarios import (
    ScenarioFile,
    SchemeName,
    check_live,
    choose_schemes,
    find,
    set_option,
)
from fabric_emu.commands.terminal import stops_as


@click.command()
@click.argument("scenario", type=ScenarioFile())
@click.option("--scheme", type=SchemeName(), help="What the switches do.  [default: the first]")
@set_option
def shell(scenario: str, scheme: str | None, overrides: tuple[str, ...]) -> None:
    """Build the fabric of a scenario and open Mininet's command line on it.

    Leaving it takes the fabric down. Needs root.
    """
    from fabric_emu.model.load import load_scenario

    file = find(scenario)
    described = load_scenario(file, overrides)
    described = choose_schemes(described, (scheme,) if scheme else ())
    check_live(described, file)
    need_root()
    from mininet.cli import CLI
    from mininet.log import setLogLevel

    from fabric_emu.net.fabric import Fabric

    setLogLevel("output")  # what its commands print, not what it does
    topology, first = described.topology, described.schemes[0]
    hash_seeds = described.hash_seeds_of(first)
    # Mininet's CLI goes on after a KeyboardInterrupt; a closed terminal must end it.
    with (
        stops_as(SystemExit(INTERRUPTED)),
        Fabric(
            topology,
            first,
            seed=described.seed,
            hash_seeds=hash_seeds,
            control_plane=described.control_plane_of(first),
        ) as fabric,
    ):
        leaf = topology.switches[0].name
        near, far = topology.hosts[0].name, topology.hosts[-1].name
        click.echo(f"Try: nodes | net | pingall | {near} ping -c 3 {far} | {leaf} ip route | exit")
        click.echo(
            f"From another terminal: sudo ip netns exec {fabric.namespace(leaf)} tc -s qdisc"
        )
        if fabric.routers:
            click.echo(f'BGP is ready. Try: {leaf} vtysh -c "show bgp summary"')
        CLI(fabric.net)
