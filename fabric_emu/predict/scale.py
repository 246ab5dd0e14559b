"""Spreads of several schemes over many seeds, on several processors, and their figures."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Scheme
from fabric_emu.model.topology import Topology
from fabric_emu.predict.distribution import fit, law_of
from fabric_emu.predict.spread import Spread, spread

HOST_PORTS_DETAILED = 1024
"""Up to as many NIC ports a forecast names every node and link."""

_ROWS_PER_TASK = 1 << 22
_ROWS_WORTH_PROCESSES = 1 << 23  # below, starting them takes longer than the work


def is_large(topology: Topology) -> bool:
    """Tell whether a fabric is too large to name its every link."""
    return topology.total_hosts * topology.planes > HOST_PORTS_DETAILED


def spreads(
    scenario: Scenario,
    schemes: Sequence[Scheme],
    seeds: Sequence[int],
    processes: int | None = None,
    told: Callable[[float], object] = lambda share: None,
) -> dict[str, Spread]:
    """Return the spread of each scheme, by its name, over runs of these seeds.

    Memory: about 100 bytes per flow and 400 MB, times the number of processes.

    Args:
        scenario: topology and workload.
        schemes: which schemes.
        seeds: of the runs.
        processes: how many to use; None: one per processor, if there is enough to do.
        told: called with the share done.
    """
    flows = len(scenario.workload.table(scenario.topology, seeds[0])) if seeds else 0
    tasks: list[tuple[Scheme, Sequence[int]]] = []
    rows = 0
    for scheme in schemes:
        pairs = flows * scheme.nic.queue_pairs if scheme.nic.entropy == "qp" else 0
        rows += pairs * len(seeds)
        together = max(1, _ROWS_PER_TASK // max(pairs, 1))
        tasks += [(scheme, seeds[i : i + together]) for i in range(0, len(seeds), together)]
    done: dict[int, Spread] = {}
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if rows > _ROWS_WORTH_PROCESSES else 1
    if processes > 1:
        # Forked workers would inherit whatever locks other threads hold.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context) as pool:
            # Long ones first, so that the last to end is a short one.
            order = sorted(range(len(tasks)), key=lambda i: -tasks[i][0].nic.queue_pairs)
            pending = {pool.submit(spread, scenario, *tasks[i]): i for i in order}
            for future in as_completed(pending):
                done[pending[future]] = future.result()
                told(len(done) / len(tasks))
    else:
        for i, (scheme, part) in enumerate(tasks):
            done[i] = spread(scenario, scheme, part)
            told(len(done) / len(tasks))
    return {
        scheme.name: Spread.joined([done[i] for i, task in enumerate(tasks) if task[0] == scheme])
        for scheme in schemes
    }


def summarise_spread(scenario: Scenario, scheme: Scheme, seen: Spread) -> dict[str, Any]:
    """Return the figures of one scheme's spread, ready for JSON.

    Keys: ``seeds`` (how many), ``worst_uplink_load`` (over seeds), ``leaf_imbalance`` (over leaves
    that send and seeds), ``fabric_imbalance`` (of each seed's worst leaf, over seeds), ``law``.
    """
    law, reason = law_of(scenario, scheme, seen)
    imbalance = seen.leaf_imbalance
    sending = seen.leaf_mean > 0
    worst_leaf = np.max(imbalance, axis=1, where=sending, initial=1.0)
    found: dict[str, Any] = {
        "name": scheme.name,
        "hashed": scheme.nic.entropy == "qp",
        "seeds": len(seen.seeds),
        "first_seed": int(seen.seeds[0]),
        "worst_uplink_load": _figures(seen.worst),
        "leaf_imbalance": _figures(imbalance[sending]),
        "fabric_imbalance": _figures(worst_leaf),
        "law": {"applies": law is not None, "reason": reason},
    }
    if law is not None:
        checked = fit(law, seen)
        found["law"] |= {
            "streams": law.streams,
            "links": law.links,
            "leaf_imbalance": law.leaf_mean,
            "fabric_imbalance": law.fabric_mean,
            "fit": {**asdict(checked), "consistent": checked.consistent},
        }
    return found


def _figures(values: NDArray[np.float64]) -> dict[str, float] | None:
    if not values.size:
        return None
    least, p50, p90, p99, most = np.percentile(values, [0, 50, 90, 99, 100]).tolist()
    mean = float(values.mean())
    return {"mean": mean, "min": least, "p50": p50, "p90": p90, "p99": p99, "max": most}
