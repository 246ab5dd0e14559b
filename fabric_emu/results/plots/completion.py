"""When messages and collectives were complete, as cumulative distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.results.entries import Entry, Floats
from fabric_emu.results.plots.plot import GREY, Axis, Panel, Plot, figure, numbers

POINTS_MAX = 400

Times = tuple[Floats, Floats]
"""Seconds taken (NaN: for ever), and what would have been ideal."""


def completion(entries: Sequence[Entry]) -> Plot | None:
    """Return the plot; None when no scheme carried messages."""
    with_messages = [entry for entry in entries if len(entry.saved.messages.get("message", ()))]
    if not with_messages:
        return None
    variants = {"arrival in the collective": [_panel(with_messages, _since_begin)]}
    if any(len(entry.saved.messages["collective_name"]) > 1 for entry in with_messages):
        variants["whole collectives"] = [_panel(with_messages, _collectives)]
    variants["each message"] = [_panel(with_messages, _messages)]
    variants = {name: panels for name, panels in variants.items() if panels[0].figure["data"]}
    return Plot(
        "completion",
        "Completion",
        "Share of messages (or collectives) complete within a time. The dashed line is the ideal: "
        "the least that link rates allow, with nothing else on the fabric; a curve that stays "
        "below 100 % has messages that never arrived.",
        variants,
        choice="what",
        default=next(iter(variants)),
    )


def _since_begin(messages: dict[str, NDArray[Any]]) -> Times:
    """Return arrivals after the collective's begin; ideal is when its last one should be there."""
    inside = messages["occurrence"] >= 0
    of = messages["occurrence"][inside]
    begin = messages["collective_begin_s"][of]
    arrival = (messages["start_s"] + messages["taken_s"])[inside] - begin
    return arrival, messages["collective_ideal_s"][of].max(keepdims=True, initial=0.0)


def _collectives(messages: dict[str, NDArray[Any]]) -> Times:
    return messages["collective_taken_s"], messages["collective_ideal_s"]


def _messages(messages: dict[str, NDArray[Any]]) -> Times:
    return messages["taken_s"], messages["ideal_s"]


def _panel(entries: Sequence[Entry], times: Callable[[dict[str, NDArray[Any]]], Times]) -> Panel:
    traces: list[dict[str, Any]] = []
    ideals = []
    for entry in entries:
        taken, ideal = times(entry.saved.messages)
        if not taken.size:
            continue
        x, y = _distribution(taken)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": entry.label,
                "x": numbers(x, 5),
                "y": numbers(y),
                "line": {"color": entry.colour, "width": 2, "shape": "hv"},
                "hovertemplate": "%{y:.1%} within %{x:.4~s}s<extra>%{fullData.name}</extra>",
            }
        )
        ideals.append(ideal)
    if traces:
        # Schemes with larger headers have slightly larger ideals: the smallest is drawn.
        x, y = _distribution(min(ideals, key=lambda ideal: float(ideal.sum())))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "ideal",
                "x": numbers(x, 5),
                "y": numbers(y),
                "line": {"color": GREY, "width": 2, "dash": "dash", "shape": "hv"},
                "hovertemplate": "ideal: %{x:.4~s}s<extra></extra>",
            }
        )
    y_axis = Axis("share complete", {"range": [0, 1.02], "tickformat": ".0%"})
    return Panel("", figure(traces, Axis("seconds", {"rangemode": "tozero"}), y_axis, legend=True))


def _distribution(taken: Floats) -> tuple[Floats, Floats]:
    """Return the steps of a cumulative distribution, thinned; what is NaN never comes."""
    finished = np.sort(taken[~np.isnan(taken)])
    if not finished.size:
        return np.zeros(1), np.zeros(1)
    shares = np.arange(1, finished.size + 1) / taken.size
    if finished.size > POINTS_MAX:
        kept = np.unique(np.linspace(0, finished.size - 1, POINTS_MAX).astype(np.int64))
        finished, shares = finished[kept], shares[kept]
    return np.insert(finished, 0, finished[0]), np.insert(shares, 0, 0.0)
