"""An FBOSS agent's flowlet switching read as a policy; what cannot be honoured is refused."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.errors import ScenarioError
from fabric_emu.importers import fboss
from fabric_emu.importers.document import ConfigurationRejected, Document
from fabric_emu.importers.found import Found

DATA = Path(__file__).parent / "data" / "fboss"
AGENT: dict[str, Any] = json.loads((DATA / "agent.json").read_text())


def read(configuration: dict[str, Any], *ignore: str) -> Found:
    return fboss.read(Document("agent.conf", configuration, ignore))


def policy(configuration: dict[str, Any], *ignore: str) -> dict[str, Any]:
    return {key: setting.value for key, setting in read(configuration, *ignore).policy.items()}


def refusals(configuration: dict[str, Any]) -> list[str]:
    """Return what is said against a configuration, the file's name left out."""
    with pytest.raises(ConfigurationRejected) as caught:
        read(configuration)
    return [str(one).removeprefix("agent.conf: ") for one in caught.value.problems]


def flowlets(**fields: Any) -> dict[str, Any]:
    return {"flowletSwitchingConfig": {"inactivityIntervalUsecs": 16} | fields}


def ports(*names: str, **profiles: dict[str, int]) -> dict[str, Any]:
    listed = [{"logicalID": i, "flowletConfigName": name} for i, name in enumerate(names)]
    return flowlets() | {"ports": listed, "portFlowletConfigs": profiles}


def weighing(load: int, queue: int, factor: int = 10) -> dict[str, int]:
    return {"scalingFactor": factor, "loadWeight": load, "queueWeight": queue}


def test_agent_is_taken_whole() -> None:
    assert policy(AGENT) == {
        "mode": "flowlet-quality",
        "flowlet_gap": pytest.approx(128e-6),
        "max_flows": 2048,
        "sampling": pytest.approx(16e-6),  # 62,500 a second
        "exponent": 3,
        "load_min": 0.1,
        "load_max": 1.0,
        "queue_min": 100_000,
        "queue_max": 200_000,
        "load_weight": 70,
        "queue_weight": 30,
    }


def test_switch_may_stand_alone() -> None:
    assert policy(AGENT["sw"]) == policy(AGENT)


def test_what_is_not_given_is_left_to_the_emulator() -> None:
    # DEFAULT_FLOWLET_TABLE_SIZE and FLOWLET_QUALITY are the defaults in switch_config.thrift;
    # an exponent that is not set is 0.
    assert policy(flowlets()) == {
        "mode": "flowlet-quality",
        "flowlet_gap": pytest.approx(16e-6),
        "max_flows": 4096,
        "exponent": 0,
    }


@pytest.mark.parametrize(
    ("name", "number", "mode"),
    [
        ("FLOWLET_QUALITY", 0, "flowlet-quality"),
        ("PER_PACKET_QUALITY", 1, "per-packet-quality"),
        ("FIXED_ASSIGNMENT", 2, "fixed"),
        ("PER_PACKET_RANDOM", 3, "per-packet-random"),
    ],
)
def test_modes_by_name_and_number(name: str, number: int, mode: str) -> None:
    assert policy(flowlets(switchingMode=name))["mode"] == mode
    assert policy(flowlets(switchingMode=number))["mode"] == mode
    assert ("flowlet_gap" in policy(flowlets(switchingMode=number))) == (number == 0)


@pytest.mark.parametrize(
    ("rate", "interval_s", "exponent"),
    [
        # A rate, with exponents from 0.
        (50_000, 20e-6, 3),
        (62_500, 16e-6, 3),
        (1_000_000, 1e-6, 3),
        # An interval, with exponents from 1; under 512 it is in microseconds.
        (1, 1e-6, 2),
        (511, 511e-6, 2),
        (512, 512e-9, 2),
        (1000, 1e-6, 2),
        (20_000, 20e-6, 2),
    ],
)
def test_sampling_as_rate_or_interval(rate: int, interval_s: float, exponent: int) -> None:
    found = policy(flowlets(dynamicSampleRate=rate, dynamicEgressLoadExponent=3))
    assert (found["sampling"], found["exponent"]) == (pytest.approx(interval_s), exponent)


@pytest.mark.parametrize(("rate", "largest"), [(62_500, 0), (1000, 1)])
def test_queue_is_not_averaged(rate: int, largest: int) -> None:
    assert policy(flowlets(dynamicSampleRate=rate, dynamicQueueExponent=largest))
    (said,) = refusals(flowlets(dynamicSampleRate=rate, dynamicQueueExponent=largest + 1))
    assert said == (
        f"flowletSwitchingConfig.dynamicQueueExponent: {largest + 1}: expected at most {largest}: "
        "the queue counts as it is, not its average; to do without it, ignore dynamicQueueExponent"
    )


@pytest.mark.parametrize("exponent", [0, 1])
def test_smallest_exponents_average_nothing_on_sai(exponent: int) -> None:
    found = policy(flowlets(dynamicSampleRate=1000, dynamicEgressLoadExponent=exponent))
    assert found["exponent"] == 0


def weights(configuration: dict[str, Any], *ignore: str) -> tuple[int, int]:
    found = policy(configuration, *ignore)
    return found["load_weight"], found["queue_weight"]


