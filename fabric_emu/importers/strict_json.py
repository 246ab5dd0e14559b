"""JSON read strictly: what two programs could understand differently is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from fabric_emu.errors import ScenarioError
from fabric_emu.model.mistakes import short

MAX_BYTES = 8 << 20
"""A chassis' whole configuration is a few megabytes."""

_LONGEST_INT = 20
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")

Steps = tuple[str | int, ...]
"""Keys and indexes that lead from the root to a value."""


class _Unreadable(Exception):
    """What a hook of the JSON parser refuses."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def read_object(file: str) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises:
        ScenarioError: it cannot be read or is too large; see also ``parse_object``.
    """
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(file, error.strerror, "a readable JSON file") from None
    except ValueError:
        raise ScenarioError(file, "a null character", "the name of a file") from None
    if len(content) > MAX_BYTES:
        limit = f"{MAX_BYTES >> 20} MiB"
        raise ScenarioError(file, f"over {limit}", f"a file of at most {limit}")
    return parse_object(content, file)


def parse_object(content: bytes, file: str) -> dict[str, Any]:
    """Return the JSON object in ``content``; ``file`` stands for it in messages.

    Raises:
        ScenarioError: it is no JSON object in UTF-8, repeats a key, nests too deeply, or has NaN
            or a number beyond 64 bits. What stands in the file is not quoted where it is no JSON.
    """
    repeated: list[tuple[dict[str, Any], str]] = []
    try:
        root = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _object(pairs, repeated),
            parse_constant=_refuse_constant,
            parse_int=_bounded_int,
        )
    except UnicodeDecodeError as error:
        raise ScenarioError(file, f"byte {error.start}", "text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ScenarioError(f"{file}:{error.lineno}", error.msg, "well-formed JSON") from None
    except RecursionError:
        raise ScenarioError(
            file, "nested too deeply", "objects and lists a few levels deep"
        ) from None
    except _Unreadable as error:
        raise ScenarioError(file, error.value, error.expected) from None
    if not isinstance(root, dict):
        raise ScenarioError(file, short(root), "a JSON object ({...})")
    if repeated:
        holder, key = repeated[0]
        where = place(file, _steps_to(root, holder))
        raise ScenarioError(where, short(key), "each key of an object once")
    return root


def place(file: str, steps: Iterable[str | int]) -> str:
    """Return where something stands, as messages give it."""
    shown = dotted(steps)
    return f"{file}: {shown}" if shown else file


def dotted(steps: Iterable[str | int]) -> str:
    """Return steps as ``a.b[2]["odd key"]``; control characters are written as escapes."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(short(step))}]"
    return text


def _object(
    pairs: list[tuple[str, Any]], repeated: list[tuple[dict[str, Any], str]]
) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        repeated.append((found, next(key for key, times in counted.items() if times > 1)))
    return found


def _steps_to(root: Any, wanted: dict[str, Any]) -> Steps:
    """Return the steps from the root to one object; none when a repeated key has replaced it."""
    waiting: list[tuple[Any, Steps]] = [(root, ())]
    while waiting:
        value, steps = waiting.pop()
        if value is wanted:
            return steps
        children = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in children:
            if isinstance(child, dict | list):
                waiting.append((child, (*steps, key)))
    return ()


def _refuse_constant(word: str) -> NoReturn:
    raise _Unreadable(word, "finite numbers")


def _bounded_int(digits: str) -> int:
    if len(digits) > _LONGEST_INT:
        raise _Unreadable(short(digits), "whole numbers of at most 64 bits")
    return int(digits)
