"""Finding the folders of runs: a path, the name of a folder in ``results``, or the latest."""

from __future__ import annotations

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
    if path.exists():
        return path
    folders = {one.name: one for one in _folders()}
    if name == LATEST and folders:
        return max(folders.values(), key=lambda one: (one / "run.json").stat().st_mtime)
    if name in folders:
        return folders[name]
    from fabric_emu.model.mistakes import did_you_mean

    expected = "the folder of a run, or a name in results"
    if not folders:
        expected = "the folder of a run; there is none in results here"
    raise ScenarioError("RUN", name, expected, did_you_mean(name, [*folders, LATEST]))


def read_runs(names: Sequence[str]) -> list[tuple[Path, RunResult]]:
    """Return runs with their folders.

    Raises:
        ScenarioError: one is not there.
        UnreadableRun: one cannot be read.
    """
    from fabric_emu.results.read import load_run

    found = [find_run(name) for name in names]
    return [(path if path.is_dir() else path.parent, load_run(path)) for path in found]


def _folders() -> list[Path]:
    return sorted(file.parent for file in RESULTS_DIR.glob("*/run.json"))
