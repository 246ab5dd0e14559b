"""The result of a run: what was asked, on which machine, and what came out of every scheme."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from fabric_emu.errors import FabricError
from fabric_emu.model.expectation import judge
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.folder import safe_name, write_folder

FORMAT = 1
"""Version of ``run.json``: raised when a reader of the former one would misread it."""

RUN_FILE = "run.json"

SPREAD_FIGURES = ("worst_uplink_load", "efficiency", "reordering.ratio", "delay.p99")
"""What is summed up over several seeds; ``worst_link_load`` is first where no uplinks are."""

Columns = Mapping[str, Sequence[Any]]
Status = Literal["complete", "partial", "failed"]


class UnreadableRun(FabricError):
    """A run folder that this version cannot read."""

    exit_code = 2


class Measured(Protocol):
    """What one scheme at one seed gave: its summary, a row per queue pair and one per port."""

    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def flows(self) -> dict[str, list[Any]]: ...
    @property
    def ports(self) -> dict[str, list[Any]]: ...


@dataclass(frozen=True)
class RunResult:
    """Everything that is known of a run; grows scheme by scheme, each step a new value.

    Attributes:
        name: of the scenario, as its file is called.
        scenario: the scenario as run, ready for JSON.
        seed, seeds: the first seed, and all.
        started: when, ISO 8601 in UTC.
        status: ``partial`` when it was interrupted, ``failed`` when it broke.
        error: what ended a run that is not complete.
        machine: versions, kernel, processors, sysctls.
        schemes: the summary of each scheme at each seed, seed by seed, with ``expectations``.
        tables: columns by file name, such as ``flows-ecmp.csv``.
        format: version of the file format.
    """

    name: str
    scenario: dict[str, Any]
    seed: int
    seeds: tuple[int, ...]
    started: str
    machine: dict[str, Any]
    status: Status = "partial"
    error: str = ""
    schemes: tuple[dict[str, Any], ...] = ()
    tables: Mapping[str, Columns] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def begin(
        cls, name: str, scenario: Scenario, seeds: Sequence[int], machine: dict[str, Any]
    ) -> Self:
        """Return a run that starts now and has no results yet."""
        return cls(
            name=name,
            scenario=scenario.model_dump(mode="json"),
            seed=seeds[0],
            seeds=tuple(seeds),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine,
        )

    def with_scheme(self, measured: Measured) -> Self:
        """Return the run with the results of one more scheme, held against the expectations."""
        summary = _plain(measured.summary)
        expect = Scenario.model_validate(self.scenario).expect
        summary["expectations"] = [
            {key: value for key, value in asdict(verdict).items() if key != "scheme"}
            for verdict in judge(expect, summary["name"], summary)
        ]
        stem = safe_name(summary["name"], "scheme")
        if len(self.seeds) > 1:
            stem += f"-seed{summary['seed']}"
        files = {"flows": f"flows-{stem}.csv", "ports": f"ports-{stem}.csv"}
        tables = {files["flows"]: measured.flows, files["ports"]: measured.ports}
        summary["files"] = files
        return replace(
            self, schemes=(*self.schemes, summary), tables={**self.tables, **_plain(tables)}
        )

    def ended(self, status: Status, error: str = "") -> Self:
        """Return the run with how it ended."""
        return replace(self, status=status, error=error)

    @property
    def expectations_hold(self) -> bool:
        """False when a figure is outside of what the scenario expects."""
        return all(one["holds"] for summary in self.schemes for one in summary["expectations"])

    @property
    def spread(self) -> dict[str, dict[str, dict[str, float]]]:
        """With several seeds: by scheme and figure the min, median, mean and max; else empty."""
        if len(self.seeds) < 2:
            return {}
        found: dict[str, dict[str, dict[str, float]]] = {}
        for name in dict.fromkeys(summary["name"] for summary in self.schemes):
            rows = [summary for summary in self.schemes if summary["name"] == name]
            found[name] = {}
            for figure in (worst_load_figure(rows), *SPREAD_FIGURES[1:]):
                values = [value for row in rows if (value := figure_of(row, figure)) is not None]
                if values:
                    found[name][figure] = {
                        "min": min(values),
                        "median": statistics.median(values),
                        "mean": statistics.fmean(values),
                        "max": max(values),
                    }
        return found

    def document(self) -> dict[str, Any]:
        """Return what ``run.json`` holds; SI units (seconds, bytes, bit/s, ratios)."""
        return {
            "format": self.format,
            "name": self.name,
            "status": self.status,
            "error": self.error,
            "started": self.started,
            "seed": self.seed,
            "seeds": list(self.seeds),
            "scenario": self.scenario,
            "schemes": list(self.schemes),
            "spread": self.spread,
            "machine": _plain(self.machine),
        }

    def to_json(self) -> str:
        """Return ``document()`` as JSON text that any reader takes: no NaN, no infinity."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    def save(self, results: Path) -> Path:
        """Write the run into a new folder in ``results`` and return its path.

        The folder ``<name>-<YYYYmmdd-HHMMSS>`` (UTC) appears when all of it is on disk; behind
        sudo it belongs to the user who called.

        Raises:
            FabricError: it cannot be written.
        """
        files = {RUN_FILE: self.to_json().encode()}
        files |= {name: _csv(columns) for name, columns in self.tables.items()}
        stamp = datetime.fromisoformat(self.started).astimezone(UTC)
        name = safe_name(self.name, "scenario")
        return write_folder(results, f"{name}-{stamp:%Y%m%d-%H%M%S}", files)


def load_run(path: str | Path) -> RunResult:
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
            tables={name: _read_csv(file.parent / Path(name).name) for name in names},
            format=version,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableRun(f"{file} is not whole: {error!r}") from None


def worst_load_figure(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the figure of the busiest link: of uplinks, or of all links where there are none."""
    if any(figure_of(summary, "worst_uplink_load") is not None for summary in summaries):
        return "worst_uplink_load"
    return "worst_link_load"


def figure_of(summary: Mapping[str, Any], figure: str) -> float | None:
    """Return a figure of a summary by its dotted name; None when there is no such number."""
    value: Any = summary
    for key in figure.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it: numpy's numbers as Python's, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(columns: Columns) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _read_csv(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    except (OSError, ValueError) as error:
        raise UnreadableRun(f"{path}: {error}") from None
    return {name: [_number(row[i]) for row in rows] for i, name in enumerate(header)}


def _number(text: str) -> int | float | str | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
