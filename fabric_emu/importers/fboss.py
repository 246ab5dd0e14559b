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
dynamicEgressMin-, MaxThreshold-     range of the load's quality bands in Mb/s of a port scaled
Bytes                                to 10 Gb/s, so 10,000 is the port's rate
dynamicQueueMin-, MaxThresholdBytes  range of the queue's quality bands in bytes
portFlowletConfigs loadWeight,       weights of load and queue in a port's quality, percent
queueWeight
===================================  =========================================================

Read without effect: scalingFactor (it evens out ports of different rates; here all have one),
maxLinks (room in a table), backupSwitchingMode (for more groups than a chip has room for),
dynamicPhysicalQueueExponent (of a measure whose weight is what the two weights leave of 100, so
none). Which packets are balanced is said by access lists in FBOSS; here all RoCEv2 is.

Refused by name:

===================================  =========================================================
loadWeight + queueWeight under 100   the rest weighs a measure of the chip's own
ports with different weights         all ports follow one policy
primaryPathQualityThreshold,         all paths of a Clos are primary
alternatePathCost, -Bias
minWidthForArsVirtualGroup,          groups are whole
maxArsVirtualGroups, -GroupWidth
sourcePortPrune                      no path leads back to where a packet comes from
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

_RATE_FROM, _INTERVAL_TO, _NS_FROM = 50_000, 20_000, 512
_MODES: dict[str, Mode] = {
    "FLOWLET_QUALITY": "flowlet-quality",
    "PER_PACKET_QUALITY": "packet-quality",
    "FIXED_ASSIGNMENT": "fixed",
    "PER_PACKET_RANDOM": "packet-random",
}
_MODES_BY_EITHER = _MODES | {str(number): mode for number, mode in enumerate(_MODES.values())}
_PRIMARY = "no such field: all paths of a Clos are primary"
_WHOLE = "no such field: groups are whole"
_REFUSED = {
    "primaryPathQualityThreshold": _PRIMARY,
    "alternatePathCost": _PRIMARY,
    "alternatePathBias": _PRIMARY,
    "minWidthForArsVirtualGroup": _WHOLE,
    "maxArsVirtualGroups": _WHOLE,
    "maxArsVirtualGroupWidth": _WHOLE,
    "sourcePortPrune": "no such field: no path leads back to where a packet comes from",
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


def _adaptive(
    settings: Section, weights: tuple[int, int] | None, found: Found
) -> Adaptive:
    mode = settings.choice("switchingMode", "flowlet-quality", _MODES_BY_EITHER)
    found.note("mode", settings, "switchingMode", DEFAULT)
    first = 1 if mode == "flowlet-quality" else 0
    if first and "inactivityIntervalUsecs" not in settings:
        settings.refuse("inactivityIntervalUsecs", "an interval in microseconds")
    idle_us = settings.integer("inactivityIntervalUsecs", 0, first, _I16)
    found.note("idle_us", settings, "inactivityIntervalUsecs", DEFAULT)
    flows = settings.integer("flowletTableSize", 4096, 1, _FLOWSETS)
    found.note("flows", settings, "flowletTableSize", DEFAULT)
    sample_us, sai = _sampling(settings)
    for key in ("maxLinks", "dynamicPhysicalQueueExponent"):
        settings.integer(key, 0, 0, _I16)
    settings.choice("backupSwitchingMode", "fixed", _MODES_BY_EITHER)
    for key, expected in _REFUSED.items():
        if key in settings:
            settings.refuse(key, expected)
    settings.refuse_others("a field of FlowletSwitchingConfig")
    return Adaptive(mode, idle_us, flows)
