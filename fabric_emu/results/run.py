"""The result of a run: what was asked, on which machine, and what came out of every scheme.

A run's folder, format 1, SI units throughout (seconds, bytes, bit/s, ratios)::

    run.json             scenario, seeds, machine, status; of every scheme the summary: figures,
                         verdict, expectations, ``recovery`` from faults, and the names of its
                         files under ``files``
    flows-SCHEME.csv     a row per queue pair: packets, bytes by path, predicted path
    ports-SCHEME.csv     a row per port: loads over the run, counters at its end
    series-SCHEME.npz    counters of every port over time: ``measure.series``
    reordering-SCHEME.npz  shares of packets by displacement: ``measure.reorder_profile``
    messages-SCHEME.npz  begin and length of every message: ``measure.completion``, goodput over
                         time: ``measure.goodput``; if there are any
    frr-SWITCH.conf      what FRR read, where BGP ran; with -SCHEME where that has BGP of its own
    captures/            pcapng files, where captures were asked for: NAME-SCHEME.pcapng
    report.html          all of it as pictures; made from the files above, never read

``SCHEME`` gains ``-seedN`` when there are several seeds. ``fabric_emu.load`` reads a folder.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from numpy.typing import NDArray

from fabric_emu.errors import FabricError
from fabric_emu.model.control_plane import Bgp
from fabric_emu.model.expectation import judge
from fabric_emu.model.frr import configurations
from fabric_emu.model.scenario import Scenario
from fabric_emu.results.folder import safe_name, write_file, write_folder
from fabric_emu.results.summaries import figure_of, plain, worst_load_figure
from fabric_emu.results.tables import (
    Arrays,
    Columns,
    csv_bytes,
    npz_arrays,
    npz_bytes,
)

FORMAT = 1
"""Version of ``run.json``: raised when a reader of the former one would misread it."""

RUN_FILE, REPORT_FILE = "run.json", "report.html"

ARRAYS = ("series", "reordering", "messages")
"""What is kept as arrays, beside the columns of flows and ports."""

SPREAD_FIGURES = ("worst_uplink_load", "efficiency", "reordering.ratio", "delay.p99")
"""What is summed up over several seeds; ``worst_link_load`` is first where no uplinks are."""

Status = Literal["complete", "partial", "failed"]


class Measured(Protocol):
    """What one scheme at one seed gave: see ``measure.summary.SchemeResult``."""

    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def flows(self) -> dict[str, list[Any]]: ...
    @property
    def ports(self) -> dict[str, list[Any]]: ...
    @property
    def series(self) -> Arrays: ...
    @property
    def reordering(self) -> Arrays: ...
    @property
    def messages(self) -> Arrays: ...


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
        packed: arrays by file name, such as ``series-ecmp.npz``, as they are stored: they are
            many, and few are looked at.
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
    tables: Mapping[str, Columns] = field(default_factory=dict, repr=False)
    packed: Mapping[str, bytes] = field(default_factory=dict, repr=False)
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
        summary = plain(measured.summary)
        expect = Scenario.model_validate(self.scenario).expect
        summary["expectations"] = [
            {key: value for key, value in asdict(verdict).items() if key != "scheme"}
            for verdict in judge(expect, summary["name"], summary)
        ]
        stem = safe_name(summary["name"], "scheme")
        if len(self.seeds) > 1:
            stem += f"-seed{summary['seed']}"
        tables = {"flows": measured.flows, "ports": measured.ports}
        arrays = {name: getattr(measured, name) for name in ARRAYS}
        packed = {name: npz_bytes(found) for name, found in arrays.items() if found}
        files = {name: f"{name}-{stem}.csv" for name in tables}
        files |= {name: f"{name}-{stem}.npz" for name in packed}
        summary["files"] = files
        return replace(
            self,
            schemes=(*self.schemes, summary),
            tables={**self.tables, **{files[name]: plain(tables[name]) for name in tables}},
            packed={**self.packed, **{files[name]: packed[name] for name in packed}},
        )

    def columns(self, summary: Mapping[str, Any], name: str) -> Columns:
        """Return the columns ``flows`` or ``ports`` of one of ``schemes``."""
        return self.tables[summary["files"][name]]

    def arrays(self, summary: Mapping[str, Any], name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of one of ``schemes``, named as in ``ARRAYS``; empty without any.

        Raises:
            FabricError: the file that they were read from is broken.
        """
        file = summary["files"].get(name)
        try:
            return npz_arrays(self.packed[file]) if file else {}
        except ValueError as error:
            raise FabricError(f"{file}: {error}") from None

    def ended(self, status: Status, error: str = "") -> Self:
        """Return the run with how it ended."""
        return replace(self, status=status, error=error)

    @property
    def expectations_hold(self) -> bool:
        """False when a figure is outside of what the scenario expects."""
        return all(one["holds"] for summary in self.schemes for one in summary["expectations"])

    @property
    def trustworthy(self) -> bool:
        """False when the verdict on a scheme at a seed is doubtful."""
        return all(summary["verdict"]["trustworthy"] for summary in self.schemes)

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
            "machine": plain(self.machine),
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
        files |= {name: csv_bytes(columns) for name, columns in self.tables.items()}
        files |= self.packed
        files |= self._router_files()
        stamp = datetime.fromisoformat(self.started).astimezone(UTC)
        name = safe_name(self.name, "scenario")
        return write_folder(results, f"{name}-{stamp:%Y%m%d-%H%M%S}", files)

    def _router_files(self) -> dict[str, bytes]:
        """Return FRR's configuration of every switch, of the schemes that have BGP."""
        scenario = Scenario.model_validate(self.scenario)
        found = {}
        for scheme in scenario.schemes:
            plane = scenario.control_plane_of(scheme)
            if isinstance(plane, Bgp):
                own = "" if plane == scenario.control_plane else f"-{safe_name(scheme.name, '')}"
                for switch, text in configurations(scenario.topology, plane).items():
                    found[f"frr-{switch}{own}.conf"] = text.encode()
        return found

    def save_report(self, folder: Path) -> Path:
        """Draw the report into the folder of the run and return its path.

        Apart from ``save``: a mistake in a picture costs no measurement.

        Raises:
            FabricError: it cannot be written.
        """
        # Only here: what draws takes long to import.
        from fabric_emu.results.report import report_page

        write_file(folder / REPORT_FILE, report_page([self]).encode())
        return folder / REPORT_FILE
