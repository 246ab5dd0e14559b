#!/usr/bin/env python3
"""A scheme of one's own, a parameter sweep in a loop, and a plot: the Python API in one page.

How many queue pairs does a flow need when leaves also balance flowlets? Run as root, with the
interpreter of the virtual environment::

    sudo .venv/bin/python scenarios/own_scheme.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import plotly.graph_objects as go

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import load_scenario
from fabric_emu.model.policies import Dlb
from fabric_emu.model.scheme import Nic, Scheme, Switch

HERE = Path(__file__).parent


def own_scheme(queue_pairs: int) -> Scheme:
    """Return DLB with a gap of 12 ms, under NICs that deal packets out to their queue pairs."""
    return Scheme(
        name=f"dlb-{queue_pairs}qp",
        nic=Nic(queue_pairs=queue_pairs, round_robin="packet"),
        switch=Switch(policy=Dlb(flowlet_gap=0.012)),
    )


def main() -> None:
    """Sweep, print a line per run, draw a page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--duration", default="2s", help="of each run")
    parser.add_argument("--plot", type=Path, default=Path("own_scheme.html"))
    options = parser.parse_args()

    scenario = load_scenario(
        HERE / "holbrook.yaml",
        ["workload.flows_per_host=1", "workload.load=0.7", f"workload.duration={options.duration}"],
    )
    queue_pairs = [1, 2, 4, 8, 16]
    ratios = []
    for number in queue_pairs:
        summary = run_scheme(scenario, own_scheme(number), seed=1).summary
        ratios.append(summary["imbalance"]["leaf1"]["max_over_mean"])
        trust = "trustworthy" if summary["verdict"]["trustworthy"] else "doubtful"
        print(f"{number:2} queue pairs: max / mean {ratios[-1]:.2f}, {trust}")

    figure = go.Figure(go.Scatter(x=queue_pairs, y=ratios, mode="lines+markers"))
    figure.update_xaxes(title="queue pairs of a flow", type="log", tickvals=queue_pairs)
    figure.update_yaxes(title="fullest uplink over the mean", rangemode="tozero")
    figure.write_html(options.plot)
    print(f"Plot in {options.plot}")


if __name__ == "__main__":
    main()
