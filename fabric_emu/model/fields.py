"""Field types and the base class shared by everything a scenario file describes."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from fabric_emu.units import parse_duration, parse_rate, parse_size


class Description(BaseModel):
    """A frozen description that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def default_when_true(value: Any) -> Any:
    """Return a section that may be switched on by ``true``, off by ``false``, as itself."""
    return {} if value is True else None if value is False else value


def _quantity(parse: Any, example: str, unit: str) -> Any:
    """Return an annotation that accepts ``"100mbit"`` or a number and keeps a plain number."""

    def validate(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"text such as {example!r} or a number of {unit}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"a finite number of {unit}")
        return parse(value)

    schema: dict[str, Any] = {
        "anyOf": [{"type": "string", "examples": [example]}, {"type": "number"}],
        "description": f"{unit}, or text such as {example!r}",
    }
    return (
        BeforeValidator(validate, json_schema_input_type=str | int | float),
        PlainSerializer(lambda value: value),
        Field(json_schema_extra=schema),
    )


_rate = _quantity(parse_rate, "100mbit", "bit/s")
_size = _quantity(parse_size, "64KiB", "bytes")
_time = _quantity(parse_duration, "500us", "seconds")

Rate = Annotated[int, _rate[0], _rate[1], Field(gt=0, le=10**15)]
Size = Annotated[int, _size[0], _size[1], Field(gt=0, le=10**13)]
Duration = Annotated[float, _time[0], _time[1], Field(gt=0, le=10**6)]
Moment = Annotated[float, _time[0], _time[1], Field(ge=0, le=10**6)]
