"""Reading an FBOSS agent's configuration: flowlet switching (DLB).

Taken are an agent's file, with the switch under ``sw``, and the switch's part alone. Enumerations
may be names or numbers.

===================================  =========================================================
``flowletSwitchingConfig``           here
===================================  =========================================================
switchingMode                        mode; flowlet-quality unless given
inactivityIntervalUsecs              flowlet_gap
flowletTableSize                     max_flows; 4096 unless given
dynamicSampleRate                    sampling: a rate of 50,000 a second or more (agents on a
                                     vendor's SDK), or an interval of up to 20,000 ns, and of
                                     microseconds below 512 (agents on SAI)
dynamicEgressLoadExponent            exponent; one less on SAI, where they count from 1
dynamicEgressMinThresholdBytes,      load_min and load_max; Mb/s (whatever they are called) of a
dynamicEgressMaxThresholdBytes       port scaled to 10 Gb/s: 10,000 is its rate
dynamicQueueMinThresholdBytes,       queue_min and queue_max
dynamicQueueMaxThresholdBytes
portFlowletConfigs loadWeight,       load_weight and queue_weight, percent
queueWeight
===================================  =========================================================

Times are longer here by as much as the fabric is slower.

Read without effect: scalingFactor (it evens out ports of different rates; here all have one),
maxLinks (room in a table), backupSwitchingMode (for more groups than a chip has room for),
sourcePortPrune (no path leads back), dynamicPhysicalQueueExponent (of a measure whose weight is
what the two weights leave of 100, so none). Which packets are balanced is said by access lists in
FBOSS; here all RoCEv2 is.

Refused by name:

===================================  =========================================================
dynamicQueueExponent                 over 0 (1 on SAI): the queue counts as it is, not as an
                                     average
loadWeight + queueWeight under 100   the rest weighs a measure of the chip's own
ports with different                 all ports follow one policy
portFlowletConfigs
primaryPathQualityThreshold,         all paths of a Clos are primary
alternatePathCost, alternatePathBias
minWidthForArsVirtualGroup,          groups are whole
maxArsVirtualGroups,
maxArsVirtualGroupWidth
dynamicSampleRate over 20,000 and    it may be a rate or an interval
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
from fabric_emu.importers.found import Found, Setting
from fabric_emu.model.mistakes import did_you_mean

DEFAULT = "FBOSS's default"

_I16, _I32 = 2**15 - 1, 2**31 - 1
_FLOWSETS = 2**15
"""Entries of a chip's flow table."""

EXPONENT_MAX = 7
"""Of the load's average, here."""

_BASE_MBPS = 10_000
"""Rate that SAI's scaling factors scale every port to."""

