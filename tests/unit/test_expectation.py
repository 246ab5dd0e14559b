"""Bounds on figures."""

import pytest

from fabric_emu.model.expectation import judge, parse_bound


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("<= 0.91", 0.91, 0.9101),
        ("< 1", 0.999, 1.0),
        (">= 0.999", 0.999, 0.9989),
        ("> 1.0", 1.01, 1.0),
        ("== 0", 0.0, 1e-9),
        ("1.2 .. 1.6", 1.6, 1.61),
        ("-1..1e-3", -1.0, 0.0011),
    ],
)
def test_bounds(text, inside, outside):
    bound = parse_bound(text)
    assert bound.holds(inside)
    assert not bound.holds(outside)
    assert bound.text == text


@pytest.mark.parametrize("text", ["", "1", "=> 1", "2 .. 1", "> one", 3, None, ["> 1"]])
def test_what_is_no_bound_is_refused(text):
    with pytest.raises(ValueError, match="a bound such as"):
        parse_bound(text)


def test_figures_are_found_by_dotted_name():
    expect = {
        "ecmp": {
            "reordering.ratio": parse_bound("== 0"),
            "efficiency": parse_bound("> 0.9"),
            "no.such": parse_bound("> 0"),
        }
    }
    figures = {"efficiency": 0.8, "reordering": {"ratio": 0.0}, "no": 1}
    verdicts = judge(expect, "ecmp", figures)
    assert [(v.figure, v.measured, v.holds) for v in verdicts] == [
        ("reordering.ratio", 0.0, True),
        ("efficiency", 0.8, False),
        ("no.such", None, False),
    ]
    assert judge(expect, "mrc", figures) == []


def test_nothing_measured_is_no_pass():
    verdicts = judge({"ecmp": {"worst": parse_bound("< 1")}}, "ecmp", {"worst": None})
    assert not verdicts[0].holds
