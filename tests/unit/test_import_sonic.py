"""SONiC's ``config_db.json`` read as policies; what cannot be honoured is refused by name."""

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
from fabric_emu.importers import sonic
from fabric_emu.importers.document import MAX_PROBLEMS, ConfigurationRejected, Document
from fabric_emu.importers.found import Found

DATA = Path(__file__).parent / "data" / "sonic"
LEAF: dict[str, Any] = json.loads((DATA / "leaf.json").read_text())


def read(tables: dict[str, Any], *ignore: str) -> Found:
    return sonic.read(Document("config_db.json", tables, ignore))


def policy(tables: dict[str, Any], *ignore: str) -> dict[str, object]:
    return {key: setting.value for key, setting in read(tables, *ignore).policy.items()}


def trims(tables: dict[str, Any], *ignore: str) -> dict[str, object]:
    return {key: setting.value for key, setting in read(tables, *ignore).trimming.items()}


def refusals(tables: dict[str, Any]) -> list[str]:
    """Return what is said against a configuration, the file's name left out."""
    with pytest.raises(ConfigurationRejected) as caught:
        read(tables)
    assert str(caught.value).splitlines() == list(map(str, caught.value.problems))
    return [str(one).removeprefix("config_db.json: ") for one in caught.value.problems]


def with_object(**fields: Any) -> dict[str, Any]:
    return {"ARS_PROFILE": {"p": {}}, "ARS_OBJECT": {"o": fields}}


def with_profile(**fields: Any) -> dict[str, Any]:
    return {"ARS_PROFILE": {"p": fields}, "ARS_OBJECT": {"o": {}}}


def trimming(**fields: Any) -> dict[str, Any]:
    return {
        "BUFFER_PROFILE": {"b": {"packet_discard_action": "trim"}},
        "SWITCH_TRIMMING": {"GLOBAL": fields},
    }


def test_defaults_are_those_of_the_design() -> None:
    # Local_ARS_HLD.md revision 1.4: 256 us, 512 flows, 16 us, a weight of 16, so 2^4.
    assert policy(with_object()) == {
        "mode": "flowlet-quality",
        "flowlet_gap": pytest.approx(256e-6),
        "max_flows": 512,
        "sampling": pytest.approx(16e-6),
        "exponent": 4,
    }
    assert {setting.origin for setting in read(with_object()).policy.values()} == {sonic.DEFAULT}


def test_numbers_and_truths_may_be_text_or_not() -> None:
    fields = {"max_flows": 100, "sampling_interval": 20, "ipv6_enable": True}
    as_text = {key: json.dumps(value) for key, value in fields.items()}
    assert policy(with_profile(**fields)) == policy(with_profile(**as_text))


@pytest.mark.parametrize(
    ("value", "good"),
    [
        *(("2", True), (2047, True), ("1", False), (2048, False), ("0x10", False), ("-5", False)),
        *(("1e3", False), (16.0, False), (True, False), (None, False), ("٣٢", False), ("", False)),
    ],
)
def test_idle_time_keeps_to_its_range(value: object, good: bool) -> None:
    tables = with_object(flowlet_idle_time=value)
    if good:
        assert policy(tables)["flowlet_gap"] == pytest.approx(int(str(value)) * 1e-6)
    else:
        assert refusals(tables) == [
            f"ARS_OBJECT.o.flowlet_idle_time: {value!r}: expected a whole number from 2 to 2,047"
        ]


@pytest.mark.parametrize(
    ("limit", "own", "flows"), [(0, 300, 300), (100, 300, 100), (300, 100, 100), (600, None, 512)]
)
def test_flow_table_is_the_smaller_limit(limit: int, own: int | None, flows: int) -> None:
    tables = with_profile(max_flows=limit)
    tables["ARS_OBJECT"]["o"] = {} if own is None else {"max_flows": own}
    assert policy(tables)["max_flows"] == flows


