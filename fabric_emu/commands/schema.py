"""``fabric-emu schema``: what editors need to complete and check scenario files."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON schema of scenario files.

    Needs no root. Editors that know YAML use it: save it, and begin a scenario with
    "# yaml-language-server: $schema=FILE".
    """
    from fabric_emu.model.scenario import Scenario

    described = Scenario.model_json_schema()
    click.echo(
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}, indent=2
        )
    )
