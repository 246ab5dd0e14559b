"""Policies of a scenario out of the configuration of a real switch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fabric_emu.errors import ScenarioError
from fabric_emu.importers import fboss, sonic
from fabric_emu.importers.document import IGNORE, ConfigurationRejected, Document
from fabric_emu.importers.found import Found, Setting
from fabric_emu.model.fields import Description
from fabric_emu.model.policies import Dlb
from fabric_emu.model.queueing import Trimming
from fabric_emu.model.scale import hardware_scale
from fabric_emu.model.topology import Topology

READERS: Mapping[str, Callable[[Document], Found]] = {"sonic": sonic.read, "fboss": fboss.read}
"""What configuration can be read, by the name of its network operating system."""

_TIMES = ("flowlet_gap", "sampling")
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))

Model = TypeVar("Model", bound=Description)


@dataclass(frozen=True)
class ImportedPolicy:
    """What a switch's configuration comes to on a fabric.

    Attributes:
        found: the settings, with where they come from.
        switch: they as keys of a scheme's ``switch``, times made longer by as much as the fabric
            is slower.
        policy: the load balancing, or None when the file says nothing of it.
        trimming: the trimming, or None when nothing is trimmed.
    """

    found: Found
    switch: dict[str, dict[str, Any]]
    policy: Dlb | None
    trimming: Trimming | None


def import_policy(
    kind: str, path: str | Path, topology: Topology, ignore: Iterable[str] = ()
) -> ImportedPolicy:
    """Read the policies that a switch is configured to.

    Args:
        kind: ``sonic``, a ``config_db.json``, or ``fboss``, an agent's configuration.
        path: the file.
        topology: the fabric that is to follow them; its ``stands_for`` is the rate of the
            switch's ports.
        ignore: keys to read the file without.

    Raises:
        ScenarioError: the file is wrong, or asks for what the emulator cannot honour; see the
            module of its kind. A ``ConfigurationRejected`` names all problems.
    """
    document = Document.read(path, ignore)
    found = READERS[kind](document)
    scale = hardware_scale(topology)
    switch: dict[str, dict[str, Any]] = {}
    if found.policy:
        switch["policy"] = {"kind": "dlb"} | _written(found.policy, scale)
    if found.trimming:
        switch["trimming"] = _written(found.trimming, scale)
    policy = _build(Dlb, switch.get("policy"), found.policy, document)
    trimming = _build(Trimming, switch.get("trimming"), found.trimming, document)
    document.finish()
    found.remarks += [f"{where}: ignored, as asked" for where in document.ignored]
    return ImportedPolicy(found, switch, policy, trimming)


def expand_imports(
    data: dict[str, Any], folder: Path, place: Callable[[tuple[int | str, ...], str], str]
) -> None:
    """Replace ``import`` in the switches of a scenario's schemes by what is imported.

    ``import: {sonic: config_db.json}``, with ``ignore: [keys]`` for what is to be left out, sets
    ``policy``, ``trimming`` or both.

    Args:
        data: the scenario as plain data; it is changed.
        folder: what paths of files are relative to.
        place: says where a key of the scenario was written.

    Raises:
        ConfigurationRejected: a request or a file is wrong; every problem is named.
    """
    problems: list[ScenarioError] = []
    schemes = data.get("schemes")
    for number, scheme in enumerate(schemes if isinstance(schemes, list) else []):
        switch = scheme.get("switch") if isinstance(scheme, dict) else None
        if not isinstance(switch, dict) or "import" not in switch:
            continue
        steps = ("schemes", number, "switch", "import")
        where = place(steps, f"schemes[{number}].switch.import")
        try:
            kind, file, ignore = _request(switch.pop("import"), where)
            imported = import_policy(kind, folder / file, _topology(data), ignore)
            for key, value in imported.switch.items():
                if key in switch:
                    raise ScenarioError(where, key, "it to be imported or given, not both")
                switch[key] = value
        except ConfigurationRejected as refused:
            problems += refused.problems
        except ScenarioError as refused:
            problems.append(refused)
    if problems:
        raise ConfigurationRejected(problems)


def _request(request: Any, where: str) -> tuple[str, str, list[str]]:
    """Return kind, file and keys to ignore of an ``import``."""
    kinds = [kind for kind in READERS if isinstance(request, dict) and kind in request]
    if len(kinds) != 1 or not request.keys() <= {*kinds, "ignore"}:
        expected = f"one of {', '.join(READERS)} with a file, and ignore, a list of keys"
        raise ScenarioError(where, "this section", expected)
    file, ignore = request[kinds[0]], request.get("ignore", [])
    if not isinstance(file, str) or not file:
        raise ScenarioError(f"{where}.{kinds[0]}", file, "the name of a file")
    if not isinstance(ignore, list) or not all(isinstance(key, str) for key in ignore):
        raise ScenarioError(f"{where}.ignore", "this section", "a list of keys")
    return kinds[0], file, ignore


def _topology(data: dict[str, Any]) -> Topology:
    try:
        return Topology.model_validate(data.get("topology", {}))
    except ValidationError:
        return Topology()  # what is wrong with it, the scenario's own validation says


def _written(settings: Mapping[str, Setting], scale: float) -> dict[str, int | float | str]:
    """Return settings as a scenario has them."""
    return {
        key: time_text(setting.value * scale)
        if key in _TIMES and not isinstance(setting.value, str)
        else setting.value
        for key, setting in settings.items()
    }


def time_text(seconds: float) -> str:
    """Return "512ms" for 0.512, exact to 12 digits."""
    unit, length = next((one for one in _UNITS if seconds >= one[1]), _UNITS[-1])
    return f"{seconds / length:.12g}{unit}"


def _build(
    model: type[Model],
    values: dict[str, Any] | None,
    settings: Mapping[str, Setting],
    document: Document,
) -> Model | None:
    """Return the policy with these values; what it does not take is refused where it was read."""
    if values is None:
        return None
    try:
        return model.model_validate(values)
    except ValidationError as error:
        for one in error.errors():
            message = str(one.get("ctx", {}).get("error", one["msg"]))
            key, _, rest = message.partition(": ")
            if one["loc"]:
                key, rest = str(one["loc"][0]), message.removeprefix("Input should be ")
            setting = settings[key]
            name = setting.steps[-1] if setting.steps else key
            document.refuse(setting.steps, setting.written, rest, IGNORE.format(name))
        return None
