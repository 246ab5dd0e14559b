"""Expectations: bounds that a scenario puts on the figures of a run."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_ONE_SIDED = re.compile(rf"\s*(<=|>=|==|<|>)\s*{_NUMBER}\s*")
_RANGE = re.compile(rf"\s*{_NUMBER}\s*\.\.\s*{_NUMBER}\s*")


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure must be: one comparison or a closed range.

    Attributes:
        text: as written, such as ``"<= 0.91"`` or ``"1.2 .. 1.6"``.
        low, high: the range for ranges; else both the bound.
        comparison: the operator, or ``".."``.
    """

    text: str
    comparison: str
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Tell whether a measured value is within the bound."""
        if self.comparison == "..":
            return self.low <= value <= self.high
        return _COMPARE[self.comparison](value, self.low)


def parse_bound(value: Any) -> Bound:
    """Return the bound that a text such as ``">= 0.999"`` means. Raises ValueError."""
    if isinstance(value, Bound):
        return value
    if isinstance(value, str):
        if match := _ONE_SIDED.fullmatch(value):
            return Bound(value.strip(), match[1], float(match[2]), float(match[2]))
        match = _RANGE.fullmatch(value)
        if match and float(match[1]) <= float(match[2]):
            return Bound(value.strip(), "..", float(match[1]), float(match[2]))
    raise ValueError('a bound such as "<= 0.91", "> 1" or "1.2 .. 1.6"')


BoundField = Annotated[
    Bound,
    BeforeValidator(parse_bound, json_schema_input_type=str),
    PlainSerializer(lambda bound: bound.text, return_type=str),
    Field(json_schema_extra={"examples": ["<= 0.91", "1.2 .. 1.6"]}),
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one expectation came out.

    Attributes:
        scheme, figure: what was bounded.
        bound: as written.
        measured: the figure, or None when the run has none of that name.
        holds: whether it is within the bound.
    """

    scheme: str
    figure: str
    bound: str
    measured: float | None
    holds: bool


def judge(
    expect: Mapping[str, Mapping[str, Bound]], scheme: str, figures: Mapping[str, Any]
) -> list[Verdict]:
    """Compare a scheme's figures (nested mappings, dotted names) with what was expected."""
    verdicts = []
    for figure, bound in expect.get(scheme, {}).items():
        value: Any = figures
        for key in figure.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        measured = float(value) if isinstance(value, int | float) else None
        holds = measured is not None and bound.holds(measured)
        verdicts.append(Verdict(scheme, figure, bound.text, measured, holds))
    return verdicts
