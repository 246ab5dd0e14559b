"""Finding figures in summaries, and values as JSON knows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


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


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: numpy's numbers as Python's, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
