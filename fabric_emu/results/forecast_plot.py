"""Predictions as a picture: how often a leaf's fullest uplink is how full, and what chance says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.predict.distribution import Law

_BINS = 40
_ROW_HEIGHT = 280


def histogram_page(
    title: str, schemes: Sequence[tuple[str, NDArray[np.float64], Law | None]]
) -> str:
    """Return a page of HTML that needs nothing else, with a histogram of each scheme.

    Args:
        title: of the page.
        schemes: name, fullest uplink over the mean of every leaf and seed, and its law if any.
    """
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=len(schemes), cols=1, subplot_titles=[name for name, _, _ in schemes]
    )
    for row, (name, imbalance, law) in enumerate(schemes, start=1):
        at, share = _shares(imbalance, law)
        figure.add_trace(
            graph_objects.Bar(x=at, y=share, name=f"{name}, predicted", marker_color="#4477aa"),
            row=row,
            col=1,
        )
        if law is not None:
            loads, chance = law.pmf()
            likely = chance > 1e-6
            figure.add_trace(
                graph_objects.Scatter(
                    x=loads[likely],
                    y=chance[likely],
                    mode="lines+markers",
                    name=f"{name}, {law.streams:,} streams at random on {law.links} uplinks",
                    line_color="#cc3311",
                ),
                row=row,
                col=1,
            )
        figure.update_yaxes(title_text="share", tickformat=".0%", row=row, col=1)
    figure.update_xaxes(
        title_text="fullest uplink of a leaf over the mean", row=len(schemes), col=1
    )
    figure.update_layout(title_text=title, height=120 + _ROW_HEIGHT * len(schemes), bargap=0.1)
    page: Any = figure.to_html(include_plotlyjs=True, include_mathjax=False, full_html=True)
    return str(page)


def _shares(
    imbalance: NDArray[np.float64], law: Law | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return places and heights of bars: possible numbers of flows where the law applies."""
    if law is None:
        # Equal values make one bar, not forty of nothing.
        spread = float(np.ptp(imbalance)) > 1e-9
        counts, edges = np.histogram(imbalance, _BINS if spread else 1)
        return (edges[1:] + edges[:-1]) / 2, counts / len(imbalance)
    fullest = np.rint(imbalance * law.streams / law.links).astype(np.int64)
    numbers, counts = np.unique(fullest, return_counts=True)
    return numbers * law.links / law.streams, counts / len(imbalance)