_RATE_FROM, _INTERVAL_TO, _NS_FROM = 50_000, 20_000, 512
_FLOWLETS = "flowlet-quality"
_MODES = {
    "FLOWLET_QUALITY": _FLOWLETS,
    "PER_PACKET_QUALITY": "per-packet-quality",
    "FIXED_ASSIGNMENT": "fixed",
    "PER_PACKET_RANDOM": "per-packet-random",
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
        arguments.cannot("flowletSwitchingEnable", "true: the agent would not balance")
    settings = switch.section("flowletSwitchingConfig") if switch else None
    if switch and settings is None and not document.problems:
        switch.refuse("flowletSwitchingConfig", "a FlowletSwitchingConfig")
    if switch and settings:
        _read_settings(settings, found)
        _read_weights(switch, found)
    document.finish()
    return found


def _read_settings(settings: Section, found: Found) -> None:
    def take(name: str, key: str, value: int | float | str) -> None:
        found.policy[name] = Setting.of(settings, key, value, DEFAULT)

    mode = settings.choice("switchingMode", _FLOWLETS, _MODES_BY_EITHER)
    take("mode", "switchingMode", mode)
    shortest = 1 if mode == _FLOWLETS else 0
    idle_us = settings.integer("inactivityIntervalUsecs", shortest, shortest, _I16)
    if mode == _FLOWLETS:
        if "inactivityIntervalUsecs" not in settings:
            settings.refuse("inactivityIntervalUsecs", "an interval in microseconds")
        take("flowlet_gap", "inactivityIntervalUsecs", idle_us * 1e-6)
    elif "inactivityIntervalUsecs" in settings:
        found.remarks.append(f"{settings.path('inactivityIntervalUsecs')}: there are no flowlets")
    take("max_flows", "flowletTableSize", settings.integer("flowletTableSize", 4096, 1, _FLOWSETS))
    sampling_s, first = _sampling(settings)
    if sampling_s:
        take("sampling", "dynamicSampleRate", sampling_s)
    exponent = settings.integer("dynamicEgressLoadExponent", first, 0, first + EXPONENT_MAX)
    take("exponent", "dynamicEgressLoadExponent", max(exponent - first, 0))
    if settings.integer("dynamicQueueExponent", 0, 0, _I16) > first:
        settings.cannot(
            "dynamicQueueExponent", f"at most {first}: the queue counts as it is, not its average"
        )
    low, high = _range(settings, "dynamicEgress")
    if high:
        take("load_min", "dynamicEgressMinThresholdBytes", low / _BASE_MBPS)
        take("load_max", "dynamicEgressMaxThresholdBytes", high / _BASE_MBPS)
    low, high = _range(settings, "dynamicQueue")
    if low:
        take("queue_min", "dynamicQueueMinThresholdBytes", low)
    if high:
        take("queue_max", "dynamicQueueMaxThresholdBytes", high)
    for key, why in _NO_EFFECT.items():
        if key in settings:
            found.remarks.append(f"{settings.path(key)}: {why}")
    for key in ("maxLinks", "dynamicPhysicalQueueExponent"):
        settings.integer(key, 0, 0, _I16)
    settings.choice("backupSwitchingMode", "", _MODES_BY_EITHER)
    settings.flag("sourcePortPrune", False)
    settings.refuse_others(_REFUSED)


def _sampling(settings: Section) -> tuple[float | None, int]:
    """Return the interval in seconds, and from which number exponents count."""
    rate = settings.integer("dynamicSampleRate", 0, 0, _I32)
    if rate == 0:
        return None, 0
    if rate >= _RATE_FROM:
        return 1 / rate, 0
    if rate > _INTERVAL_TO:
        settings.refuse(
            "dynamicSampleRate",
            f"{_RATE_FROM:,} a second or more, or an interval of at most {_INTERVAL_TO:,} ns",
        )
    return rate * (1e-9 if rate >= _NS_FROM else 1e-6), 1


def _range(settings: Section, measure: str) -> tuple[int, int]:
    """Return the two thresholds of a measure; zeros when neither is set."""
    low_key, high_key = (f"{measure}{end}ThresholdBytes" for end in ("Min", "Max"))
    low, high = settings.integer(low_key, 0, 0, _I32), settings.integer(high_key, 0, 0, _I32)
    if low >= high > 0 or low > 0 == high:
        settings.refuse(high_key, f"more than {low_key}, which is {low:,}")
    return low, high


def _read_weights(switch: Section, found: Found) -> None:
    """Read the weights of load and queue that the ports have."""
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
        load, queue = _two_weights(profile)
        factor = profile.integer("scalingFactor", 0, 0, _I16)
        profile.refuse_others()
        if first is None:
            first = load, queue, factor
            if "scalingFactor" in profile:
                found.remarks.append(f"{profile.path('scalingFactor')}: all ports have one rate")
            if load + queue:
                of_rest = "what the other weight leaves of 100"
                found.policy["load_weight"] = Setting.of(profile, "loadWeight", load, of_rest)
                found.policy["queue_weight"] = Setting.of(profile, "queueWeight", queue, of_rest)
        elif first != (load, queue, factor):
            profile.refuse(None, "what the other ports have: all follow one policy")


def _two_weights(profile: Section) -> tuple[int, int]:
    """Return the weights of load and queue; a missing one is what the other leaves of 100."""
    absent = -1
    load = profile.integer("loadWeight", absent, 0, 100)
    queue = profile.integer("queueWeight", absent, 0, 100)
    if load == queue == absent:
        return 0, 0
    load = 100 - queue if load == absent else load
    queue = 100 - load if queue == absent else queue
    if load + queue != 100:
        profile.cannot("queueWeight", f"{100 - load}: with loadWeight {load}, 100 in all")
    return load, queue
