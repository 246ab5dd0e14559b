"""Other programs' configuration: checked values out of JSON, and every mistake by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fabric_emu.errors import ScenarioError
from fabric_emu.importers.strict_json import Steps, dotted, place, read_object
from fabric_emu.model.mistakes import did_you_mean, short

MAX_PROBLEMS = 30
"""Reading ends here: a file with so many is another kind of file."""

IGNORE = "to do without it, ignore {}"

_WHOLE = re.compile(r"[0-9]{1,10}")

Value = TypeVar("Value")


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


class Document:
    """One JSON file and the problems found in it so far.

    Attributes:
        file: its name, as messages give it.
        root: its outermost object.
        problems: what was refused.
        ignored: the keys left out of account as asked, by where they stand.
    """

    def __init__(self, file: str, root: dict[str, Any], ignore: Iterable[str] = ()) -> None:
        self.file = file
        self.problems: list[ScenarioError] = []
        self.ignored: list[str] = []
        self._to_ignore = frozenset(ignore)
        self._met: set[str] = set()
        self.root = Section(self, (), root)

    @classmethod
    def read(cls, path: str | Path, ignore: Iterable[str] = ()) -> Document:
        """Read a file that holds one JSON object.

        Args:
            path: of the file.
            ignore: keys to read it without, wherever they stand.

        Raises:
            ScenarioError: it cannot be read, is too large, or is not strict JSON.
        """
        file = str(path)
        return cls(file, read_object(file), ignore)

    def without_ignored(self, steps: Steps, values: dict[str, Any]) -> dict[str, Any]:
        """Return an object without the keys that are to be ignored."""
        for key in values:
            if key in self._to_ignore:
                self._met.add(key)
                self.ignored.append(dotted((*steps, key)))
        return {key: value for key, value in values.items() if key not in self._to_ignore}

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
            ConfigurationRejected: there is any problem, or else a key to ignore was not met.
        """
        if not self.problems:
            self.problems += [
                ScenarioError(self.file, short(key), "to ignore a key that is there and is read")
                for key in sorted(self._to_ignore - self._met)
            ]
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
        self.values = document.without_ignored(steps, values)
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

    def refuse(self, key: str | None, expected: str, hint: str = "") -> None:
        """Note a problem with a key of this section, or with the section itself."""
        if key is not None:
            self.document.refuse((*self.steps, key), self.values.get(key), expected, hint)
        else:
            self.document.refuse(self.steps, self.values, expected, hint)

    def cannot(self, key: str, expected: str) -> None:
        """Note a value that is right, but that the emulator cannot honour."""
        self.refuse(key, expected, IGNORE.format(key))

    def refuse_others(self, reasons: Mapping[str, str] | None = None) -> None:
        """Note every key that nobody asked for; ``reasons`` say why some are refused."""
        known = sorted(self._asked)
        for key in self.values:
            if key in self._asked:
                continue
            if reasons and key in reasons:
                self.cannot(key, reasons[key])
            else:
                hint = did_you_mean(key[:60], known) or IGNORE.format(dotted((key,)))
                expected = f"one of the keys {', '.join(known)}"
                self.document.refuse(self.steps, key, expected, hint)
