"""``fabric-emu check``: read scenarios and say what a run of them would build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fabric_emu.commands.scenarios import ScenarioFile, find
from fabric_emu.commands.terminal import terminal
from fabric_emu.errors import FabricError, ScenarioError

if TYPE_CHECKING:
    from fabric_emu.model.message_workload import Messages
    from fabric_emu.model.scenario import Scenario
    from fabric_emu.model.topology import Topology
    from fabric_emu.model.workload import OpenLoop

_LABEL = 18


@click.command()
@click.argument("scenarios", nargs=-1, required=True, type=ScenarioFile(), metavar="SCENARIO...")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of every scenario, such as topology.spines=4. Repeatable.",
)
def check(scenarios: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Check scenarios and print what each would build.

    Needs no root. Ends with 2 when one of them is wrong; every mistake is named.
    """
    from rich.text import Text

    from fabric_emu.model.load import load_scenario
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
        for label, text in describe(scenario):
            print_wrapped(console, Text(f"  {label:{_LABEL}}{text}"), " " * (2 + _LABEL))
    if wrong:
        click.echo("\n".join(wrong), err=True)
        raise click.exceptions.Exit(ScenarioError.exit_code)


def describe(scenario: Scenario) -> list[tuple[str, str]]:
    """Return what a scenario builds and sends, as labels and texts."""
    from fabric_emu.results.describe import nodes, rates
    from fabric_emu.results.figures import printable

    topology = scenario.topology
    to_hosts = topology.total_hosts * topology.planes
    between = _links_between_switches(topology)
    families = " and ".join(f"IPv{family}" for family in topology.families)
    lines = [
        ("title", printable(scenario.title)),
        ("fabric", nodes(topology)),
        ("links", f"{to_hosts:,} to hosts, {between:,} between switches; {rates(topology)}"),
        ("addresses", f"{families}, MTU {topology.mtu}"),
    ]
    if topology.uplinks_per_leaf:
        lines.append(("oversubscription", f"{topology.oversubscription:.3g} : 1 at the leaves"))
    lines += [
        *_traffic(scenario),
        ("schemes", ", ".join(scheme.name for scheme in scenario.schemes)),
        ("seed", str(scenario.seed)),
    ]
    if expected := sum(len(bounds) for bounds in scenario.expect.values()):
        lines.append(("expectations", str(expected)))
    try:
        scenario.check_live()
    except ScenarioError as error:
        lines.append(("cannot run live", str(error)))
    return lines


def _links_between_switches(topology: Topology) -> int:
    # Counted, not listed: the largest fabrics, which are only predicted, have millions.
    above_spines = topology.pods * topology.super_spines * topology.links_per_pair
    return (topology.total_leaves * topology.uplinks_per_leaf + above_spines) * topology.planes


def _traffic(scenario: Scenario) -> list[tuple[str, str]]:
    """Return what the hosts send."""
    from fabric_emu.model.workload import OpenLoop

    if isinstance(scenario.workload, OpenLoop):
        return _flows(scenario.topology, scenario.workload, scenario.seed)
    return _messages(scenario.topology, scenario.workload, scenario.seed)


def _messages(topology: Topology, workload: Messages, seed: int) -> list[tuple[str, str]]:
    from fabric_emu.results.describe import plural
    from fabric_emu.units import format_size

    ranks = len(workload.place(topology, seed))
    sizes = workload.graph(topology, seed).size_bytes
    times = f", {plural(workload.iterations, 'time')}" if workload.iterations > 1 else ""
    of = f"{workload.collective} of {format_size(workload.size)} over {ranks:,} hosts{times}"
    sent = f"{(sizes > 0).sum():,}, {format_size(sizes.sum())} in all"
    return [("collective", of), ("messages", sent)]


def _flows(topology: Topology, workload: OpenLoop, seed: int) -> list[tuple[str, str]]:
    """Return the flows and the load they offer."""
    import numpy as np

    from fabric_emu.results.describe import plural
    from fabric_emu.results.figures import percent
    from fabric_emu.units import format_duration, format_rate

    flows = workload.table(topology, seed)
    if not len(flows):
        return [("flows", "none")]
    senders = len(np.unique(flows.source))
    each = format_rate(flows.rate_bps.min())
    if flows.rate_bps.min() < flows.rate_bps.max():
        each += f" to {format_rate(flows.rate_bps.max())}"
    offered = flows.rate_bps.sum()
    of_senders = offered / (senders * topology.planes * topology.host_rate_bps)
    load = f"{format_rate(offered)} in all: {percent(of_senders, 1)} of the senders' links"
    if topology.uplinks_per_leaf:
        # The leaf, of any plane, that has most to send to other leaves.
        leaf = flows.source // topology.hosts_per_leaf
        upwards = leaf != flows.destination // topology.hosts_per_leaf
        by_leaf = np.zeros((topology.planes, topology.total_leaves))
        np.add.at(by_leaf, (flows.plane[upwards], leaf[upwards]), flows.rate_bps[upwards])
        capacity = topology.uplinks_per_leaf * topology.link_rate
        load += f", {percent(by_leaf.max() / capacity, 1)} of the busiest leaf's uplinks"
    return [
        (
            "flows",
            f"{len(flows):,} from {plural(senders, 'host')}, each {each} for "
            f"{format_duration(workload.duration)}; payload {workload.payload:,} bytes",
        ),
        ("offered load", load),
    ]
