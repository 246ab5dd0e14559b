"""What faults cost a training job: iterations that took longer, or a return to a checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def training_cost(
    iteration_end_s: NDArray[np.float64],
    *,
    first_fault_s: float,
    end_s: float,
    timeout_s: float,
    checkpoint_every: int,
    queue_pairs_failed: int,
    gpus: int,
) -> dict[str, Any]:
    """Return how a job went on after a fault, and the time that it lost.

    An iteration stalls the job when it takes longer than ``timeout_s``, or when a queue pair of
    it failed. The job then goes back to its last checkpoint: what it waited, the timeout at most,
    and the iterations since the checkpoint, each as long as usual, are lost. Otherwise only what
    the iterations after the fault took longer than usual is lost.

    Keys: ``before`` (median time of the iterations that ended before the fault: the usual time;
    None without any), ``longest`` and ``after`` (longest and last of those that ended after it),
    ``unfinished`` (iterations), ``rolled_back``, ``stalled_in`` (iteration, from 0; None),
    ``stalled`` and ``redone`` (seconds lost by waiting and by iterations to be done again),
    ``gpus``, ``gpu_time_lost`` (seconds over all of them).

    Args:
        iteration_end_s: (iterations,) seconds after the start; NaN for those not finished.
        first_fault_s: when the first fault began.
        end_s: when the run ended; the job stalls as far as is seen until then.
        timeout_s: of a collective.
        checkpoint_every: iterations between checkpoints.
        queue_pairs_failed: queue pairs that gave up.
        gpus: that wait while the job does.

    Fidelity: loading a checkpoint and starting the job again cost nothing here; times are those of
    the emulated links.
    """
    taken = np.diff(iteration_end_s, prepend=0.0)
    ended = np.isfinite(iteration_end_s)
    before = taken[iteration_end_s < first_fault_s]
    late = taken[ended & (iteration_end_s >= first_fault_s)]
    usual = float(np.median(before)) if len(before) else None
    done = int(ended.sum())
    open_s = end_s - float(np.nanmax(iteration_end_s, initial=0.0)) if done < len(taken) else 0.0
    too_long = np.flatnonzero(ended & (taken > timeout_s))
    stalled_in = None
    if len(too_long):
        stalled_in = int(too_long[0])
    elif done < len(taken) and (open_s > timeout_s or queue_pairs_failed):
        stalled_in = done
    redone = 0.0
    if stalled_in is None:
        stalled = float(np.maximum(late - usual, 0.0).sum()) if usual is not None else 0.0
    else:
        stalled = timeout_s if len(too_long) else min(open_s, timeout_s)
        redone = stalled_in % checkpoint_every * (usual or 0.0)
    return {
        "before": usual,
        "longest": float(late.max()) if len(late) else None,
        "after": float(late[-1]) if len(late) else None,
        "unfinished": len(taken) - done,
        "rolled_back": stalled_in is not None,
        "stalled_in": stalled_in,
        "stalled": stalled,
        "redone": redone,
        "gpus": gpus,
        "gpu_time_lost": (stalled + redone) * gpus,
    }
