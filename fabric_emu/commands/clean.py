"""``fabric-emu clean``: free what runs left that were killed."""

from __future__ import annotations

import click


@click.command()
def clean() -> None:
    """Free what dead runs left behind: their namespaces and processes, nothing else.

    Runs that are alive are left alone. Needs root.
    """
    from fabric_emu.net.registry import clean as free
    from fabric_emu.results.describe import plural

    freed = free()
    if not freed:
        click.echo("Nothing to free: no dead run has left anything.")
    for one in freed:
        namespaces = plural(len(one.namespaces), "namespace")
        processes = plural(len(one.processes), "process")
        click.echo(f"Freed run {one.lease.removesuffix('.json')}: {namespaces}, {processes}.")
