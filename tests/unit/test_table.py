"""The table of a run, as a pipe and as a terminal gets it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from fabric_emu.commands.terminal import Terminal, terminal
from fabric_emu.results.figures import count, duration, percent, printable, three_digits
from fabric_emu.results.run import RunResult
from fabric_emu.results.table import print_run

Summary = Callable[..., dict[str, Any]]
Run = Callable[..., RunResult]
Loads = tuple[float, ...]


def plain(run: RunResult) -> str:
    """Return what a pipe gets."""
    file = io.StringIO()
    print_run(terminal(file), run)
    return file.getvalue()


def drawn(run: RunResult, width: int = 80) -> str:
    """Return what a terminal of this width gets."""
    file = io.StringIO()
    print_run(Terminal(file=file, force_terminal=True, color_system="standard", width=width), run)
    return file.getvalue()


def test_plain_output_at_80_columns(run_of: Run, summary_of: Summary, hashed_loads: Loads) -> None:
    sprayed = summary_of(
        "mrc",
        reordering={"ratio": 0.8733, "max_extent": 1234},
        verdict={"trustworthy": False, "reasons": ["workers were 12.3 ms late, over 10 ms"]},
    )
    ecmp = summary_of("ecmp", hashed_loads, delay={"p99": 0.011234})
    text = 'schemes: [ecmp, mrc]\nexpect: {mrc: {efficiency: "< 0.9", typo: "> 1"}}\n'
    assert plain(run_of(ecmp, sprayed, text=text)) == (
        """\
Eight flows per server
2 leaves, 8 spines, 16 hosts; 100 Mbit/s links; seed 7

           worst  max /                            max    delay           trust-
scheme    uplink   mean  efficiency  reordered  extent      p99  dropped  worthy
--------------------------------------------------------------------------------
ecmp    *168.8 %   1.88     90.10 %     0.00 %       0  11.2 ms      990  yes
mrc       90.0 %   1.00    100.00 %    87.33 %   1,234   352 us        0  no

Load offered to uplinks; | is 100 %

leaf1, ecmp                              leaf1, mrc
spine1 ########    |            67.5 %   spine1 ##########  |            90.0 %
spine2 ############|!          101.2 %   spine2 ##########  |            90.0 %
spine3 ############|!!!!!!!!!  168.8 %   spine3 ##########  |            90.0 %
spine4 ############|!          101.2 %   spine4 ##########  |            90.0 %
spine5 #########   |            78.8 %   spine5 ##########  |            90.0 %
spine6 ##########  |            90.0 %   spine6 ##########  |            90.0 %
spine7 ########    |            67.5 %   spine7 ##########  |            90.0 %
spine8 #####       |            45.0 %   spine8 ##########  |            90.0 %

Verdict: doubtful
  mrc: workers were 12.3 ms late, over 10 ms
Prediction: ecmp: 64 of 64 queue pairs took the predicted path
Expectations: 2 of 2 do not hold
  mrc: efficiency: expected < 0.9, measured 1
  mrc: typo: expected > 1, no such figure
