"""fabric_emu: AI network fabrics, packet by packet, on Linux network namespaces.

Where things are::

    cli.py  errors.py  units.py
    model/     topology, workload, scheme, scenario: frozen descriptions; reading YAML
    predict/   where packets go, without a kernel: the multipath hash, placement, laws
    wire/      scapy layers, ICRC, frame templates patched by numpy, decoding
    net/       the live fabric: namespaces and links, routes, shaping, lease, doctor
    switch/    the BPF programs of every port, their loader, the port table
    nic/       packet rings and the workers that send and receive
    measure/   reordering, uplinks and paths, delay, the fidelity verdict
    results/   the run folder, the table

Dependencies point one way: model -> net -> switch, nic -> measure -> results -> cli. ``model``,
``wire``, ``measure``, ``predict`` and ``results`` need neither root nor Mininet nor pyroute2.
"""
