"""JSON that is refused: broken, ambiguous, too large or too deep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_emu.errors import ScenarioError
from fabric_emu.importers.strict_json import MAX_BYTES, dotted, parse_object, read_object

FILE = "config.json"


def refusal(content: bytes) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_object(content, FILE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "config.json:1: 'Expecting value': expected well-formed JSON"),
        (b'{\n"a": 1,\n}', "config.json:3: "),
        (b"[]", "config.json: []: expected a JSON object ({...})"),
        (b'"text"', "config.json: 'text': expected a JSON object ({...})"),
        (b'{"a": NaN}', "config.json: 'NaN': expected finite numbers"),
        (b'{"a": [-Infinity]}', "config.json: '-Infinity': expected finite numbers"),
        (b'{"a": 1, "a": 1}', "config.json: 'a': expected each key of an object once"),
        (
            b'{"a": [{}, {"b|c": {"d": 1, "e": 2, "d": 3}}]}',
            "config.json: a[1][\"b|c\"]: 'd': expected each key of an object once",
        ),
        (b'{"a": "\xff"}', "config.json: 'byte 7': expected text in UTF-8"),
        (
            b'{"a": 1' + b"0" * 20 + b"}",
            "config.json: '100000000000000000000': expected whole numbers of at most 64 bits",
        ),
        (
            b'{"a": ' + b"9" * 100_000 + b"}",
            f"config.json: '{'9' * 57}...': expected whole numbers of at most 64 bits",
        ),
        (
            b'{"a": ' + b"[" * 100_000,
            "config.json: 'nested too deeply': expected objects and lists a few levels deep",
        ),
        (
            b'{"a":' * 100_000,
            "config.json: 'nested too deeply': expected objects and lists a few levels deep",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value[:24]),
)
def test_refused(content: bytes, said: str) -> None:
    assert refusal(content).startswith(said)


def test_what_is_no_json_is_not_quoted() -> None:
    assert "secret" not in refusal(b"root:secret:19000:0:99999:7:::\n")


def test_byte_order_mark_and_unsigned_64_bits_are_taken() -> None:
    assert parse_object(b'\xef\xbb\xbf{"a": 18446744073709551615}', FILE) == {"a": 2**64 - 1}


def test_too_large(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    padding = b" " * (MAX_BYTES - 2)
    file.write_bytes(b"{}" + padding)
    assert read_object(str(file)) == {}
    file.write_bytes(b"{} " + padding)
    with pytest.raises(ScenarioError, match=r"over 8 MiB.*at most 8 MiB"):
        read_object(str(file))


@pytest.mark.parametrize("name", ["none.json", ".", "odd\0name"])
def test_unreadable(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match=r"expected (a readable JSON file|the name of a file)"):
        read_object(f"{tmp_path}/{name}")


def test_many_repeated_keys_are_refused_quickly() -> None:
    # A search that is quadratic in the keys would take some 10^10 comparisons here.
    keys = ",".join(f'"{number}":0' for number in range(150_000))
    assert "'149999'" in refusal(f'{{{keys},"149999":1}}'.encode())


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((), ""),
        (("a", 3, "b_c-d"), "a[3].b_c-d"),
        (("a", "default|fd00::1"), 'a["default|fd00::1"]'),
        (("\x1b[31m\ud800é",), '["\\u001b[31m\\ud800\\u00e9"]'),
        (("",), '[""]'),
        (("x" * 100,), f'["{"x" * 57}..."]'),
    ],
)
def test_place_is_printable(steps: tuple[str | int, ...], said: str) -> None:
    assert dotted(steps) == said
    assert dotted(steps).isascii()


OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ),
    max_size=4,
)


@given(OBJECTS)
def test_strict_json_is_read_as_it_is(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode(), FILE) == value


def taken_or_refused(content: bytes) -> bool:
    """Parse what may be no JSON; anything but a ScenarioError comes through."""
    try:
        return isinstance(parse_object(content, FILE), dict)
    except ScenarioError as refused:
        return refused.path.startswith(FILE)


@given(st.binary(max_size=200))
def test_random_bytes_are_taken_or_refused(content: bytes) -> None:
    assert taken_or_refused(content)


@given(OBJECTS, st.data())
def test_cut_and_garbled_json_is_taken_or_refused(
    value: dict[str, object], data: st.DataObject
) -> None:
    content = bytearray(json.dumps(value).encode())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    assert taken_or_refused(bytes(content))
