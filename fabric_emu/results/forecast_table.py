"""Predictions for people: schemes side by side, loads of uplinks, many seeds against chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fabric_emu.results.bars import print_bars
from fabric_emu.results.figures import count, percent, print_wrapped, ratio

FLOWS_MAX = 4096
_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)

Summary = Mapping[str, Any]


def print_forecasts(console: Console, summaries: Sequence[Summary], seed: int) -> None:
    """Print what one seed gives: a row per scheme, then the uplinks as bars."""
    table = _table("\nscheme", "worst\nuplink", "max /\nmean", "\nefficiency", "paths\nused")
    for summary in summaries:
        spread = [leaf["max_over_mean"] for leaf in summary["imbalance"].values()]
        load = summary["worst_uplink_load"]
        paths = summary["paths"]
        table.add_row(
            summary["name"],
            Text(percent(load, 1), style="bold red" if load is not None and load > 1 else ""),
            ratio(max(spread, default=None)),
            percent(summary["efficiency"], 2),
            f"{paths['used']} of {paths['possible']}",
        )
    _print(console, table)
    print_bars(console, summaries, f"Load offered to uplinks with seed {seed}")


def print_flows(console: Console, name: str, flows: Mapping[str, Sequence[Any]]) -> None:
    """Print the path of every queue pair; of sprayed flows, how many they use."""
    rows = len(flows["flow"])
    hashed = "predicted_path" in flows
    last = ("source\nport", "\npath") if hashed else ("paths\nused",)
    table = _table("\nflow", "\nfrom", "\nto", "\nplane", "address\nfamily", *last)
    for i in range(min(rows, FLOWS_MAX)):
        ends = [str(flows["flow"][i] + 1), flows["source"][i], flows["destination"][i]]
        where = [str(flows["plane"][i] + 1), f"IPv{flows['family'][i]}"]
        if hashed:
            end = [str(flows["source_port"][i]), flows["predicted_path"][i]]
        else:
            end = [str(flows["paths"][i])]
        table.add_row(*ends, *where, *end)
    console.print()
    console.print(f"{'Queue pairs' if hashed else 'Flows'} of {name}")
    _print(console, table)
    if rows > FLOWS_MAX:
        console.print(f"{rows - FLOWS_MAX:,} more: --json gives all")


def print_spreads(console: Console, found: Sequence[Summary]) -> None:
    """Print what many seeds give: the worst uplink, leaves' imbalance, and what chance alone does.

    Args:
        found: from ``predict.scale.summarise_spread``.
    """
    seeds, first = found[0]["seeds"], found[0]["first_seed"]
    which = f"seed {first}" if seeds == 1 else f"{seeds:,} seeds, {first} to {first + seeds - 1}"
    # The load of the fabric's worst uplink, then how uneven a leaf's uplinks are.
    table = _table(
        "\nscheme",
        "worst:\nmean",
        "\np50",
        "\np99",
        "\nmax",
        "max /\nmean",
        "by\nchance",
        "worst\nleaf",
    )
    for one in found:
        load, leaf, fabric = (
            one[key] or {} for key in ("worst_uplink_load", "leaf_imbalance", "fabric_imbalance")
        )
        table.add_row(
            one["name"],
            *(percent(load.get(key), 1) for key in ("mean", "p50", "p99", "max")),
            ratio(leaf.get("mean")),
            ratio(one["law"].get("leaf_imbalance")),
            ratio(fabric.get("mean")),
        )
    console.print()
    print_wrapped(console, Text(f"Load of the worst uplink, and of leaves' uplinks, over {which}"))
    _print(console, table)
    console.print()
    for one in found:
        if one["law"]["applies"] or one["hashed"]:
            print_wrapped(console, _against_law(one))


def _against_law(found: Summary) -> Text:
    law = found["law"]
    if not law["applies"]:
        return Text(f"Chance: {found['name']}: no comparison: {law['reason']}")
    fit = law["fit"]
    verdict = "as chance has it" if fit["consistent"] else "not what chance alone does"
    return Text(
        f"Chance: {found['name']}: {law['streams']:,} on {law['links']} links at random give "
        f"{fit['expected']:.4f}, {count(fit['samples'])} leaves and seeds gave {fit['mean']:.4f}: "
        f"{verdict} (the distributions differ by {fit['distance']:.4f}, by chance less than "
        f"{fit['allowed']:.4f})",
        style="" if fit["consistent"] else "bold red",
    )


def _table(first: str, *headers: str) -> Table:
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for header in headers:
        left = header.strip() in ("path", "from", "to")
        table.add_column(header, justify="left" if left else "right", no_wrap=True)
    return table


def _print(console: Console, table: Table) -> None:
    """Print a table, without blanks at the ends of lines where they would be kept."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(line.rstrip(), no_wrap=True, crop=False, overflow="ignore")
