"""Reading an FBOSS agent's configuration: flowlet switching (DLB).

Taken are an agent's file, with the switch under ``sw``, and the switch's part alone. Enumerations
may be names or numbers.

===================================  =========================================================
``flowletSwitchingConfig``           here
===================================  =========================================================
switchingMode                        mode; FLOWLET_QUALITY unless given
inactivityIntervalUsecs              idle time in microseconds
flowletTableSize                     flow table; 4096 unless given
dynamicSampleRate                    measurements per second, 50,000 or more (agents on a
                                     vendor's SDK); or an interval of up to 20,000: nanoseconds,
                                     and microseconds below 512 (agents on SAI)
dynamicEgressLoadExponent e          the average of the load reaches back over 2^e samples;
                                     2^(e-1) on SAI, which counts from 1
dynamicQueueExponent                 the same of the queue
dynamicEgressMinThresholdBytes,      range of the load's quality bands in Mb/s (whatever they are
dynamicEgressMaxThresholdBytes       called) of a port scaled to 10 Gb/s: 10,000 is its rate
dynamicQueueMinThresholdBytes,       range of the queue's quality bands in bytes
dynamicQueueMaxThresholdBytes
portFlowletConfigs loadWeight,       weights of load and queue in a port's quality, percent
queueWeight
===================================  =========================================================

Read without effect: scalingFactor (it evens out ports of different rates; here all have one),
maxLinks (room in a table), backupSwitchingMode (for more groups than a chip has room for),
sourcePortPrune (no path leads back), dynamicPhysicalQueueExponent (of a measure whose weight is
what the two weights leave of 100, so none). Which packets are balanced is said by access lists in
FBOSS; here all RoCEv2 is.

Refused by name:

===================================  =========================================================
loadWeight + queueWeight under 100   the rest weighs a measure of the chip's own
ports with different weights         all ports follow one policy
primaryPathQualityThreshold,         all paths of a Clos are primary
alternatePathCost, alternatePathBias
minWidthForArsVirtualGroup,          groups are whole
maxArsVirtualGroups,
maxArsVirtualGroupWidth
dynamicSampleRate over 20,000 and    rate or interval: it may mean either
under 50,000
flowletSwitchingEnable false         the agent would not balance
unknown fields                       of a newer FBOSS
===================================  =========================================================

Source: FBOSS fboss/agent/switch_config.thrift, agent_config.thrift,
hw/sai/switch/SaiArsProfileManager.cpp and SaiArsManager.cpp, hw/sai/switch/npu/SaiPortManager.cpp
(weights), test/utils/LoadBalancerTestUtils.cpp (units on SAI and on a vendor's SDK); SAI
saiport.h (weights in percent).
"""

from __future__ import annotations

from fabric_emu.importers.document import Document, Section
from fabric_emu.importers.hardware import Adaptive, Found, Mode
from fabric_emu.model.mistakes import did_you_mean

DEFAULT = "FBOSS's default"

_I16, _I32 = 2**15 - 1, 2**31 - 1
_FLOWSETS = 2**15
"""Entries of the flow table of a chip."""

_BASE_MBPS = 10_000
"""Rate that SAI's scaling factors scale every port to."""

_EXPONENT_MAX = 15
_RATE_FROM, _INTERVAL_TO, _NS_FROM = 50_000, 20_000, 512
_MODES: dict[str, Mode] = {
    "FLOWLET_QUALITY": "flowlet-quality",
    "PER_PACKET_QUALITY": "packet-quality",
    "FIXED_ASSIGNMENT": "fixed",
    "PER_PACKET_RANDOM": "packet-random",
}
_MODES_BY_EITHER = _MODES | {str(number): mode for number, mode in enumerate(_MODES.values())}
_NO_EFFECT = {
    "maxLinks": "room in a table of the chip",
    "dynamicPhysicalQueueExponent": "of a measure without weight",
    "backupSwitchingMode": "there is room for every group",
    "sourcePortPrune": "no path leads back to where a packet comes from",
}
_PRIMARY = "no such field: all paths of a Clos are primary"
_WHOLE = "no such field: groups are whole"
_REFUSED = {
    "primaryPathQualityThreshold": _PRIMARY,
    "alternatePathCost": _PRIMARY,
    "alternatePathBias": _PRIMARY,
    "minWidthForArsVirtualGroup": _WHOLE,
    "maxArsVirtualGroups": _WHOLE,
    "maxArsVirtualGroupWidth": _WHOLE,
}


def read(document: Document) -> Found:
    """Return what an agent's configuration asks for.

    Raises:
        ConfigurationRejected: a value is wrong, or is one that the emulator cannot honour.
    """
    found = Found()
    root = document.root
    switch = root.section("sw") if "sw" in root else root
    arguments = root.section("defaultCommandLineArgs")
    if arguments and not arguments.flag("flowletSwitchingEnable", True):
        arguments.refuse("flowletSwitchingEnable", "true: the agent would not balance")
    settings = switch.section("flowletSwitchingConfig") if switch else None
    if switch and settings is None and not document.problems:
        switch.refuse("flowletSwitchingConfig", "a FlowletSwitchingConfig")
    if switch and settings:
        weights = _weights(switch, found)
        found.adaptive = _adaptive(settings, weights, found)
    document.finish()
    return found


