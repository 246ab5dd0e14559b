"""Subject ``packets``: the product's sender beside others, through the same unshaped path."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fabric_emu.bench.contenders import (
    Sent,
    has,
    send_iperf3,
    send_own,
    send_scapy,
    send_tcpreplay,
    write_capture,
)
from fabric_emu.bench.course import Course, topology
from fabric_emu.bench.table import MISSING, Row, figure
from fabric_emu.errors import RunFailed
from fabric_emu.net.fabric import Fabric

PAYLOADS = {"64 B": 64, "1 KB": 1024, "4 KB": 4096}
REQUIRED_RATIO = {"iperf3 -u": 1.4, "tcpreplay": 1.0, "scapy sendp": 100.0}
REPETITIONS, QUICK_REPETITIONS = 7, 2
SECONDS, QUICK_SECONDS = 1.0, 0.4
SCAPY_PACKETS = 400
_WARM_UP_PACKETS = 40_000


@dataclass
class _Race:
    """Figures of all repetitions at one payload."""

    own: list[Sent] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)
    iperf3_arriving: list[float] = field(default_factory=list)


def measure(quick: bool, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield rows per payload: ours beside each other sender, and what was lost."""
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    seconds = QUICK_SECONDS if quick else SECONDS
    with Fabric(topology(), queue_pairs=1, shaped=False) as fabric:
        course = Course(fabric)
        for name, payload_bytes in PAYLOADS.items():
            tell(f"payload of {name}, {repetitions} repetitions")
            yield from _rows(name, _run(course, payload_bytes, repetitions, seconds))


def _run(course: Course, payload_bytes: int, repetitions: int, seconds: float) -> _Race:
    race = _Race()
    warm_up = send_own(course, payload_bytes, _WARM_UP_PACKETS)
    packets = round(_known(warm_up.packets_per_s) * seconds)

    def add(other: str, rate: float) -> None:
        race.others.setdefault(other, []).append(_known(rate))

    with tempfile.TemporaryDirectory(prefix="fabric-emu-bench-") as folder:
        capture = Path(folder) / "frames.pcap"
        write_capture(course, payload_bytes, capture)
        for _ in range(repetitions):
            race.own.append(send_own(course, payload_bytes, packets))
            if has("iperf3"):
                arriving, lost = send_iperf3(course, payload_bytes, seconds)
                add("iperf3 -u", arriving * (1 - lost))
                race.iperf3_arriving.append(arriving)
            if has("tcpreplay"):
                add("tcpreplay", send_tcpreplay(course, capture, packets))
            add("scapy sendp", send_scapy(course, payload_bytes, SCAPY_PACKETS))
    return race


def _known(rate: float) -> float:
    if math.isnan(rate):
        raise RunFailed("too few packets arrived to tell at what rate")
    return rate


def _rows(name: str, race: _Race) -> Iterator[Row]:
    ours = tuple(_known(sent.packets_per_s) for sent in race.own)
    for other, required in REQUIRED_RATIO.items():
        theirs = tuple(race.others.get(other, ()))
        note = "" if theirs else f"{other.split()[0]} {MISSING}"
        if other == "iperf3 -u" and theirs:
            arriving = statistics.median(race.iperf3_arriving)
            note = f"received by iperf3, of {figure(arriving, '/s')} that came to its host"
        yield Row(
            "packets",
            f"{name} packets",
            "/s",
            ours,
            other,
            theirs,
            required_ratio=required,
            note=note,
        )
    sent = sum(one.sent for one in race.own)
    ports = min(one.source_ports for one in race.own)
    yield Row(
        "packets",
        f"{name} lost",
        "",
        (float(max(one.lost for one in race.own)),),
        less_is_better=True,
        limit=0,
        note=f"of {sent:,} packets; {ports:,} source ports or more in each repetition",
    )