def test_weights_are_those_of_the_ports_that_have_some() -> None:
    assert weights(ports("a", "a", a=weighing(80, 20), b=weighing(60, 40))) == (80, 20)
    assert weights(ports(a=weighing(60, 40))) == (60, 40)


def test_missing_weight_is_what_the_other_leaves() -> None:
    assert weights(ports(a=weighing(60, 20)), "queueWeight") == (60, 40)
    assert weights(ports(a=weighing(60, 20)), "loadWeight") == (80, 20)
    assert "load_weight" not in policy(ports(a={"scalingFactor": 10}))


@pytest.mark.parametrize(
    ("configuration", "place"),
    [
        (ports("b", a=weighing(70, 30)), "ports[0].flowletConfigName"),
        (ports("a", "b", a=weighing(70, 30), b=weighing(60, 40)), "portFlowletConfigs.b"),
        (ports("a", "b", a=weighing(70, 30), b=weighing(70, 30, 20)), "portFlowletConfigs.b"),
        (ports(a=weighing(60, 20)), "portFlowletConfigs.a.queueWeight"),
        (ports(a=weighing(70, 30) | {"weight": 1}), "portFlowletConfigs.a"),
        (
            flowlets() | {"defaultCommandLineArgs": {"flowletSwitchingEnable": "false"}},
            "defaultCommandLineArgs.flowletSwitchingEnable",
        ),
        ({"sw": {}}, "sw.flowletSwitchingConfig"),
        ({"sw": 5}, "sw"),
        ({}, "flowletSwitchingConfig"),
        ({"flowletSwitchingConfig": None}, "flowletSwitchingConfig"),
    ],
)
def test_wrong_surroundings_are_refused_by_name(configuration: dict[str, Any], place: str) -> None:
    (said,) = refusals(configuration)
    assert said.startswith(f"{place}: ")


REFUSED = {
    "inactivityIntervalUsecs": 0,
    "flowletTableSize": 0,
    "switchingMode": 4,
    "backupSwitchingMode": "NONE",
    "dynamicSampleRate": 20_001,
    "dynamicEgressLoadExponent": 8,
    "dynamicQueueExponent": -1,
    "dynamicPhysicalQueueExponent": "three",
    "dynamicQueueMinThresholdBytes": 1.5,
    "dynamicEgressMaxThresholdBytes": 2**31,
    "maxLinks": [],
    "sourcePortPrune": "maybe",
    "primaryPathQualityThreshold": 7,
    "alternatePathCost": 0,
    "alternatePathBias": 7,
    "minWidthForArsVirtualGroup": 5,
    "maxArsVirtualGroups": 256,
    "maxArsVirtualGroupWidth": 256,
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(field: str) -> None:
    (said,) = refusals(flowlets(**{field: REFUSED[field]}))
    assert said.startswith(f"flowletSwitchingConfig.{field}: ")


@pytest.mark.parametrize(
    "field", [field for field in REFUSED if field != "inactivityIntervalUsecs"]
)
def test_what_is_refused_can_be_ignored(field: str) -> None:
    assert policy(flowlets(**{field: REFUSED[field]}), field) == policy(flowlets())


@pytest.mark.parametrize("field", REFUSED)
def test_every_field_is_in_the_modules_docstring(field: str) -> None:
    assert fboss.__doc__ is not None
    assert field in fboss.__doc__


@pytest.mark.parametrize("measure", ["dynamicEgress", "dynamicQueue"])
def test_ranges_must_rise(measure: str) -> None:
    low, high = f"{measure}MinThresholdBytes", f"{measure}MaxThresholdBytes"
    assert refusals(flowlets(**{low: 1000, high: 1000})) == [
        f"flowletSwitchingConfig.{high}: 1000: expected more than {low}, which is 1,000"
    ]


def test_near_name_is_offered() -> None:
    (said,) = refusals(flowlets(inactivityIntervalUsec=16))
    assert said.endswith("did you mean 'inactivityIntervalUsecs'?")


WORDS = sorted(set(re.findall(r'"([^"]{1,40})"', (DATA / "agent.json").read_text())))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70_000)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def taken_or_refused(configuration: dict[str, Any]) -> bool:
    """Read what may be wrong; anything but a ScenarioError comes through."""
    try:
        return bool(read(configuration).policy)
    except ScenarioError as refused:
        return all(line.isprintable() for line in str(refused).split("\n"))


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
def test_random_structures_are_taken_or_refused(configuration: dict[str, Any]) -> None:
    assert taken_or_refused(configuration)


@given(st.data())
def test_mutated_agent_is_taken_or_refused(data: st.DataObject) -> None:
    configuration = copy.deepcopy(AGENT)
    for _ in range(data.draw(st.integers(1, 3))):
        section: Any = configuration
        while True:
            key = data.draw(st.sampled_from(sorted(section)))
            if not isinstance(section[key], dict) or not section[key] or data.draw(st.booleans()):
                break
            section = section[key]
        section[data.draw(st.just(key) | st.sampled_from(WORDS))] = data.draw(VALUES)
    assert taken_or_refused(configuration)
