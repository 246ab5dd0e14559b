"""Mistakes in a scenario, said so that its writer can mend them."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from fabric_emu.errors import ScenarioError
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme

A_MAPPING = "a mapping (key: value lines)"

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "model_type": A_MAPPING,
    "model_attributes_type": A_MAPPING,
    "dict_type": A_MAPPING,
    "tuple_type": "a list",
    "greater_than": "a number over {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "a number under {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "too_short": "{min_length} or more entries",
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text matching {pattern}",
    "finite_number": "a finite number",
    "union_tag_invalid": "{expected_tags}",
}


@dataclass(frozen=True)
class Origin:
    """Where the values of a scenario were written: in a line of the file, or in an override.

    Attributes:
        name: of the file, as messages give it.
        tree: the file as YAML nodes, which know their lines.
        overridden: the paths that overrides have set.
    """

    name: str
    tree: yaml.Node | None
    overridden: list[tuple[str, ...]] = field(default_factory=list)

    def place(self, loc: Sequence[int | str], shown: str) -> str:
        """Say where ``loc`` was written; ``shown`` is the path that stands beside a line."""
        line, in_file = _find(self.tree, loc)
        steps = tuple(map(str, loc))
        for path in reversed(self.overridden):
            override = ".".join(path)
            made_by_it = not in_file and path[: len(steps)] == steps
            if steps == path or made_by_it or (steps[: len(path)] == path and shown == override):
                return f"--set {override}"
            if steps[: len(path)] == path:
                return f"--set {override}: {shown}"
        return line_place(self.name, line, shown)


def mistakes(errors: Sequence[ErrorDetails], origin: Origin) -> list[ScenarioError]:
    """Return what pydantic found as the sentences to print."""
    # Of a list whose entries are wrong pydantic also says that they are too few.
    return [
        _mistake(error, origin)
        for error in errors
        if error["type"] != "too_short"
        or all(one is error or one["loc"][: len(error["loc"])] != error["loc"] for one in errors)
    ]


def _mistake(error: ErrorDetails, origin: Origin) -> ScenarioError:
    tagged = tuple(error["loc"])
    loc = _written(tagged)
    kind = error["type"]
    value: Any = error["input"]
    hint = ""
    if kind in ("extra_forbidden", "missing"):
        known = _known_keys(tagged[:-1])
        expected = "this key to be given"
        if kind == "extra_forbidden":
            expected = f"one of the keys {', '.join(known)}"
            hint = _other_kind(tagged) or did_you_mean(str(loc[-1]), known)
        return ScenarioError(origin.place(loc, _dotted(loc[:-1])), short(loc[-1]), expected, hint)
    if kind == "value_error":
        expected = str(error["ctx"]["error"])
    elif kind in _EXPECTED:
        bounds = {key: _whole(bound) for key, bound in error.get("ctx", {}).items()}
        expected = _EXPECTED[kind].format(**bounds)
    else:
        expected = error["msg"]
    if kind == "union_tag_invalid":
        value, loc = error["ctx"]["tag"], (*loc, "kind")
        expected = " or ".join(expected.split(", "))
    if isinstance(value, str):
        hint = did_you_mean(value, _words(loc, kind, expected))
    if isinstance(value, dict | list | BaseModel):
        value = short(value)
        key, colon, rest = expected.partition(": ")
        if kind == "value_error" and colon and key in _known_keys(tagged):
            expected, loc = rest, (*loc, key)
            value = _value_at(error["input"], key)
    return ScenarioError(origin.place(loc, _dotted(loc)), short(value), expected, hint)


def _whole(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def short(value: Any) -> Any:
    """Return what an error is to quote of a value."""
    if isinstance(value, dict | list | BaseModel):
        return value if value in ([], {}) else "this section"
    if isinstance(value, str) and len(value) > 60:
        return value[:57] + "..."
    return value


def _value_at(section: Any, key: str) -> Any:
    value = section.get(key) if isinstance(section, dict) else None
    return value if isinstance(value, str | int | float) else "this section"


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return the question with the known word that a misspelt one most resembles, or nothing."""
    near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""


def _words(loc: tuple[int | str, ...], kind: str, expected: str) -> list[str]:
    """Return the words that would have been accepted, where only some words are."""
    if loc and loc[0] == "schemes" and kind == "value_error":
        return [word.replace("Nqp", "4qp") for word in Scheme.names()]
    if kind in ("literal_error", "union_tag_invalid"):
        return [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    return []


def _known_keys(loc: Sequence[int | str]) -> list[str]:
    """Return the keys the section at ``loc`` accepts; ``loc`` as pydantic gives it."""
    models, _ = _walk(loc)
    return list(models[0].model_fields) if models else []


def _written(loc: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return ``loc`` as the file has it: without the kinds that pydantic adds."""
    return _walk(loc)[1]


def _other_kind(loc: Sequence[int | str]) -> str:
    """Return the hint that a section of another kind has this key, or nothing."""
    section, key = loc[:-1], loc[-1]
    for model in _walk(section[:-1])[0]:
        kind = _kind_of(model)
        if kind and kind not in section and key in model.model_fields:
            return f"a key of kind: {kind}"
    return ""


def _walk(
    loc: Sequence[int | str],
) -> tuple[list[type[BaseModel]], tuple[int | str, ...]]:
    """Follow ``loc`` through the models' annotations.

    Returns:
        The models that the section there may be, and ``loc`` without the kinds that pydantic adds
        to tell which of several models it has tried.
    """
    models: list[type[BaseModel]] = [Scenario]
    written: list[int | str] = []
    for step in loc:
        chosen = [model for model in models if len(models) > 1 and _kind_of(model) == step]
        if chosen:
            models = chosen
            continue
        written.append(step)
        if isinstance(step, str) and models:
            known = models[0].model_fields.get(step)
            models = _models(known.annotation) if known else []
    return models, tuple(written)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation holds, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _kind_of(model: type[BaseModel]) -> str:
    return str(model.model_fields["kind"].default) if "kind" in model.model_fields else ""


def _find(tree: yaml.Node | None, loc: Sequence[int | str]) -> tuple[int | None, bool]:
    """Return the line of the deepest part of ``loc`` that the file has, and if it has it all."""
    node, line = tree, None
    for step in loc:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if key_node.value == str(step):
                    found, line = value_node, key_node.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            found = {str(i): child for i, child in enumerate(node.value)}.get(str(step))
            line = found.start_mark.line + 1 if found else line
        if found is None:
            return line, False
        node = found
    return line, True


def _dotted(loc: Sequence[int | str]) -> str:
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def line_place(name: str, line: int | None, path: str) -> str:
    """Return ``file:line: path``, without what is not known; an override has no lines."""
    place = f"{name}:{line}" if line and not name.startswith("--set") else name
    return f"{place}: {path}" if path else place
