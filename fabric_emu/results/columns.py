"""The columns that compare schemes, of the table and of the report."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_emu.results.figures import count, duration, percent, ratio, three_digits
from fabric_emu.results.run import RunResult
from fabric_emu.results.summaries import figure_of, worst_load_figure

Summary = Mapping[str, Any]

LOAD_DIGITS = 1

_OVERLOADED = 1.02
"""More than a port that is served as exactly as the verdict asks for can make of 100 %."""

_JUDGING = ("completion.over_ideal", "worst_uplink_load", "worst_link_load")

_DECIMAL_PREFIXES = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        key: its name in CSV: the figure's dotted name where it is one of the summary's.
        header: two lines at most.
        meaning: in a sentence.
        figure: of a summary.
        write: the figure for people.
        rank: columns of the highest rank go first where the width does not suffice.
        narrow: the header where the width is scarce, if there is a shorter one.
    """

    key: str
    header: str
    meaning: str
    figure: Callable[[Summary], float | None]
    write: Callable[[float | None], str]
    rank: int
    narrow: str = ""


def columns(rows: Sequence[Summary], ascii_only: bool) -> list[Column]:
    """Return the columns that these summaries have something for.

    Args:
        rows: summaries of a run, or of several.
        ascii_only: whether to write "us" for microseconds.
    """
    worst = worst_load_figure(rows)
    kind = "uplink" if worst == "worst_uplink_load" else "link"
    found = [
        *_completion(rows),
        _of(
            worst,
            f"worst\n{kind}",
            f"what was asked of the busiest {kind}, before any drop, over what it carries",
            lambda value: percent(value, LOAD_DIGITS),
            1,
        ),
        *_downlinks(rows),
        Column(
            "max_over_mean",
            "max /\nmean",
            "the busiest uplink of a switch over the mean of its uplinks, where that is largest",
            _imbalance,
            ratio,
            5,
        ),
        _of(
            "efficiency",
            "\nefficiency",
            "packets delivered over packets offered; with transports, needed over sent",
            lambda value: percent(value, 2),
            2,
            "effi-\nciency",
        ),
        _of(
            "reordering.ratio",
            "\nreordered",
            "packets that arrive behind a later one of their flow (RFC 4737)",
            lambda value: percent(value, 2),
            3,
            "re-\nordered",
        ),
        _of("reordering.max_extent", "max\nextent", "by how many packets, at most", count, 9),
        _of(
            "delay.p99",
            "delay\np99",
            "from the hand-over to the NIC until the arrival in the receiver's ring",
            lambda value: duration(value, ascii_only),
            7,
        ),
        Column("packets.dropped", "\ndropped", "packets lost, for any reason", dropped, count, 6),
    ]
    if any("retransmitted" in row for row in rows):
        meaning = "packets sent again"
        found.append(_of("retransmitted", "\nresent", meaning, count, 3, "re-\nsent"))
    if any(figure_of(row, "loss_noticed.count") for row in rows):
        meaning = "from handing a packet to the NIC until its sender took it for lost: 99 %"
        found.append(
            _of(
                "loss_noticed.p99",
                "loss known\np99",
                meaning,
                lambda value: duration(value, ascii_only),
                7,
            )
        )
    if any(figure_of(row, "packets.trimmed") for row in rows):
        meaning = "packets cut to their headers by a full queue"
        found.append(_of("packets.trimmed", "\ntrimmed", meaning, count, 4, "\ntrims"))
    if any(figure_of(row, "ecn_marked") for row in rows):
        meaning = "packets marked by a filling queue (ECN)"
        found.append(_of("ecn_marked", "ECN\nmarked", meaning, count, 8))
    return found


def _of(
    figure: str,
    header: str,
    meaning: str,
    write: Callable[[float | None], str],
    rank: int,
    narrow: str = "",
) -> Column:
    return Column(figure, header, meaning, lambda row: figure_of(row, figure), write, rank, narrow)


def downlinks_matter(rows: Sequence[Summary]) -> bool:
    """Return whether a link down to a switch is asked for too much, and more so than any uplink."""
    loads = [
        (figure_of(row, "worst_downlink_load") or 0.0, figure_of(row, "worst_uplink_load") or 0.0)
        for row in rows
    ]
    return any(down > max(up, _OVERLOADED) for down, up in loads)


def _downlinks(rows: Sequence[Summary]) -> list[Column]:
    if not downlinks_matter(rows):
        return []
    meaning = "what was asked of the busiest link down to a leaf over what it could carry"
    figure, header = "worst_downlink_load", "worst\ndownlink"
    return [
        _of(figure, header, meaning, lambda value: percent(value, LOAD_DIGITS), 2, "worst\ndown")
    ]


