"""Other programs' JSON configuration, read strictly: every mistake is named, none guessed away."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fabric_emu.errors import ScenarioError
from fabric_emu.model.mistakes import did_you_mean, short

MAX_BYTES = 8 << 20
"""A chassis' whole configuration is a few megabytes."""

MAX_PROBLEMS = 30
"""Reading ends here: a file with so many is another kind of file."""

_LONGEST_INT = 20
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_WHOLE = re.compile(r"[0-9]{1,10}")

Value = TypeVar("Value")
Steps = tuple[str | int, ...]


class ConfigurationRejected(ScenarioError):
    """A configuration that cannot be taken over; it stands for its first problem.

    Attributes:
        problems: one ``ScenarioError`` for every problem found.
    """

    def __init__(self, problems: Sequence[ScenarioError]) -> None:
        first = problems[0]
        super().__init__(first.path, first.value, first.expected, first.hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class _Unreadable(Exception):
    """What a hook of the JSON parser refuses."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


class Document:
    """One JSON file and the problems found in it so far.

    Attributes:
        file: its name, as messages give it.
        problems: what was refused.
    """

    def __init__(self, file: str, root: dict[str, Any]) -> None:
        self.file = file
        self.root = Section(self, (), root)
        self.problems: list[ScenarioError] = []

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Read a file that holds one JSON object.

        Raises:
            ScenarioError: it cannot be read, is too large, or is not strict JSON: repeated keys,
                NaN, numbers beyond 64 bits and deep nesting are refused.
        """
        file = str(path)
        try:
            with Path(path).open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise ScenarioError(file, error.strerror, "a readable JSON file") from None
        except ValueError:
            raise ScenarioError(file, "a null character", "the name of a file") from None
        if len(content) > MAX_BYTES:
            limit = f"{MAX_BYTES >> 20} MiB"
            raise ScenarioError(file, f"over {limit}", f"a file of at most {limit}")
        return cls.parse(content, file)

    @classmethod
    def parse(cls, content: bytes, file: str) -> Document:
        """Read JSON that is already there; ``file`` stands for it in messages.

        Raises:
            ScenarioError: see ``read``.
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
            raise ScenarioError(
                place(file, _steps_to(root, holder)), short(key), "each key of an object once"
            )
        return cls(file, root)

    def refuse(self, steps: Steps, value: object, expected: str, hint: str = "") -> None:
        """Note a problem; reading goes on so that all are found.

        Raises:
            ConfigurationRejected: there are ``MAX_PROBLEMS`` of them.
        """
        self.problems.append(ScenarioError(place(self.file, steps), short(value), expected, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            self.finish()

    def finish(self) -> None:
        """Raise what was found.

        Raises:
            ConfigurationRejected: there is any problem.
        """
        if self.problems:
            raise ConfigurationRejected(self.problems)


class Section:
    """One object of the file: gives checked values and remembers which keys were asked for.

    Numbers and booleans may be written as text, as SONiC does. A value that is refused is noted
    in the document and its default returned.

    Attributes:
        steps: the keys that lead to it.
    """

    def __init__(self, document: Document, steps: Steps, values: dict[str, Any]) -> None:
        self.document = document
        self.steps = steps
        self.values = values
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        self._asked.add(key)
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def path(self, key: str = "") -> str:
        """Return where this section, or a key of it, stands in the file."""
        return dotted((*self.steps, key) if key else self.steps)

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``; a missing one is the default."""
        if key not in self:
            return default
        value = self.values[key]
        number = value
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            self.refuse(key, f"a whole number from {low:,} to {high:,}")
            return default
        return number

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean; a missing one is the default."""
        return self.choice(key, default, {"true": True, "false": False})

    def choice(self, key: str, default: Value, known: Mapping[str, Value]) -> Value:
        """Return what a word, a number or a boolean stands for; a missing one is the default."""
        if key not in self:
            return default
        value = self.values[key]
        word = value if isinstance(value, str) else json.dumps(value)
        if word not in known:
            self.refuse(key, " or ".join(known), did_you_mean(word[:60], known))
            return default
        return known[word]

    def text(self, key: str) -> str | None:
        """Return a text, or None when it is missing."""
        if key not in self:
            return None
        value = self.values[key]
        if isinstance(value, str) and value:
            return value
        self.refuse(key, "a text")
        return None

    def section(self, key: str) -> Section | None:
        """Return an object, or None when it is missing."""
        if key not in self:
            return None
        return self._entry(key, self.values[key])

    def sections(self, key: str) -> dict[str, Section]:
        """Return an object of objects; a missing one is empty."""
        table = self.section(key)
        if table is None:
            return {}
        entries = {name: table._entry(name, value) for name, value in table.values.items()}
        return {name: entry for name, entry in entries.items() if entry is not None}

    def items(self, key: str) -> list[Section]:
        """Return a list of objects; a missing one is empty."""
        if key not in self:
            return []
        value = self.values[key]
        if not isinstance(value, list):
            self.refuse(key, "a list")
            return []
        found = []
        for i, entry in enumerate(value):
            if isinstance(entry, dict):
                found.append(Section(self.document, (*self.steps, key, i), entry))
            else:
                self.document.refuse((*self.steps, key, i), entry, "an object ({...})")
        return found

    def _entry(self, key: str, value: object) -> Section | None:
        if isinstance(value, dict):
            return Section(self.document, (*self.steps, key), value)
        self.document.refuse((*self.steps, key), value, "an object ({...})")
        return None

    def refuse(self, key: str, expected: str, hint: str = "") -> None:
        """Note a problem with a key of this section."""
        self.document.refuse((*self.steps, key), self.values.get(key), expected, hint)

    def refuse_others(self, what: str) -> None:
        """Note every key that nobody asked for; ``what`` says what such keys are."""
        known = sorted(self._asked)
        for key in self.values:
            if key not in self._asked:
                near = did_you_mean(key[:60], known)
                self.document.refuse(self.steps, key, f"{what}: one of {', '.join(known)}", near)


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
