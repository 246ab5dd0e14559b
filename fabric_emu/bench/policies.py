"""Subject ``policies``: what each switch policy costs, beside the kernel's own multipath routes.

One fabric per policy, all of them up at once; repetitions take turns, so that whatever else the
machine does hits all alike. A host sends the same few hundred small packets again and again, each
from a source port of its own: nothing but the path costs time, and all of its hops run on the
sender's processor.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fabric_emu.bench.course import INTERFACE, Course, topology
from fabric_emu.bench.table import Row
from fabric_emu.errors import WaitTimeout
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT
from fabric_emu.model.queueing import Ecn, Trimming
from fabric_emu.model.scheme import Scheme, Switch
from fabric_emu.net import namespaces
from fabric_emu.net.fabric import Fabric
from fabric_emu.nic.ring import TransmitRing

KERNEL = "ecmp"
SCHEMES = (
    Scheme.named(KERNEL),
    Scheme.named("dlb"),
    Scheme.named("dlb-packet"),
    Scheme.named("glb"),
    Scheme.named("switch-spray"),
    Scheme.named("switch-spray-rr"),
    Scheme(name="ecn-trimming", switch=Switch(ecn=Ecn(), trimming=Trimming())),
)
REQUIRED_RATIO = 0.7
PAYLOAD_BYTES = 64
REPETITIONS, QUICK_REPETITIONS = 15, 3
PACKETS = 100_000
_BATCH, _SLOTS = 256, 2048
_TIMEOUT_S = 30.0


def measure(quick: bool, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per policy: packets per second beside plain ECMP's."""
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    with contextlib.ExitStack() as stack:
        courses = {}
        for scheme in SCHEMES:
            fabric = Fabric(topology(), scheme, queue_pairs=1, shaped=False)
            courses[scheme.name] = Course(stack.enter_context(fabric))
        tell(f"{len(courses)} fabrics, {repetitions} repetitions")
        # Priority and processor are a thread's own: this one goes when it is done.
        with ThreadPoolExecutor(1) as racer:
            for course in courses.values():
                racer.submit(_packets_per_s, course).result()
            rates: dict[str, list[float]] = {name: [] for name in courses}
            for _ in range(repetitions):
                for name, course in courses.items():
                    rates[name].append(racer.submit(_packets_per_s, course).result())
        chosen = {name: course.fabric.switches.totals() for name, course in courses.items()}
    for name, ours in rates.items():
        if name == KERNEL:
            continue
        balanced = chosen[name]["balanced"]
        yield Row(
            "policies",
            f"{name}, {PAYLOAD_BYTES} B",
            "/s",
            tuple(ours),
            "kernel ECMP",
            tuple(rates[KERNEL]),
            required_ratio=REQUIRED_RATIO,
            note=f"{balanced:,} packets forwarded by the policy" if balanced else "",
        )


def _packets_per_s(course: Course) -> float:
    """Send through a course and return the rate at its end."""
    os.sched_setaffinity(0, {course.sender_cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    templates = course.templates(PAYLOAD_BYTES)
    ports = FIRST_SOURCE_PORT + np.arange(_BATCH)
    headers, icrc = templates.build(np.zeros(_BATCH, np.int64), ports, np.arange(_BATCH), 0)
    tails = icrc.view(np.uint8).reshape(-1, 4)
    with namespaces.inside(course.fabric.namespace_fds[course.source.name]):
        ring = TransmitRing(
            INTERFACE, templates.length, templates.header_length, bytes(templates.payload), _SLOTS
        )
    with contextlib.closing(ring):
        before = course.arrived()
        begin = time.monotonic()
        for _ in range(0, PACKETS, _BATCH):
            while not ring.room(_BATCH):
                ring.kick()
            ring.put(headers, tails)
            ring.kick()
        packets = -(-PACKETS // _BATCH) * _BATCH
        while course.arrived() < before + packets:
            ring.kick()
            if time.monotonic() > begin + _TIMEOUT_S:
                raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for {packets} packets to arrive")
        return packets / (time.monotonic() - begin)
