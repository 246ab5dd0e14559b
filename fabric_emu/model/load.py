"""Reading scenario files: YAML in, a validated Scenario or every mistake named out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fabric_emu.errors import FabricError, ScenarioError
from fabric_emu.importers.document import ConfigurationRejected
from fabric_emu.importers.policy import expand_imports
from fabric_emu.model.mistakes import A_MAPPING, Origin, line_place, mistakes, short
from fabric_emu.model.scenario import Scenario

MAX_BYTES = 1 << 20


class InvalidScenario(FabricError):
    """A scenario that cannot be accepted; holds every problem found.

    Attributes:
        problems: one ``ScenarioError`` each.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[ScenarioError]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def load_scenario(path: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Read and validate a scenario file.

    Args:
        path: the YAML file.
        overrides: ``path=value`` texts set over the file's values, such as ``topology.leaves=4``.

    Raises:
        InvalidScenario: the file or an override is wrong; every problem is named.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidScenario(
            [ScenarioError(str(path), error.strerror, "a readable scenario file")]
        ) from None
    if len(text) > MAX_BYTES:
        raise InvalidScenario([ScenarioError(str(path), "over 1 MiB", "a file of at most 1 MiB")])
    return parse_scenario(text, str(path), overrides)


def parse_scenario(text: str | bytes, name: str, overrides: Iterable[str] = ()) -> Scenario:
    """Validate a scenario given as YAML text; ``name`` stands for the file in messages.

    Raises:
        InvalidScenario: see ``load_scenario``.
    """
    tree, data = _read(text, name)
    if not isinstance(data, dict):
        raise InvalidScenario([ScenarioError(name, short(data), A_MAPPING)])
    origin = Origin(name, tree)
    for override in overrides:
        origin.overridden.append(_override(data, override))
    try:
        expand_imports(data, Path(name).parent, origin.place)
        scenario = Scenario.model_validate(data)
        scenario.check()
    except ValidationError as error:
        raise InvalidScenario(mistakes(error.errors(), origin)) from None
    except ConfigurationRejected as error:
        raise InvalidScenario(error.problems) from None
    except ScenarioError as error:
        loc = tuple(error.path.replace("[", ".").replace("]", "").split("."))
        place = origin.place(loc, error.path)
        raise InvalidScenario(
            [ScenarioError(place, error.value, error.expected, error.hint)]
        ) from None
    return scenario


def _read(text: str | bytes, name: str) -> tuple[yaml.Node | None, Any]:
    """Return YAML as nodes, which know their lines, and as plain data; nothing is ``{}``."""
    problems: list[ScenarioError] = []
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = _construct(tree, name, problems) if tree is not None else {}
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise InvalidScenario([_yaml_problem(error, name)]) from None
    except RecursionError:
        raise InvalidScenario(
            [ScenarioError(name, "nested too deeply", "lists and mappings a few levels deep")]
        ) from None
    if problems:
        raise InvalidScenario(problems)
    return tree, data


def _yaml_problem(error: Exception, name: str) -> ScenarioError:
    mark = getattr(error, "problem_mark", None)
    place = line_place(name, mark.line + 1 if mark else None, "")
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    if what.startswith("but ") and getattr(error, "context", None):
        what = f"{error.context}, {what}"  # type: ignore[attr-defined]
    return ScenarioError(place, what, "well-formed YAML")


def _construct(node: yaml.Node, name: str, problems: list[ScenarioError]) -> Any:
    """Build plain data; refuse aliases (a small file could mean a huge one) and double keys."""
    seen: set[int] = set()

    def build(node: yaml.Node, path: str) -> Any:
        place = line_place(name, node.start_mark.line + 1, path)
        if id(node) in seen:
            problems.append(ScenarioError(place, "*alias", "values written out, not YAML aliases"))
            return None
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
                if key in found:
                    at = line_place(name, key_node.start_mark.line + 1, path)
                    problems.append(ScenarioError(at, key, "each key once"))
                found[key] = build(value_node, f"{path}.{key}" if path else key)
            return found
        if isinstance(node, yaml.SequenceNode):
            return [build(child, f"{path}[{i}]") for i, child in enumerate(node.value)]
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            what = str(getattr(error, "problem", error))
            problems.append(
                ScenarioError(place, getattr(node, "value", "?"), "a plain value", what)
            )
            return None
        finally:
            loader.dispose()

    return build(node, "")


def _override(data: dict[str, Any], override: str) -> tuple[str, ...]:
    """Set one ``path=value`` and return the path.

    The value is read as YAML, so ``4``, ``100mbit`` and ``[a]`` work; ``>= 1`` is taken as it is.
    """
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise InvalidScenario(
            [ScenarioError("--set", override, "path=value, such as topology.leaves=4")]
        )
    value: Any = text
    if not text.startswith((">", "|")):  # bounds; in YAML they begin text of several lines
        node, value = _read(text, f"--set {path}")
        value = None if node is None else value
    target: Any = data
    keys = path.split(".")
    for key in keys[:-1]:
        target = target[int(key)] if _is_index(target, key) else _child(target, key)
        if not isinstance(target, dict | list):
            raise InvalidScenario(
                [ScenarioError(f"--set {path}", key, "the name of a section of the scenario")]
            )
    if _is_index(target, keys[-1]):
        target[int(keys[-1])] = value
    elif isinstance(target, dict):
        target[keys[-1]] = value
    else:
        raise InvalidScenario(
            [ScenarioError(f"--set {path}", keys[-1], f"an index below {len(target)}")]
        )
    return tuple(keys)


def _is_index(target: Any, key: str) -> bool:
    return isinstance(target, list) and key in map(str, range(len(target)))


def _child(target: Any, key: str) -> Any:
    return target.setdefault(key, {}) if isinstance(target, dict) else None
