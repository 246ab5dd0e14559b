"""fabric_emu: AI network fabrics, packet by packet, on Linux network namespaces.

Where things are::

    cli.py  errors.py  units.py  interrupts.py
    processes.py, nursery.py
                 processes beside the emulation; the one that NIC workers are forked from
    compiled.py  loops over packets as machine code
    commands/    one file per command of the command line
    experiment.py, jobs.py
                 one scheme of a scenario, run for real; the two kinds of workload
    model/       frozen descriptions: topology, workloads (open loop, messages), schemes, switch
                 policies, queueing, faults, scenarios; reading YAML, naming mistakes
    importers/   switch policies out of SONiC's and FBOSS's configuration files
    predict/     where packets go, without a kernel: the multipath hash, placement, entropy on
                 purpose, forecasts, laws, fabrics of any size
    wire/        scapy layers (RoCEv2, MRC, Ultra Ethernet), ICRC, templates, decoding
    net/         the live fabric: namespaces, links, routes (static, or FRR's BGP), shaping, faults
                 and what they did to the routes, lease, doctor
    switch/      the BPF programs of every port, their loader, the port table, GLB's adverts
    nic/         packet rings, workers, frames
    nic/transport/   RC, MRC and Ultra Ethernet, packet after packet; nic/congestion, nic/entropy
    measure/     reordering, link loads and paths, delay, completion, the fidelity verdict
    results/     the run folder, reading it back, tables, the report and its plots, exports, gallery
    live/, capture/  a run as it goes, as bars or as a page; frames into pcapng files
    calibration/ the highest rate that this machine carries
    bench/       what scripts/bench and scripts/soak measure

Dependencies point one way: model -> net -> switch, nic -> measure -> results -> cli. ``model``,
``importers``, ``wire``, ``measure``, ``predict`` and ``results`` need neither root nor Mininet nor
pyroute2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from fabric_emu.results.load import SavedRun


def load(path: str | PathLike[str]) -> SavedRun:
    """Read a run from its folder (or its ``run.json``): figures, and numpy arrays of the rest.

    ::

        run = fabric_emu.load("results/holbrook-20260301-120000")
        mrc = run["mrc"]
        print(mrc.summary["worst_uplink_load"], mrc.ports["offered"].max())
        plt.plot(mrc.series["time_s"], mrc.series["depth_bytes"].max(axis=1))

    Raises:
        UnreadableRun: it is not there, is not a run, or was written by a newer version.
    """
    # Only here, so that importing any part of the package does not import numpy and pydantic.
    from fabric_emu.results.load import load_saved

    return load_saved(path)
