"""What a plot is: panels beside each other, maybe in variants to choose from; as plotly takes it.

Colours of axes, grid and text are left to the page, which knows whether it is light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

GREY = "#8a919a"
"""Of what belongs to no scheme: limits and ideals."""

Figure = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: over it; may be empty.
        figure: ``data`` and ``layout``, ready for JSON.
        colour: of the title's mark, when all of it is one scheme's.
    """

    title: str
    figure: Figure
    colour: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot of the report.

    Attributes:
        key: its name in links and file names.
        title, reading: what it shows, and how to read it, in a sentence or two.
        variants: panels by name of the variant; most plots have one.
        choice: what the variants are, such as ``switch``.
        default: the variant shown first; the first one when empty.
    """

    key: str
    title: str
    reading: str
    variants: Mapping[str, Sequence[Panel]]
    choice: str = ""
    default: str = ""

    @property
    def first(self) -> str:
        """The variant shown first."""
        return self.default or next(iter(self.variants))


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: with the unit.
        more: further attributes of plotly's axis.
    """

    title: str
    more: Mapping[str, Any] = field(default_factory=dict)


def figure(
    traces: Sequence[Mapping[str, Any]], x: Axis, y: Axis, legend: bool = False, **layout: Any
) -> Figure:
    """Return a figure with two axes."""
    return {
        "data": list(traces),
        "layout": {
            "xaxis": {"title": {"text": x.title}, **x.more},
            "yaxis": {"title": {"text": y.title}, **y.more},
            "showlegend": legend,
            **layout,
        },
    }


def numbers(values: NDArray[Any], digits: int = 4) -> list[float | int | None]:
    """Return numbers for JSON with so many significant digits; NaN and infinity as None."""
    column = np.asarray(values, np.float64)
    finite = np.isfinite(column)
    size = np.where(finite & (column != 0), np.abs(column), 1.0)
    factor = 10.0 ** (digits - 1 - np.floor(np.log10(size)))
    rounded = np.where(finite, np.rint(column * factor) / factor, 0.0)
    found: list[float | int | None] = []
    for value, known in zip(rounded.tolist(), finite.tolist(), strict=True):
        # Shorter without the ".0", and there are many.
        found.append(None if not known else int(value) if value == int(value) else value)
    return found


def limit_line(value: float, x_end: float, name: str) -> dict[str, Any]:
    """Return a dashed line across the plot at a height."""
    return {
        "type": "scatter", "mode": "lines", "x": [0, x_end], "y": [value, value], "name": name,
        "line": {"color": GREY, "width": 1, "dash": "dash"}, "hoverinfo": "skip",
    }  # fmt: skip
