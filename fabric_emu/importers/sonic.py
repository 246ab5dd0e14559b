"""Reading a SONiC ``config_db.json``: adaptive routing (ARS) and packet trimming.

==================================  ==========================================================
CONFIG_DB                           here
==================================  ==========================================================
ARS_OBJECT assign_mode              mode; per_flowlet_quality unless given
ARS_OBJECT flowlet_idle_time        idle time, 2 to 2047 microseconds; 256 unless given
ARS_OBJECT max_flows                flow table; 512 unless given
ARS_PROFILE max_flows               the same, the smaller of the two; 0 is no limit
ARS_PROFILE sampling_interval       sampling interval in microseconds; 16 unless given
ARS_PROFILE past_load_weight        samples the average of the load reaches back over; 16
ARS_PROFILE future_load_weight      the same of the queue; 16
SWITCH_TRIMMING GLOBAL size         what is left of a trimmed packet; 128 bytes
SWITCH_TRIMMING GLOBAL dscp_value   DSCP of trimmed packets
BUFFER_PROFILE                      trimming is on when a profile's packet_discard_action is trim
==================================  ==========================================================

Which ports and next hops take part (ARS_INTERFACES, ARS_NEXTHOPS, selector modes) is the
topology's to say here: every uplink does. These tables are read for the object they name, and
checked. The two weights are those of the moving averages, as SAI has it, not of the two measures
against each other: SONiC has no setting for that. Both spellings of the tables are taken
(ARS_INTERFACES of the design, ARS_INTERFACE of the YANG model). All other tables are left alone.

Refused by name:

==================================  ==========================================================
past_, future_load_min_, max_value  other than 0: their unit is each chip's own
current_load_min_, max_value        other than 0: the emulator measures one queue per port
ipv4_enable, ipv6_enable            false: both families are balanced
role alternative_path,              all paths of a Clos are primary; with no alternatives,
alternative_path_members            primary_path_threshold and alternative_path_cost do nothing
different scaling_factor            all links between switches have one rate
different ars_obj_name              all switches follow one policy
ARS_PORTCHANNELS                    there are no port channels
ACL_RULE DISABLE_ARS_FORWARDING,    there are no access lists
PACKET_ACTION DISABLE_TRIM
dscp_value from-tc                  there is no map from traffic class to DSCP
queue_index dynamic                 trimmed packets go to the control class, whatever their DSCP
other ARS tables, unknown fields    an older or a vendor's schema
==================================  ==========================================================

Source: SONiC doc/ARS/Local_ARS_HLD.md revision 1.4, sonic-ars.yang, sonic-trimming.yang,
doc/packet_trimming/packet-trimming-design.md; OCP SAI saiars.h and saiarsprofile.h.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabric_emu.importers.document import Document, Section
from fabric_emu.importers.hardware import Adaptive, Found, Mode, Trim
from fabric_emu.model.mistakes import did_you_mean

DEFAULT = "SONiC's default"

_U32 = 2**32 - 1
_MODES: dict[str, Mode] = {
    "per_flowlet_quality": "flowlet-quality",
    "per_packet_quality": "packet-quality",
    "per_packet": "packet-quality",
}
_SELECTORS = {word: word for word in ("interface", "nexthop", "global")}
_SPELLINGS = {
    "ARS_INTERFACES": "ARS_INTERFACE",
    "ARS_NEXTHOPS": "ARS_NEXTHOP",
    "ARS_PORTCHANNELS": "ARS_PORTCHANNEL",
}
_TABLES = {"ARS_PROFILE", "ARS_OBJECT", *_SPELLINGS, *_SPELLINGS.values()}
_CHIPS_UNIT = "0 or nothing: the unit of this range is each chip's own"
_ONE_QUEUE = "0 or nothing: the emulator measures one queue per port"
_ONLY_ZERO = {
    "past_load_min_value": _CHIPS_UNIT,
    "past_load_max_value": _CHIPS_UNIT,
    "future_load_min_value": _CHIPS_UNIT,
    "future_load_max_value": _CHIPS_UNIT,
    "current_load_min_value": _ONE_QUEUE,
    "current_load_max_value": _ONE_QUEUE,
}


def read(document: Document) -> Found:
    """Return what a ``config_db.json`` configures.

    Raises:
        ConfigurationRejected: a value is wrong, or is one that the emulator cannot honour.
    """
    found = Found()
    root = document.root
    _read_adaptive(root, found)
    _read_trimming(root, found)
    _refuse_access_lists(root)
    document.finish()
    if found.adaptive is None and found.trim is None:
        document.refuse((), "neither", "ARS_OBJECT, or SWITCH_TRIMMING and a profile that trims")
        document.finish()
    return found


def _read_adaptive(root: Section, found: Found) -> None:
    profiles = root.sections("ARS_PROFILE")
    objects = root.sections("ARS_OBJECT")
    interfaces = _table(root, "ARS_INTERFACES")
    next_hops = _table(root, "ARS_NEXTHOPS")
    for name in root:
        if name.startswith("ARS_PORTCHANNEL") and root.values[name] != {}:
            root.refuse(name, "no such table: there are no port channels")
        elif name.startswith("ARS") and name not in _TABLES:
            root.refuse(name, "no such table: it is of an older or a vendor's schema")
    if len(profiles) > 1:
        root.refuse("ARS_PROFILE", "one profile")
    profile = next(iter(profiles.values()), None)
    selector = "interface"
    if profile:
        selector = profile.choice("ars_nhg_path_selector_mode", selector, _SELECTORS)
    users = {"interface": interfaces, "nexthop": next_hops, "global": {}}[selector]
    chosen = _object_in_use(root, profile, objects, users)
    _check_where(interfaces, next_hops, objects, found)
    if chosen:
        _read_object(chosen, profile, found)
    elif profile:
        root.refuse("ARS_OBJECT", "an object beside ARS_PROFILE")


def _table(root: Section, name: str) -> dict[str, Section]:
    """Return a table under either of its spellings."""
    other = _SPELLINGS[name]
    if name in root and other in root:
        root.refuse(other, f"either {name} or {other}")
    return root.sections(name) or root.sections(other)


def _object_in_use(
    root: Section, profile: Section | None, objects: dict[str, Section], users: dict[str, Section]
) -> Section | None:
    """Return the one object that the interfaces or next hops which take part refer to."""
    default = profile.text("default_ars_object") if profile else None
    if profile and default is not None and default not in objects:
        profile.refuse("default_ars_object", *_one_of(objects))
    names: dict[str, Section] = {}
    for user in users.values():
        name = user.text("ars_obj_name") or default
        if name is not None:
            names.setdefault(name, user)
    if not users and default is not None:
        names[default] = root
    if len(names) > 1:
        first, (_, user) = next(iter(names)), list(names.items())[1]
        user.refuse("ars_obj_name", f"{first} as elsewhere: all switches follow one policy")
    if names:
        return objects.get(next(iter(names)))
    if len(objects) > 1:
        root.refuse("ARS_OBJECT", "one object, or a default_ars_object that names one of them")
    return next(iter(objects.values()), None)


def _one_of(objects: Iterable[str], name: str = "") -> tuple[str, str]:
    return "the name of an ARS_OBJECT", did_you_mean(name[:60], list(objects))


def _check_where(
    interfaces: dict[str, Section],
    next_hops: dict[str, Section],
    objects: dict[str, Section],
    found: Found,
) -> None:
    """Check the tables that say which ports and next hops take part."""
    factors = set()
    for entry in interfaces.values():
        factors.add(entry.integer("scaling_factor", 0, 0, _U32))
        if len(factors) == 2:
            entry.refuse("scaling_factor", "the same for all: links have one rate")
    for entry in next_hops.values():
        role = entry.choice("role", True, {"primary_path": True, "alternative_path": False})
        if not role:
            entry.refuse("role", "primary_path: all paths of a Clos are")
    for table, what in ((interfaces, "interfaces"), (next_hops, "next hops")):
        for entry in table.values():
            name = entry.text("ars_obj_name")
            if name is not None and name not in objects:
                entry.refuse("ars_obj_name", *_one_of(objects, name))
            entry.refuse_others("a field of this table")
        if table:
            where = next(iter(table.values())).steps[0]
            found.remarks.append(f"{where}: {len(table)} {what}; here every uplink takes part")


def _read_object(chosen: Section, profile: Section | None, found: Found) -> None:
    for key in ("primary_path_threshold", "alternative_path_cost"):
        chosen.integer(key, 0, 0, _U32)
        if key in chosen:
            found.remarks.append(f"{chosen.path(key)}: there are no alternative paths")
    flows = chosen.integer("max_flows", 512, 1, _U32)
    found.note("flows", chosen, "max_flows", DEFAULT)
    measures: dict[str, int] = {"sample_us": 16, "load_samples": 16, "queue_samples": 16}
    found.origins |= dict.fromkeys(measures, DEFAULT)
    if profile:
        limit = profile.integer("max_flows", 0, 0, _U32)
        if 0 < limit < flows:
            flows = limit
            found.note("flows", profile, "max_flows", DEFAULT)
        measures = {
            "sample_us": profile.integer("sampling_interval", 16, 1, 1_000_000),
            "load_samples": profile.integer("past_load_weight", 16, 0, 255),
            "queue_samples": profile.integer("future_load_weight", 16, 0, 255),
        }
        found.note("sample_us", profile, "sampling_interval", DEFAULT)
        found.note("load_samples", profile, "past_load_weight", DEFAULT)
        found.note("queue_samples", profile, "future_load_weight", DEFAULT)
        _check_profile(profile, found)
    found.adaptive = Adaptive(
        mode=chosen.choice("assign_mode", "flowlet-quality", _MODES),
        idle_us=chosen.integer("flowlet_idle_time", 256, 2, 2047),
        flows=flows,
        **measures,
    )
    found.note("mode", chosen, "assign_mode", DEFAULT)
    found.note("idle_us", chosen, "flowlet_idle_time", DEFAULT)
    chosen.refuse_others("a field of ARS_OBJECT")


def _check_profile(profile: Section, found: Found) -> None:
    """Check the fields that change nothing here, or must not."""
    profile.choice("algorithm", "ewma", {"ewma": "ewma"})
    profile.choice("ars_lag_path_selector_mode", "interface", {"interface": "", "global": ""})
    if "ars_lag_path_selector_mode" in profile:
        where = profile.path("ars_lag_path_selector_mode")
        found.remarks.append(f"{where}: there are no port channels")
    for key, expected in _ONLY_ZERO.items():
        if profile.integer(key, 0, 0, 65535):
            profile.refuse(key, expected)
    for key in ("ipv4_enable", "ipv6_enable"):
        if not profile.flag(key, True):
            profile.refuse(key, "true: both families are balanced")
    profile.refuse_others("a field of ARS_PROFILE")


def _read_trimming(root: Section, found: Found) -> None:
    actions = {"drop": False, "trim": True}
    trims = [
        profile
        for profile in root.sections("BUFFER_PROFILE").values()
        if profile.choice("packet_discard_action", False, actions)
    ]
    table = root.section("SWITCH_TRIMMING")
    settings = table.section("GLOBAL") if table else None
    if table:
        table.refuse_others("an entry of SWITCH_TRIMMING")
    if not trims:
        if settings:
            found.remarks.append(f"{settings.path()}: no BUFFER_PROFILE trims")
        return
    if not settings:
        trims[0].refuse("packet_discard_action", "SWITCH_TRIMMING GLOBAL beside it")
        return
    found.trim = Trim(
        size=settings.integer("size", 128, 1, _U32),
        dscp=_number(
            settings, "dscp_value", 63, "from-tc", "there is no map from traffic class to DSCP"
        ),
    )
    found.note("size", settings, "size", DEFAULT)
    found.note("dscp", settings, "dscp_value", DEFAULT)
    if "dscp_value" not in settings:
        settings.refuse("dscp_value", "a DSCP from 0 to 63")
    _number(settings, "queue_index", 255, "dynamic", "trimmed packets go to the control class")
    if "queue_index" in settings:
        found.remarks.append(f"{settings.path('queue_index')}: it is the control class here")
    settings.integer("tc_value", 0, 0, 255)
    if "tc_value" in settings:
        found.remarks.append(f"{settings.path('tc_value')}: there are no traffic classes")
    settings.refuse_others("a field of SWITCH_TRIMMING")
    found.remarks.append(f"{trims[0].path()} trims: here every queue for data does")


def _number(section: Section, key: str, high: int, word: str, why: str) -> int:
    """Return a number; the word that CONFIG_DB also takes is refused."""
    if key in section and section.values[key] == word:
        section.refuse(key, f"a whole number from 0 to {high}: {why}")
        return 0
    return section.integer(key, 0, 0, high)


def _refuse_access_lists(root: Section) -> None:
    for rule in root.sections("ACL_RULE").values():
        if rule.values.get("DISABLE_ARS_FORWARDING") in ("true", True):
            rule.refuse("DISABLE_ARS_FORWARDING", "no such rule: there are no access lists")
        if rule.values.get("PACKET_ACTION") == "DISABLE_TRIM":
            rule.refuse("PACKET_ACTION", "no such rule: there are no access lists")
