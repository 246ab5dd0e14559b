"""What a fault costs a training job, on iteration times made by hand."""

from typing import Any

import numpy as np
import pytest

from fabric_emu.measure.training_cost import training_cost

NAN = float("nan")


def cost(*ends: float, failed: int = 0, end_s: float = 10.0) -> dict[str, Any]:
    return training_cost(
        np.array(ends),
        first_fault_s=3.5,
        end_s=end_s,
        timeout_s=3.0,
        checkpoint_every=2,
        queue_pairs_failed=failed,
        gpus=100,
    )


def test_a_slower_iteration_costs_what_it_took_longer() -> None:
    found = cost(1, 2, 3, 5.5, 6.5)
    assert not found["rolled_back"]
    assert (found["before"], found["longest"], found["after"]) == (1, 2.5, 1)
    assert found["stalled"] == pytest.approx(1.5)
    assert found["redone"] == 0
    assert found["gpu_time_lost"] == pytest.approx(150)


def test_past_its_timeout_the_job_goes_back_to_its_checkpoint() -> None:
    # Iteration 3 stalls; the checkpoint was after iterations 0 and 1, so number 2 is done again.
    found = cost(1, 2, 3, 8, 9)
    assert found["rolled_back"]
    assert found["stalled_in"] == 3
    assert (found["stalled"], found["redone"]) == (3, 1)
    assert found["gpu_time_lost"] == pytest.approx(400)


def test_a_job_that_never_goes_on_has_stalled() -> None:
    found = cost(1, 2, 3, NAN, NAN)
    assert (found["stalled_in"], found["unfinished"], found["longest"]) == (3, 2, None)
    assert (found["stalled"], found["redone"]) == (3, 1)


def test_a_dead_queue_pair_stalls_before_the_timeout() -> None:
    assert cost(1, 2, 3, NAN, end_s=4.0)["rolled_back"] is False
    found = cost(1, 2, 3, NAN, end_s=4.0, failed=1)
    assert found["rolled_back"]
    assert found["stalled"] == pytest.approx(1)
