"""Subject ``transports``: the highest link rate that each transport of the NICs keeps up with.

16 hosts on a 4 x 4 fabric, host i sends to host i + 4 in packets of 4 KiB. The rate goes up until
the fidelity verdict is doubtful each time; what holds is the last rate before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabric_emu.bench.table import Row, figure
from fabric_emu.experiment import run_scheme
from fabric_emu.measure.fidelity import TURNAROUND_PACKETS
from fabric_emu.measure.summary import SchemeResult
from fabric_emu.model.message_workload import Messages
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Nic, Scheme
from fabric_emu.model.topology import Topology

RATES_BPS = tuple(mbit * 1_000_000 for mbit in (10, 20, 30, 40, 50, 100))
QUICK_RATES_BPS = (10_000_000, 20_000_000)
SCHEMES = {
    # One queue pair per host would take a third of line rate or less where three hosts share an
    # uplink, and spare the machine. 32 unacknowledged packets of a host in all.
    "rc": Scheme(name="ecmp-16qp", nic=Nic(queue_pairs=16, window=2)),
    "mrc": Scheme.named("mrc"),
    "uet": Scheme.named("uec"),
}
ATTEMPTS, QUICK_ATTEMPTS = 3, 1
"""A verdict may be doubtful for what else the machine does."""

SENDING_S, QUICK_SENDING_S = 2.0, 1.0
"""How long a host would send at line rate."""

_PATIENCE = 6
_PAYLOAD_BYTES = 4096


@dataclass(frozen=True)
class _Held:
    """What a transport did at a rate.

    Attributes:
        rate_bps: of every link.
        share: of line rate that a host reached, the mean over hosts; 0 for one not done.
        turnaround: of NICs, p99, in times of a full packet.
        reasons: why the verdict is doubtful; empty when it is not.
    """

    rate_bps: int
    share: float
    turnaround: float
    reasons: tuple[str, ...]


def measure(quick: bool, tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield three rows per transport: highest rate, and there share of line rate and turnaround."""
    for transport, scheme in SCHEMES.items():
        held, missed = _climb(transport, scheme, quick, tell)
        note = ""
        if missed:
            note = (
                f"doubtful at {figure(missed.rate_bps, 'bit/s')} ({missed.share:.0%} of line rate, "
                f"turnaround p99 {missed.turnaround:.1f} packet times): {'; '.join(missed.reasons)}"
            )
        highest = float(held.rate_bps) if held else 0.0
        yield Row("transports", f"{transport}: highest rate", "bit/s", (highest,), note=note)
        if held:
            yield Row("transports", f"{transport}: share of line rate there", "", (held.share,))
            yield Row(
                "transports",
                f"{transport}: turnaround p99, packet times",
                "",
                (held.turnaround,),
                less_is_better=True,
                limit=TURNAROUND_PACKETS,
            )


def _climb(
    transport: str, scheme: Scheme, quick: bool, tell: Callable[[str], None]
) -> tuple[_Held | None, _Held | None]:
    """Return what holds at the highest rate, and what was seen at the first that does not."""
    best = None
    for rate in QUICK_RATES_BPS if quick else RATES_BPS:
        for attempt in range(QUICK_ATTEMPTS if quick else ATTEMPTS):
            tell(f"{transport} at {figure(rate, 'bit/s')}, attempt {attempt + 1}")
            found = _at(rate, scheme, attempt + 1, QUICK_SENDING_S if quick else SENDING_S)
            if not found.reasons:
                best = found
                break
        else:
            return best, found
    return best, None


def _at(rate_bps: int, scheme: Scheme, seed: int, sending_s: float) -> _Held:
    scenario = Scenario(
        title="transports",
        topology=Topology(leaves=4, spines=4, hosts_per_leaf=4, link_rate=rate_bps),
        workload=Messages(
            collective="permutation",
            size=int(rate_bps / 8 * sending_s),
            payload=_PAYLOAD_BYTES,
            duration=_PATIENCE * sending_s,
        ),
        schemes=(scheme,),
    )
    result = run_scheme(scenario, scheme, seed)
    verdict = result.summary["verdict"]
    return _Held(
        rate_bps, host_share(result), turnaround(verdict["checks"]), tuple(verdict["reasons"])
    )


def host_share(result: SchemeResult) -> float:
    """Return the ideal time over that of each sender's last arrival, the mean over senders."""
    messages = result.messages
    done = messages["start_s"] + messages["taken_s"]
    last = np.full(int(messages["source"].max()) + 1, -np.inf)
    np.maximum.at(last, messages["source"], np.where(np.isnan(done), np.inf, done))
    taken = last[last > 0] - float(messages["collective_begin_s"][0])
    return float((float(messages["collective_ideal_s"][0]) / taken).mean())


def turnaround(checks: Sequence[dict[str, Any]]) -> float:
    """Return the turnaround's p99 in packet times, from the verdict's check of it."""
    (check,) = (one for one in checks if one["name"] == "NIC turnaround p99")
    return TURNAROUND_PACKETS * float(check["measured"]) / float(check["limit"])