def _adaptive(settings: Section, weights: tuple[int, int] | None, found: Found) -> Adaptive:
    mode = settings.choice("switchingMode", "flowlet-quality", _MODES_BY_EITHER)
    shortest = 1 if mode == "flowlet-quality" else 0
    if shortest and "inactivityIntervalUsecs" not in settings:
        settings.refuse("inactivityIntervalUsecs", "an interval in microseconds")
    sample_us, first_exponent = _sampling(settings)
    load_mbps = _range(settings, "dynamicEgress", _I32)
    keys = {
        "mode": "switchingMode",
        "idle_us": "inactivityIntervalUsecs",
        "flows": "flowletTableSize",
        "sample_us": "dynamicSampleRate",
        "load_samples": "dynamicEgressLoadExponent",
        "queue_samples": "dynamicQueueExponent",
        "load_range": "dynamicEgressMaxThresholdBytes",
        "queue_range": "dynamicQueueMaxThresholdBytes",
    }
    for name, key in keys.items():
        found.note(name, settings, key, DEFAULT)
    adaptive = Adaptive(
        mode=mode,
        idle_us=settings.integer("inactivityIntervalUsecs", shortest, shortest, _I16),
        flows=settings.integer("flowletTableSize", 4096, 1, _FLOWSETS),
        sample_us=sample_us,
        load_samples=_samples(settings, "dynamicEgressLoadExponent", first_exponent),
        queue_samples=_samples(settings, "dynamicQueueExponent", first_exponent),
        load_weight=weights[0] if weights else None,
        queue_weight=weights[1] if weights else None,
        load_range=(load_mbps[0] / _BASE_MBPS, load_mbps[1] / _BASE_MBPS) if load_mbps else None,
        queue_range=_range(settings, "dynamicQueue", _I32),
    )
    for key, why in _NO_EFFECT.items():
        if key in settings:
            found.remarks.append(f"{settings.path(key)}: {why}")
    settings.integer("maxLinks", 0, 0, _I16)
    settings.integer("dynamicPhysicalQueueExponent", 0, 0, _EXPONENT_MAX)
    settings.choice("backupSwitchingMode", "fixed", _MODES_BY_EITHER)
    settings.flag("sourcePortPrune", False)
    settings.refuse_others(_REFUSED)
    return adaptive


def _sampling(settings: Section) -> tuple[float | None, int]:
    """Return the interval in microseconds, and from which number exponents count."""
    rate = settings.integer("dynamicSampleRate", 0, 0, _I32)
    if rate == 0:
        return None, 0
    if rate >= _RATE_FROM:
        return 1e6 / rate, 0
    if rate > _INTERVAL_TO:
        settings.refuse(
            "dynamicSampleRate",
            f"{_RATE_FROM:,} a second or more, or an interval of at most {_INTERVAL_TO:,} ns",
        )
    return (rate / 1e3 if rate >= _NS_FROM else float(rate)), 1


def _samples(settings: Section, key: str, first: int) -> int:
    """Return the samples that an average reaches back over."""
    return 1 << max(settings.integer(key, 0, 0, _EXPONENT_MAX) - first, 0)


def _range(settings: Section, measure: str, high: int) -> tuple[int, int] | None:
    """Return the two thresholds of a measure; none when neither is set."""
    low_key, high_key = (f"{measure}{end}ThresholdBytes" for end in ("Min", "Max"))
    low = settings.integer(low_key, 0, 0, high)
    top = settings.integer(high_key, 0, 0, high)
    if low == top == 0:
        return None
    if low >= top:
        settings.refuse(high_key, f"more than {low_key}, which is {low:,}")
    return low, top


def _weights(switch: Section, found: Found) -> tuple[int, int] | None:
    """Return the weights of load and queue that the ports have."""
    profiles = switch.sections("portFlowletConfigs")
    used: dict[str, Section] = {}
    for port in switch.items("ports"):
        name = port.text("flowletConfigName")
        if name is not None and name not in profiles:
            near = did_you_mean(name[:60], profiles)
            port.refuse("flowletConfigName", "a name among portFlowletConfigs", near)
        elif name is not None:
            used[name] = profiles[name]
    first: tuple[int, int, int] | None = None
    for profile in (used or profiles).values():
        load = profile.integer("loadWeight", 0, 0, 100)
        queue = profile.integer("queueWeight", 0, 0, 100)
        factor = profile.integer("scalingFactor", 0, 0, _I16)
        profile.refuse_others()
        if load + queue != 100:
            profile.refuse("queueWeight", f"{100 - load}: with loadWeight {load}, 100 in all")
        if first is None:
            first = load, queue, factor
            found.note("load_weight", profile, "loadWeight", DEFAULT)
            found.note("queue_weight", profile, "queueWeight", DEFAULT)
            if "scalingFactor" in profile:
                found.remarks.append(f"{profile.path('scalingFactor')}: all ports have one rate")
        elif first != (load, queue, factor):
            profile.refuse(None, "what the other ports have: all follow one policy")
    return first[:2] if first else None