def _completion(rows: Sequence[Summary]) -> list[Column]:
    """Return the columns of workloads of messages."""
    if not any("completion" in row for row in rows):
        return []
    times = "the time that collectives took over the least that the fabric allows"
    found = [_over_ideal("completion.over_ideal", "time /\nideal", f"{times}: the worst", 0)]
    if any((figure_of(row, "completion.count") or 0) > 1 for row in rows):
        found = [
            _over_ideal("completion.over_ideal_p50", "/ ideal\np50", f"{times}: median", 5),
            _over_ideal("completion.over_ideal_p99", "/ ideal\np99", f"{times}: 99 %", 4),
            _over_ideal("completion.over_ideal", "/ ideal\nmax", f"{times}: the worst", 0),
        ]
    fastest = max(figure_of(row, "busbw") or 0.0 for row in rows)
    factor, unit = next((one for one in _DECIMAL_PREFIXES if fastest >= one[0]), (1.0, "bit/s"))
    found.append(
        _of(
            "busbw",
            f"busbw\n{unit}",
            "bandwidth of the collective as nccl-tests count it, to compare with a host's link",
            lambda value: "-" if value is None else three_digits(value / factor),
            2,
        )
    )
    return found


def _over_ideal(key: str, header: str, meaning: str, rank: int) -> Column:
    """Return a column of ratios where what never finished takes for ever."""

    def figure(row: Summary) -> float | None:
        value = figure_of(row, key)
        return math.inf if value is None and figure_of(row, "completion.unfinished") else value

    meaning = f"{meaning}; never: some did not finish"
    return Column(key, header, meaning, figure, _times, rank, header.replace("/ ideal", "ideal"))


def _times(value: float | None) -> str:
    return "never" if value == math.inf else ratio(value)


def _imbalance(summary: Summary) -> float | None:
    ratios = [figure_of(leaf, "max_over_mean") for leaf in summary["imbalance"].values()]
    return max((value for value in ratios if value is not None), default=None)


def dropped(summary: Summary) -> float:
    """Return how many packets were lost."""
    return float(sum(summary["packets"]["dropped"].values()))


def by_scheme(run: RunResult) -> dict[str, list[Summary]]:
    """Return the summaries of each scheme, one per seed, the scheme that did worst first.

    Worst is by the judging column; of several seeds the median counts.
    """
    found: dict[str, list[Summary]] = {}
    for summary in run.schemes:
        found.setdefault(summary["name"], []).append(summary)
    if not found:
        return found
    judged = judging(columns(run.schemes, ascii_only=True))
    order = sorted(found, key=lambda name: median(judged, found[name]) or 0.0, reverse=True)
    return {name: found[name] for name in order}


def judging(shown: Sequence[Column]) -> Column:
    """Return the column that tells which scheme did worst.

    It is the time of collectives over the ideal, else the load of the busiest link.
    """
    return next(column for column in shown if column.key in _JUDGING)


def cell(column: Column, rows: Sequence[Summary]) -> tuple[str, str]:
    """Return a column's text for one scheme, and the range over several seeds if there is one."""
    values = [value for row in rows if (value := column.figure(row)) is not None]
    if len(values) < 2:
        return column.write(values[0] if values else None), ""
    texts = [column.write(value) for value in (statistics.median(values), min(values), max(values))]
    if len(set(texts)) == 1:
        return texts[0], ""
    whole = texts[0]
    unit = f" {whole.rpartition(' ')[2]}"
    if all(one.endswith(unit) for one in texts):
        texts = [one.removesuffix(unit) for one in texts]
    return whole, f"[{texts[1]}..{texts[2]}]"


def worst_rows(shown: Sequence[Column], schemes: Sequence[Sequence[Summary]]) -> list[int]:
    """Return which schemes, ordered worst first, are to be marked as the worst.

    None when all are alike and nothing is asked for more than it can do.
    """
    judged = judging(shown)
    texts = [judged.write(median(judged, rows)) for rows in schemes]
    worst = median(judged, schemes[0])
    if worst is None or (len(set(texts)) == 1 and worst <= 1):
        return []
    return [i for i, text in enumerate(texts) if text == texts[0]]


def median(column: Column, rows: Sequence[Summary]) -> float | None:
    """Return the median of a column over the seeds of a scheme."""
    values = [value for row in rows if (value := column.figure(row)) is not None]
    return statistics.median(values) if values else None


def pictured(run: RunResult) -> list[Summary]:
    """Return the summaries to draw, worst first: of several seeds, the one the worst has as median.

    When a run ended early, seeds that every scheme has come first.
    """
    schemes = by_scheme(run)
    judged = judging(columns(run.schemes, ascii_only=True))
    seeds = [{row["seed"] for row in rows} for rows in schemes.values()]
    common = set.intersection(*seeds)
    of_worst = [row for row in next(iter(schemes.values())) if row["seed"] in common or not common]
    ordered = sorted(of_worst, key=lambda row: judged.figure(row) or 0.0)
    seed = ordered[len(ordered) // 2]["seed"]
    return [row for rows in schemes.values() for row in rows if row["seed"] == seed]
