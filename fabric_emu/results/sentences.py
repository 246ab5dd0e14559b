"""What came out of a scheme, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabric_emu.model.topology import Topology
from fabric_emu.results.columns import Summary, dropped
from fabric_emu.results.describe import plural
from fabric_emu.results.fault_sentences import recovery_clause, training_clause
from fabric_emu.results.figures import count, duration, percent, ratio
from fabric_emu.results.summaries import figure_of, worst_load_figure
from fabric_emu.units import format_rate, format_size

_ALIKE = 1.02
"""A busiest uplink this close to the mean is no busier than the others."""

_REASONS = {
    "queue_limit": "by full queues",
    "fault_loss": "by a faulty link",
    "blackhole": "in a black hole",
    "control_limit": "by full queues of control packets",
    "link_down": "with a link that went down",
    "no_carrier": "at a link that was down",
    "no_route": "for want of a route",
    "receive_ring": "in a receiver's full ring",
}


def sentence(summary: Summary, topology: Topology, collective: str = "") -> str:
    """Return what came out of a scheme.

    Args:
        summary: of the scheme at one seed.
        topology: what it ran on.
        collective: what was sent, when that was messages.
    """
    parts = [_completion(summary, topology, collective), _load(summary), _losses(summary)]
    parts += [_order(summary), _retransmissions(summary)]
    parts += [recovery_clause(summary), training_clause(summary)]
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else "Nothing was measured."


def over_seeds(rows: Sequence[Summary]) -> str:
    """Return how the busiest link varied over several seeds."""
    figure = worst_load_figure(rows)
    loads = [value for row in rows if (value := figure_of(row, figure)) is not None]
    if len(loads) < 2:
        return ""
    kind = "uplink" if figure == "worst_uplink_load" else "link"
    low, high = percent(min(loads), 1), percent(max(loads), 1)
    return f"Over {len(loads)} seeds the busiest {kind} was asked for {low} to {high}."


def _completion(summary: Summary, topology: Topology, collective: str) -> str:
    done: Mapping[str, Any] | None = summary.get("completion")
    if not done or not done.get("count"):
        return ""
    name = collective or "collective"
    number = int(done["count"])
    if unfinished := done.get("unfinished"):
        missing = (summary.get("messages") or {}).get("unfinished", 0)
        late = f"{count(missing)} of {plural(int(summary['messages']['count']), 'message')}"
        which = "the" if number == 1 else f"{unfinished} of {number}"
        return f"{which} {_named(number, name)} never finished: {late} did not arrive"
    taken = duration(done["max"], ascii_only=False)
    ideal = ratio(done["over_ideal"])
    first = f"the {name} took {taken}"
    if number > 1:
        first = f"the slowest of {_named(number, name, with_number=True)} took {taken}"
    text = f"{first}{_stands_for_time(done['max'], topology)}, {ideal} times the ideal"
    if bandwidth := figure_of(summary, "busbw"):
        text += f", at a bus bandwidth of {format_rate(bandwidth)}"
        if topology.stands_for:
            text += f" (standing for {format_rate(bandwidth * topology.scale)})"
    return text


def _named(number: int, name: str, with_number: bool = False) -> str:
    many = (
        name if number == 1 else f"{name}s" if not name.endswith("all-to-all") else f"{name} runs"
    )
    return f"{number} {many}" if with_number else many


def _stands_for_time(seconds: float, topology: Topology) -> str:
    if not topology.stands_for:
        return ""
    return f" (standing for {duration(seconds / topology.scale, ascii_only=False)})"


def _load(summary: Summary) -> str:
    figure = worst_load_figure([summary])
    load = figure_of(summary, figure)
    if load is None:
        return ""
    link = summary.get("worst_uplink" if figure == "worst_uplink_load" else "worst_link")
    kind = "uplink" if figure == "worst_uplink_load" else "link"
    text = f"the busiest {kind}, {link}, was asked for {percent(load, 1)} of what it carries"
    switch = str(link).partition("-")[0]
    over_mean = figure_of(summary, f"imbalance.{switch}.max_over_mean")
    if kind == "link" or over_mean is None:
        return text
    if over_mean <= _ALIKE:
        return f"{text}, no more than its neighbours"
    return f"{text}, {ratio(over_mean)} times the mean of {switch}'s uplinks"


def _losses(summary: Summary) -> str:
    lost, sent = dropped(summary), figure_of(summary, "packets.sent")
    trimmed = figure_of(summary, "packets.trimmed") or 0
    cut = f"; {count(trimmed)} packets were trimmed to their headers" if trimmed else ""
    if not lost:
        return f"no packet was lost{cut}"
    share = f" ({percent(lost / sent, 2)})" if sent else ""
    reasons = summary["packets"]["dropped"]
    how = " and ".join(_REASONS.get(name, name) for name, number in reasons.items() if number)
    return f"{count(lost)} packets{share} were lost {how}{cut}"


def _order(summary: Summary) -> str:
    share = figure_of(summary, "reordering.ratio")
    if share is None:
        return ""
    if not share:
        return "nothing was reordered"
    extent = figure_of(summary, "reordering.max_extent") or 0
    text = f"{percent(share, 2)} of packets came out of order"
    if extent:
        text += f", by {plural(int(extent), 'packet')} at most"
    if buffer := figure_of(summary, "reordering.buffer_bytes"):
        text += f", for which a NIC holds back up to {format_size(buffer)}"
    return text


def _retransmissions(summary: Summary) -> str:
    again = figure_of(summary, "retransmitted")
    if again is None:
        return ""
    failed = int(figure_of(summary, "queue_pairs_failed") or 0)
    end = f"; {plural(failed, 'queue pair')} gave up" if failed else ""
    if not again:
        return f"nothing was sent again{end}"
    return f"{count(again)} packets were sent again{end}"
