"""SONiC's ``config_db.json`` read as policies; what cannot be honoured is refused by name.

The files are in ``data/sonic``: what is taken of ``NAME.json`` is in ``NAME.yaml``, what is said
against it in ``NAME.txt``. After a change ``python tests/unit/test_import_sonic.py`` writes these
anew; then read the difference.
"""

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
from fabric_emu.importers.hardware import Adaptive, Found, Trim

DATA = Path(__file__).parent / "data" / "sonic"
LEAF: dict[str, Any] = json.loads((DATA / "leaf.json").read_text())


def read(tables: dict[str, Any]) -> Found:
    return sonic.read(Document("config_db.json", tables))


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
    # Local_ARS_HLD.md revision 1.4 and saiarsprofile.h.
    assert read(with_object()).adaptive == Adaptive(
        "flowlet-quality", 256, 512, sample_us=16, load_samples=16, queue_samples=16
    )


def test_leaf_is_taken_whole() -> None:
    found = read(LEAF)
    assert found.adaptive == Adaptive(
        "flowlet-quality", 128, 1024, sample_us=32, load_samples=8, queue_samples=4
    )
    assert found.trim == Trim(256, 48)


def test_numbers_and_truths_may_be_text_or_not() -> None:
    fields = {"max_flows": 100, "sampling_interval": 20, "ipv6_enable": True}
    as_text = {key: json.dumps(value) for key, value in fields.items()}
    assert read(with_profile(**fields)).adaptive == read(with_profile(**as_text)).adaptive


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
        adaptive = read(tables).adaptive
        assert adaptive is not None
        assert adaptive.idle_us == int(str(value))
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
    adaptive = read(tables).adaptive
    assert adaptive is not None
    assert adaptive.flows == flows


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
    [("interface", "flowlet-quality"), ("nexthop", "packet-quality"), ("global", "packet-quality")],
)
def test_selector_decides_whose_object_counts(selector: str, mode: str) -> None:
    tables = {
        "ARS_PROFILE": {"p": {"ars_nhg_path_selector_mode": selector, "default_ars_object": "b"}},
        "ARS_OBJECT": {"a": {}, "b": {"assign_mode": "per_packet_quality"}},
        "ARS_INTERFACES": {"Ethernet0": {"ars_obj_name": "a"}},
        "ARS_NEXTHOPS": {"default|192.0.2.1": {}},
    }
    adaptive = read(tables).adaptive
    assert adaptive is not None
    assert adaptive.mode == mode


def test_trimming_needs_a_profile_that_trims() -> None:
    tables = trimming(dscp_value="5")
    assert read(tables).trim == Trim(128, 5)
    tables["BUFFER_PROFILE"]["b"]["packet_discard_action"] = "drop"
    assert refusals(tables) == [
        "'neither': expected ARS_OBJECT, or SWITCH_TRIMMING and a profile that trims"
    ]


# One row for every field that cannot be honoured; the module's table has the reasons.
REFUSED = [
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
    (trimming(), "SWITCH_TRIMMING.GLOBAL.dscp_value"),
    (trimming(dscp_value="5", queue_index="dynamic"), "SWITCH_TRIMMING.GLOBAL.queue_index"),
]


@pytest.mark.parametrize(("tables", "place"), REFUSED, ids=[place for _, place in REFUSED])
def test_what_cannot_be_honoured_is_refused_by_name(tables: dict[str, Any], place: str) -> None:
    (said,) = refusals(tables)
    assert said.startswith(f"{place}: ")


def test_every_refused_field_is_in_the_modules_table() -> None:
    assert sonic.__doc__ is not None
    table = sonic.__doc__.partition("Refused by name:")[2]
    fields = {re.split(r"[.\]]", place)[-1] for _, place in REFUSED}
    # Unknown fields are refused at their sections, p and o; unknown tables have one line for all.
    assert {field for field in fields - {"p", "o"} if field not in table} == {
        "ARS_QUANTIZATION_BANDS"
    }


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
    return found.adaptive is not None or found.trim is not None


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
