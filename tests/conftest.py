"""For all tests: who may skip those marked ``root``, Hypothesis without a clock, a live Ctrl-C."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Fixed examples, and no verdict that depends on how busy the machine is.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

# A shell starts its background jobs deaf to Ctrl-C, and so would be the commands under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the fixtures, which would fail for want of root
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``root`` for a user without root; in CI, which must run it, fail it."""
    if item.get_closest_marker("root") is None or os.geteuid() == 0:
        return
    if os.environ.get("CI"):
        pytest.fail("CI is set, so this test may not be skipped, but it needs root", pytrace=False)
    pytest.skip("needs root: sudo scripts/test")
