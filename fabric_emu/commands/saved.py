"""Finding the folders of runs: by path, by name in ``results``, or the latest of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from fabric_emu.errors import ScenarioError

if TYPE_CHECKING:
    from fabric_emu.results.run import RunResult

RESULTS_DIR = Path("results")
LATEST = "latest"

_STAMP = re.compile(r"-\d{8}-\d{6}(-\d+)?$")


class SavedRunFolder(click.ParamType):
    """A run as command line argument; completes what is in ``results``."""

    name = "run"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; folders where there are none."""
        names = [LATEST, *(one.name for one in _folders())]
        items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return items or [CompletionItem(incomplete, type="dir")]


def find_run(name: str) -> Path:
    """Return the folder (or ``run.json``) that a user means.

    Raises:
        ScenarioError: there is none.
    """
    path = Path(name)
    try:
        if path.exists():
            return path
    except OSError as error:  # a folder on its way is closed to the user
        raise ScenarioError("RUN", name, "a folder that can be read", str(error)) from None
    folders = {one.name: one for one in _folders()}
    if name in folders:
        return folders[name]
    meant = [one for one in folders.values() if name == LATEST or _is_of(one.name, name)]
    if meant:
        return max(meant, key=lambda one: (one / "run.json").stat().st_mtime)
    from fabric_emu.model.mistakes import did_you_mean

    expected = "the folder of a run, a name in results, or a scenario that was run"
    if not folders:
        expected = "the folder of a run; there is none in results here"
    names = [LATEST, *folders, *{_STAMP.sub("", folder) for folder in folders}]
    raise ScenarioError("RUN", name, expected, did_you_mean(name, names))


def read_runs(names: Sequence[str]) -> list[tuple[Path, RunResult]]:
    """Return runs with their folders.

    Raises:
        ScenarioError: one is not there.
        UnreadableRun: one cannot be read.
    """
    from fabric_emu.results.read import load_run

    found = [find_run(name) for name in names]
    return [(path if path.is_dir() else path.parent, load_run(path)) for path in found]


def _is_of(folder: str, scenario: str) -> bool:
    return _STAMP.sub("", folder) == scenario


def _folders() -> list[Path]:
    return sorted(file.parent for file in RESULTS_DIR.glob("*/run.json"))