"""
    )


def test_links_down_to_leaves_have_a_column_when_they_are_the_bottleneck(
    run_of: Run, summary_of: Summary
) -> None:
    slow = summary_of("dlb", worst_downlink_load=1.387)
    assert "downlink" in plain(run_of(slow))
    assert "138.7 %" in plain(run_of(slow))
    assert "down" not in plain(run_of(summary_of("dlb", worst_downlink_load=0.95)))


def test_all_that_tells_schemes_of_messages_apart_fits_80_columns(
    run_of: Run, summary_of: Summary, hashed_loads: Loads
) -> None:
    changes: dict[str, Any] = {
        "completion": {
            "count": 2, "unfinished": 0, "over_ideal_p50": 2.0, "over_ideal_p99": 2.3,
            "over_ideal": 2.4,
        },
        "busbw": 9.74e6,
        "retransmitted": 1677,
        "ecn_marked": 2557,
        "packets": {"sent": 20_000, "dropped": {"queue_limit": 71}, "trimmed": 1624},
    }  # fmt: skip
    uec = summary_of("uec", hashed_loads, **changes)
    done = {**changes["completion"], "over_ideal": 1.7}
    text = plain(run_of(uec, summary_of("mrc", **changes | {"completion": done})))
    assert longest_line(text) <= 80
    table = [line.split() for line in text.splitlines()[3:8]]
    assert [" ".join(line) for line in table if line] == [
        "ideal ideal ideal busbw worst max / effi- re- re-",
        "scheme p50 p99 max Mbit/s uplink mean ciency ordered sent trims trust",
        "-" * 80,
        "uec 2.00 2.30 *2.40 9.74 168.8 % 1.88 90.10 % 0.00 % 1,677 1,624 yes",
        "mrc 2.00 2.30 1.70 9.74 90.0 % 1.00 100.00 % 0.00 % 1,677 1,624 yes",
    ]


def test_several_seeds_give_median_and_range(
    run_of: Run, summary_of: Summary, hashed_loads: Loads
) -> None:
    summaries = [
        summary_of("ecmp", tuple(share * load for load in hashed_loads), seed=seed)
        for seed, share in ((7, 0.8), (8, 1.0), (9, 0.6))
    ]
    text = plain(run_of(*summaries, seeds=(7, 8, 9), text="schemes: [ecmp]\n"))
    # 1.6875 times 0.8, 0.6 and 1.0; the uplinks drawn are those of the median, seed 7.
    assert "seeds 7 to 9: median [min..max]" in text
    assert "   *135.0 %" in text
    assert "[101.2..168.8]" in text
    assert "3/3" in text
    assert "with seed 7; | is 100 %" in text
    assert "192 of 192 queue pairs took the predicted path" in text
    assert longest_line(text) <= 80


def longest_line(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_lines_fit_and_nothing_is_cut(
    columns: int,
    run_of: Run,
    summary_of: Summary,
    hashed_loads: Loads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "a-scheme-of-forty-characters-in-its-name"
    text = f"schemes: [ecmp, {{name: {name}}}]\n"
    run = run_of(
        *(
            summary_of(scheme, tuple(load * share for load in hashed_loads), seed=seed)
            for seed, share in ((7, 1.0), (8, 0.9))
            for scheme in ("ecmp", name)
        ),
        seeds=(7, 8),
        text=text,
    )
    printed = plain(run)
    assert longest_line(printed) <= columns
    assert "…" not in printed
    assert printed.isascii()
    assert "\x1b" not in printed
    assert all(line == line.rstrip() for line in printed.splitlines())
    # The long name goes on in the next lines of its column.
    assert "a-scheme-of-fort" in printed


def test_terminal_gets_colours_and_blocks(
    run_of: Run, summary_of: Summary, hashed_loads: Loads
) -> None:
    text = drawn(run_of(summary_of("ecmp", hashed_loads), summary_of("mrc")))
    assert "\x1b[1;31m*168.8 %" in text
    assert "████████████\x1b[0m\x1b[1m│\x1b[0m\x1b[31m█████████\x1b[0m" in text
    assert "352 µs" in text


def test_best_and_worst_alike_are_not_marked(run_of: Run, summary_of: Summary) -> None:
    assert "*" not in plain(run_of(summary_of("ecmp"), summary_of("mrc")))


def test_only_what_sends_is_drawn(run_of: Run, summary_of: Summary) -> None:
    text = plain(run_of(summary_of("ecmp")))
    assert "leaf1, ecmp" in text
    assert "leaf2" not in text


def test_one_chassis_has_no_uplinks(run_of: Run, summary_of: Summary) -> None:
    changes: dict[str, Any] = {"worst_uplink_load": None, "worst_uplink": None, "uplinks": {}}
    text = plain(run_of(summary_of("ecmp", worst_link_load=0.4242, imbalance={}, **changes)))
    assert "  link" in text
    assert "42.4 %" in text
    assert "uplink" not in text


def test_spines_with_uplinks_and_parallel_links(run_of: Run, summary_of: Summary) -> None:
    changes = {
        "uplinks": {
            "leaf1": [
                {"spine": "spine1", "link": "leaf1-spine1.2", "offered": 0.5, "carried": 0.5}
            ],
            "spine1": [
                {"super_spine": "super2", "link": "spine1-super2", "offered": 0.25, "carried": 0.25}
            ],
        }
    }
    text = plain(run_of(summary_of("ecmp", **changes)))
    assert "spine1.2 #" in text
    assert "super2   #" in text


def test_of_many_switches_the_busiest_are_drawn(run_of: Run, summary_of: Summary) -> None:
    uplinks = {
        f"leaf{i}": [{"spine": "spine1", "link": f"leaf{i}-spine1", "offered": i / 10}]
        for i in range(1, 8)
    }
    text = plain(run_of(summary_of("ecmp", uplinks=uplinks)))
    assert "leaf4, ecmp" in text
    assert "leaf7, ecmp" in text
    assert "leaf3" not in text
    assert "3 more switches send; their busiest uplink: 30.0 %" in text


def test_of_many_uplinks_the_busiest_are_drawn(run_of: Run, summary_of: Summary) -> None:
    loads = tuple(i / 100 for i in range(1, 41))
    text = plain(run_of(summary_of("ecmp", loads)))
    assert "spine40 #" in text
    assert "spine8 " not in text
    assert "8 more, up to 8.0 %" in text


def test_figures_that_are_missing(run_of: Run, summary_of: Summary) -> None:
    changes: dict[str, Any] = {
        "delay": {"p99": None},
        "efficiency": None,
        "reordering": {"ratio": None, "max_extent": None},
    }
    row = next(
        line for line in plain(run_of(summary_of("ecmp", **changes))).splitlines()
        if line.startswith("ecmp")
    )  # fmt: skip
    assert row.split() == ["ecmp", "90.0", "%", "1.00", "-", "-", "-", "-", "0", "yes"]


def test_prediction_that_was_missed_or_is_off(run_of: Run, summary_of: Summary) -> None:
    missed = {"offered": True, "checked": 64, "matched": 63, "reason": ""}
    off = {"offered": False, "checked": 0, "matched": 0, "reason": "this kernel has no hash seed"}
    text = plain(run_of(summary_of("ecmp", prediction=missed), summary_of("mrc", prediction=off)))
    assert "Prediction: ecmp: 63 of 64 queue pairs took the predicted path" in text
    assert "Prediction: none for mrc: this kernel has no hash seed" in text


def test_run_without_results_is_printed(run_of: Run) -> None:
    assert plain(run_of()).splitlines()[1].endswith("seed 7")


def test_control_characters_of_a_title_are_not_obeyed(run_of: Run, summary_of: Summary) -> None:
    run = run_of(summary_of("ecmp"))
    run.scenario["title"] = "one\x1b[31m\ntwo [bold]three[/bold]"
    assert plain(run).splitlines()[0] == "one?[31m two [bold]three[/bold]"


@pytest.mark.parametrize(
    ("ratio", "digits", "text"),
    [
        (1.376, 1, "137.6 %"),
        (0.9998, 2, "99.98 %"),
        (0.999999, 2, "99.99 %"),  # not all: it must not read as if it were
        (1.0, 2, "100.00 %"),
        (1e-6, 2, "<0.01 %"),
        (0.0, 2, "0.00 %"),
        (None, 2, "-"),
    ],
)
def test_percent(ratio: float | None, digits: int, text: str) -> None:
    assert percent(ratio, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(352e-6, "352 us"), (0.0112345, "11.2 ms"), (0.99996e-3, "1 ms"), (0, "0 ns"), (None, "-")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds, ascii_only=True) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12345, "12,345"), (1_234_567, "1.23 M"), (None, "-")]
)
def test_count(value: float | None, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(9.92, "9.92"), (10.6, "10.6"), (412.3, "412"), (0.05, "0.0500"), (0, "0")]
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_schemes_of_a_switch_stand_side_by_side(run_of: Run, summary_of: Summary) -> None:
    uplinks = {
        switch: [{"spine": "spine1", "link": f"{switch}-spine1", "offered": 0.5}]
        for switch in ("leaf1", "leaf2")
    }
    rows = [summary_of(name, uplinks=uplinks) for name in ("ecmp", "dlb", "mrc")]
    titles = [line.split() for line in plain(run_of(*rows)).splitlines() if line[:5] == "leaf1"]
    assert titles == [["leaf1,", "ecmp", "leaf1,", "dlb"], ["leaf1,", "mrc"]]


def test_printable() -> None:
    assert printable("a\tb\n c\x07é") == "a b c?é"
