"""fabric_emu: AI network fabrics, packet by packet, on Linux network namespaces.

Where things are::

    cli.py  errors.py  units.py  interrupts.py
    commands/    one file per command of the command line
    experiment.py, jobs.py
                 one scheme of a scenario, run for real; the two kinds of workload
    model/       frozen descriptions: topology, workloads (open loop, messages), schemes, switch
                 policies, queueing, faults, scenarios; reading YAML, naming mistakes
    importers/   switch policies out of SONiC's and FBOSS's configuration files
    predict/     where packets go, without a kernel: the multipath hash, placement, entropy on
                 purpose, forecasts, laws, fabrics of any size
    wire/        scapy layers (RoCEv2, MRC, Ultra Ethernet), ICRC, templates, decoding
    net/         the live fabric: namespaces, links, routes, shaping, faults, lease, doctor
    switch/      the BPF programs of every port, their loader, the port table, GLB's adverts
    nic/         packet rings, workers, frames
    nic/transport/   RC, MRC and Ultra Ethernet as column machines; nic/congestion, nic/entropy
    measure/     reordering, link loads and paths, delay, completion, the fidelity verdict
    results/     the run folder, the table, the report
    bench/       what scripts/bench measures

Dependencies point one way: model -> net -> switch, nic -> measure -> results -> cli. ``model``,
``importers``, ``wire``, ``measure``, ``predict`` and ``results`` need neither root nor Mininet nor pyroute2.
"""
