"""Who sends in a race: the product's own workers, iperf3, tcpreplay, and scapy's sendp."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from scapy.utils import RawPcapWriter

from fabric_emu.bench.course import INTERFACE, ArrivalRate, Course
from fabric_emu.errors import CommandFailed, WaitTimeout
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT, QPN_BASE, SOURCE_PORTS
from fabric_emu.nic.schedule import Schedule
from fabric_emu.nic.traffic import Traffic
from fabric_emu.nic.worker import Plan, Stream

BATCH, SLOTS = 1024, 2048
RECEIVE_SLOTS = 16384
RECEIVE_TICK_S = 0.0005
CAPTURED = 2048
_FAST = 1e9
_TIMEOUT_S = 60.0
_PATIENCE_S = 3.0


@dataclass(frozen=True)
class Sent:
    """What came of the product's packets.

    Attributes:
        packets_per_s: at the receiving host.
        sent: handed to the kernel.
        counts: how many each place saw that should have seen them all: the receiving ring, the
            first port, the last port.
        source_ports: how many different ones arrived.
    """

    packets_per_s: float
    sent: int
    counts: dict[str, int]
    source_ports: int

    @property
    def lost(self) -> int:
        """The largest difference between what was sent and what a place saw."""
        return max(abs(self.sent - count) for count in self.counts.values())


def send_own(course: Course, payload_bytes: int, packets: int) -> Sent:
    """Send with the product's worker as fast as it goes: no shaper, no rest, no due times."""
    one, none = np.ones(1), np.zeros(1, np.int64)
    schedule = Schedule(
        host=none,
        packets_per_s=one * _FAST,
        phase_s=one * 0,
        total=np.array([packets]),
        queue_pair=none[:, None],
        source_port=np.zeros((1, 1), np.uint16),
        entropy="random",
        burst=1,
        seed=1,
    )
    templates = course.templates(payload_bytes)
    source = course.port(course.source)
    stream = Stream(schedule, templates, (source,), SLOTS, BATCH, none)
    plans = (Plan(course.sender_cpu, (stream,), (), RECEIVE_SLOTS, 0.0), _receiver(course))
    before = course.fabric.ports.snapshot().ports
    with (
        Traffic(plans, course.fabric.lease.add_process) as traffic,
        ArrivalRate(course) as rate,
    ):
        traffic.start()
        if not traffic.wait_sent(_TIMEOUT_S):
            raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for {packets} packets to be sent")
        _wait_for(course, int(before["departed_packets"].max()), packets)
        sending, receiving = traffic.stop()
    after = course.fabric.ports.snapshot().ports
    columns = receiving.columns
    ours = columns is not None and columns.found & (columns.destination == QPN_BASE)
    counts = {
        "ring": int(np.sum(ours)),
        "first port": int((after["enqueued_packets"] - before["enqueued_packets"])[0]),
        "last port": int((after["delivered_packets"] - before["delivered_packets"]).sum()),
    }
    used = 0 if columns is None else len(np.unique(columns.source_port[ours]))
    sent = int(sum(count.sum() for count in sending.sent))
    return Sent(rate.packets_per_s(), sent, counts, used)


def _receiver(course: Course) -> Plan:
    ports = (course.port(course.destination),)
    return Plan(course.receiver_cpu, (), ports, RECEIVE_SLOTS, RECEIVE_TICK_S)


def _wait_for(course: Course, before: int, packets: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while course.arrived() < before + packets and time.monotonic() < deadline:
        time.sleep(0.001)


def has(tool: str) -> bool:
    """Tell whether a program is installed."""
    return shutil.which(tool) is not None


def send_iperf3(course: Course, payload_bytes: int, seconds: float) -> tuple[float, float]:
    """Send UDP with iperf3; return packets per second at the host, and the share that its own
    receiver lost after that.
    """
    server = course.start(course.destination, ["iperf3", "-s", "-1", "--forceflush"])
    try:
        _await_listening(server)
        address = course.address(course.destination)
        options = ["-u", "-b", "0", "-l", str(payload_bytes), "-t", str(math.ceil(seconds)), "-J"]
        with ArrivalRate(course) as rate:
            output = _finish(course.start(course.source, ["iperf3", "-c", address, *options]))
        report = json.loads(output)
        if "error" in report:
            raise CommandFailed(f"iperf3: {report['error']}")
        return rate.packets_per_s(), report["end"]["sum"]["lost_percent"] / 100
    finally:
        server.kill()
        server.communicate()


def _await_listening(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        if "listening" in line:
            return
    raise CommandFailed(f"iperf3 -s: {said.strip()}")


def send_tcpreplay(course: Course, capture: Path, packets: int) -> float:
    """Replay a capture until so many packets have gone; return packets per second at the host."""
    loops = max(1, -(-packets // CAPTURED))
    options = ["--preload-pcap", "--topspeed", f"--loop={loops}", f"--intf1={INTERFACE}"]
    return _send_to_own_receiver(course, ["tcpreplay", *options, str(capture)])


def write_capture(course: Course, payload_bytes: int, path: Path) -> None:
    """Write frames as the product sends them, each with a source port of its own."""
    templates = course.templates(payload_bytes)
    number = np.arange(CAPTURED)
    ports = FIRST_SOURCE_PORT + number % SOURCE_PORTS
    rows, icrc = templates.build(np.zeros_like(number), ports, number, time.time_ns())
    with RawPcapWriter(str(path), linktype=1) as writer:
        writer.write_header(None)
        for whole in templates.assemble(rows, icrc):
            writer.write_packet(whole.tobytes(), sec=0, usec=0)


def send_scapy(course: Course, payload_bytes: int, packets: int) -> float:
    """Send with scapy's sendp; return packets per second at the host."""
    module = "fabric_emu.bench.scapy_sender"
    command = [sys.executable, "-m", module, INTERFACE, str(payload_bytes), str(packets)]
    return _send_to_own_receiver(course, command)


def _send_to_own_receiver(course: Course, command: list[str]) -> float:
    """Run a sender while the product's worker receives: it gets each packet as ours do."""
    with (
        Traffic((_receiver(course),), course.fabric.lease.add_process) as traffic,
        ArrivalRate(course) as rate,
    ):
        traffic.start()
        _finish(course.start(course.source, command))
        traffic.stop()
    return rate.packets_per_s()


def _finish(process: subprocess.Popen[str]) -> str:
    """Return what a process printed by its end."""
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
    except BaseException as error:
        process.kill()
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for: {_words(process)}") from None
        raise
    # iperf3 says in its JSON what went wrong.
    if process.returncode and not output.lstrip().startswith("{"):
        last = " ".join(output.split()[-40:])
        raise CommandFailed(f"{_words(process)}: exit status {process.returncode}: {last}")
    return output


def _words(process: subprocess.Popen[str]) -> str:
    return shlex.join(map(str, cast("list[str]", process.args)))