@pytest.mark.parametrize(("weight", "exponent"), [(0, 0), (1, 0), (2, 1), (64, 6), (128, 7)])
def test_weight_of_the_average_is_a_power_of_two(weight: int, exponent: int) -> None:
    assert policy(with_profile(past_load_weight=weight))["exponent"] == exponent


@pytest.mark.parametrize("plural", [True, False])
def test_both_spellings_of_the_tables_are_taken(plural: bool) -> None:
    s = "S" if plural else ""
    tables = with_object() | {
        f"ARS_INTERFACE{s}": {"Ethernet0": {}},
        f"ARS_NEXTHOP{s}": {"default|192.0.2.1": {}},
        f"ARS_PORTCHANNEL{s}": {},
    }
    remarks = read(tables).remarks
    assert remarks == [
        f"ARS_INTERFACE{s}, 1 in all: every uplink takes part",
        f"ARS_NEXTHOP{s}, 1 in all: every uplink takes part",
    ]


@pytest.mark.parametrize(
    ("selector", "mode"),
    [
        ("interface", "flowlet-quality"),
        ("nexthop", "per-packet-quality"),
        ("global", "per-packet-quality"),
    ],
)
def test_selector_decides_whose_object_counts(selector: str, mode: str) -> None:
    tables = {
        "ARS_PROFILE": {"p": {"ars_nhg_path_selector_mode": selector, "default_ars_object": "b"}},
        "ARS_OBJECT": {"a": {}, "b": {"assign_mode": "per_packet_quality"}},
        "ARS_INTERFACES": {"Ethernet0": {"ars_obj_name": "a"}},
        "ARS_NEXTHOPS": {"default|192.0.2.1": {}},
    }
    assert policy(tables)["mode"] == mode


def test_per_packet_has_no_flowlets() -> None:
    tables = with_object(assign_mode="per_packet_quality", flowlet_idle_time=100)
    assert "flowlet_gap" not in policy(tables)
    assert read(tables).remarks == ["ARS_OBJECT.o.flowlet_idle_time: there are no flowlets"]


def test_trimming_needs_a_profile_that_trims() -> None:
    tables = trimming(dscp_value="5")
    assert trims(tables) == {"trim_to": 128, "trimmed": 5, "trimmed_last_hop": 5}
    tables["BUFFER_PROFILE"]["b"]["packet_discard_action"] = "drop"
    assert refusals(tables) == [
        "'neither': expected ARS_OBJECT, or SWITCH_TRIMMING and a profile that trims"
    ]


# One row for every field that cannot be honoured; the module's table has the reasons.
REFUSED = [
    (with_profile(past_load_weight="3"), "ARS_PROFILE.p.past_load_weight"),
    (with_profile(future_load_weight="2"), "ARS_PROFILE.p.future_load_weight"),
    (with_profile(past_load_min_value="1"), "ARS_PROFILE.p.past_load_min_value"),
    (with_profile(past_load_max_value="1"), "ARS_PROFILE.p.past_load_max_value"),
    (with_profile(future_load_min_value="1"), "ARS_PROFILE.p.future_load_min_value"),
    (with_profile(future_load_max_value="1"), "ARS_PROFILE.p.future_load_max_value"),
    (with_profile(current_load_min_value="1"), "ARS_PROFILE.p.current_load_min_value"),
    (with_profile(current_load_max_value="1"), "ARS_PROFILE.p.current_load_max_value"),
    (with_profile(ipv4_enable="false"), "ARS_PROFILE.p.ipv4_enable"),
    (with_profile(ipv6_enable="false"), "ARS_PROFILE.p.ipv6_enable"),
    (with_profile(algorithm="dre"), "ARS_PROFILE.p.algorithm"),
    (with_profile(random_seed="1"), "ARS_PROFILE.p"),
    (with_object(idle_time="1"), "ARS_OBJECT.o"),
    (
        with_object() | {"ARS_NEXTHOPS": {"default|::1": {"role": "alternative_path"}}},
        'ARS_NEXTHOPS["default|::1"].role',
    ),
    (
        with_object() | {"ARS_INTERFACES": {"a": {"scaling_factor": 1}, "b": {}}},
        "ARS_INTERFACES.b.scaling_factor",
    ),
    (with_object() | {"ARS_PORTCHANNELS": {"PortChannel1": {}}}, "ARS_PORTCHANNELS"),
    (with_object() | {"ARS_QUANTIZATION_BANDS": {}}, "ARS_QUANTIZATION_BANDS"),
    (
        with_object() | {"ACL_RULE": {"T|R": {"DISABLE_ARS_FORWARDING": "true"}}},
        'ACL_RULE["T|R"].DISABLE_ARS_FORWARDING',
    ),
    (
        with_object() | {"ACL_RULE": {"T|R": {"PACKET_ACTION": "DISABLE_TRIM"}}},
        'ACL_RULE["T|R"].PACKET_ACTION',
    ),
    (trimming(dscp_value="from-tc", tc_value="5"), "SWITCH_TRIMMING.GLOBAL.dscp_value"),
    (trimming(dscp_value="64"), "SWITCH_TRIMMING.GLOBAL.dscp_value"),
    (trimming(dscp_value="5", queue_index="dynamic"), "SWITCH_TRIMMING.GLOBAL.queue_index"),
]


