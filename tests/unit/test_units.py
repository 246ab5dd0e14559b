"""Quantities as people write them."""

import pytest

from fabric_emu.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("100mbit", 100_000_000),
        ("1.5Gbit/s", 1_500_000_000),
        ("400Gbps", 400_000_000_000),
        ("800 gbit", 800_000_000_000),
        ("9600bit", 9600),
        (2_000_000, 2_000_000),
        (1e9, 1_000_000_000),
    ],
)
def test_rates(text, rate_bps):
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4KiB", 4096), ("4KB", 4000), ("1MB", 1_000_000), (512, 512), ("64", 64), ("2 GiB", 2**31)],
)
def test_sizes(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500us", 5e-4), ("2 ms", 2e-3), ("1min", 60.0), (3, 3.0), (0.25, 0.25), (2e-9, 2e-9)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "10", "10 parsecs", "-3mbit", "1e3mbit", "mbit"])
def test_a_rate_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="100mbit"):
        parse_rate(text)


def test_figures_are_written_with_four_digits_and_a_unit():
    assert format_rate(1e8) == "100 Mbit/s"
    assert format_rate(4e11) == "400 Gbit/s"
    assert format_size(1_234_567) == "1.235 MB"
    assert format_duration(0.00035) == "350 µs"
    assert format_duration(0) == "0 ns"
