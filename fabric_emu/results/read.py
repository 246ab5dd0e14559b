"""Reading the folder of a run."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from pydantic import ValidationError

from fabric_emu.errors import FabricError
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.run import FORMAT, RUN_FILE, RunResult
from fabric_emu.results.tables import Columns, csv_columns


class UnreadableRun(FabricError):
    """A run folder that this version cannot read."""

    exit_code = 2


def load_run(path: str | PathLike[str]) -> RunResult:
    """Read a run back from its folder or from its ``run.json``.

    Raises:
        UnreadableRun: it is not there, is not a run, or was written by a newer version.
    """
    path = Path(path)
    file = path / RUN_FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise UnreadableRun(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise UnreadableRun(f"{file} is not JSON: {error}") from None
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise UnreadableRun(f"{file} is not the record of a run: it names no format")
    if version > FORMAT:
        raise UnreadableRun(
            f"{file} has format {version}; this fabric-emu reads formats up to {FORMAT}: "
            "read it with the version that wrote it, or a newer one"
        )
    try:
        names = [name for summary in document["schemes"] for name in summary["files"].values()]
        Scenario.model_validate(document["scenario"])
        contents = {name: _read(file.parent / Path(name).name) for name in names}
        return RunResult(
            name=document["name"],
            scenario=document["scenario"],
            seed=document["seed"],
            seeds=tuple(document["seeds"]),
            started=document["started"],
            machine=document["machine"],
            status=document["status"],
            error=document["error"],
            schemes=tuple(document["schemes"]),
            tables={
                name: _parsed(file.parent / Path(name).name, content)
                for name, content in contents.items()
                if not name.endswith(".npz")
            },
            packed={name: found for name, found in contents.items() if name.endswith(".npz")},
            format=version,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableRun(f"{file} is not whole: {error!r}") from None
    except ValidationError as error:
        raise UnreadableRun(f"{file}: its scenario is none of this version's: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableRun(f"{path}: {error.strerror}") from None


def _parsed(path: Path, content: bytes) -> Columns:
    try:
        return csv_columns(content)
    except ValueError as error:
        raise UnreadableRun(f"{path}: {error}") from None