UNKNOWN = {"p": "random_seed", "o": "idle_time"}
"""Keys that are refused at their section."""


def key_of(place: str) -> str:
    key = re.split(r"[.\]]", place)[-1]
    return UNKNOWN.get(key, key)


@pytest.mark.parametrize(("tables", "place"), REFUSED, ids=[place for _, place in REFUSED])
def test_what_cannot_be_honoured_is_refused_by_name(tables: dict[str, Any], place: str) -> None:
    (said,) = refusals(tables)
    assert said.startswith(f"{place}: ")


def test_every_refused_field_is_in_the_modules_table() -> None:
    assert sonic.__doc__ is not None
    table = sonic.__doc__.partition("Refused by name:")[2]
    fields = {key_of(place) for _, place in REFUSED} - set(UNKNOWN.values())
    # Unknown tables have one line for all of them.
    assert {field for field in fields if field not in table} == {"ARS_QUANTIZATION_BANDS"}


@pytest.mark.parametrize(("tables", "place"), REFUSED, ids=[place for _, place in REFUSED])
def test_what_is_refused_can_be_ignored(tables: dict[str, Any], place: str) -> None:
    assert read(tables, key_of(place))


def test_key_to_ignore_must_be_there() -> None:
    with pytest.raises(ConfigurationRejected) as caught:
        read(with_object(), "flowlet_idle_tme")
    assert str(caught.value) == (
        "config_db.json: 'flowlet_idle_tme': expected to ignore a key that is there and is read"
    )


def test_a_file_of_another_kind_is_given_up_early() -> None:
    assert len(refusals(with_object(**{f"field{i}": i for i in range(1000)}))) == MAX_PROBLEMS


WORDS = sorted(set(re.findall(r'"([^"]{1,40})"', (DATA / "leaf.json").read_text())))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 70_000)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def taken_or_refused(tables: dict[str, Any]) -> bool:
    """Read what may be wrong; anything but a ScenarioError comes through."""
    try:
        found = read(tables)
    except ScenarioError as refused:
        return all(line.isprintable() for line in str(refused).split("\n"))
    return bool(found.policy or found.trimming)


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
def test_random_tables_are_taken_or_refused(tables: dict[str, Any]) -> None:
    assert taken_or_refused(tables)


@given(st.data())
def test_mutated_leaf_is_taken_or_refused(data: st.DataObject) -> None:
    tables = copy.deepcopy(LEAF)
    for _ in range(data.draw(st.integers(1, 3))):
        section: Any = tables
        while True:
            key = data.draw(st.sampled_from(sorted(section)))
            if not isinstance(section[key], dict) or not section[key] or data.draw(st.booleans()):
                break
            section = section[key]
        section[data.draw(st.just(key) | st.sampled_from(WORDS))] = data.draw(VALUES)
    assert taken_or_refused(tables)
