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
past_load_min_value,                other than 0: the unit of these ranges is each chip's own
past_load_max_value,
future_load_min_value,
future_load_max_value
current_load_min_value,             other than 0: the emulator measures one queue per port
current_load_max_value
ipv4_enable, ipv6_enable            false: both families are balanced
algorithm                           other than ewma
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
    for name in root:
        if name.startswith("ARS_PORTCHANNEL") and root.values[name] != {}:
            root.refuse(name, "no such table: there are no port channels")
        elif name.startswith("ARS") and name not in _TABLES:
            root.refuse(name, "no such table: it is of an older or a vendor's schema")
    if len(profiles) > 1:
        root.refuse("ARS_PROFILE", "one profile")
    profile = next(iter(profiles.values()), None)
    selector, default = "interface", None
    if profile:
        selector = profile.choice("ars_nhg_path_selector_mode", selector, _SELECTORS)
        default = _named_object(profile, "default_ars_object", objects)
    interfaces = _read_interfaces(_table(root, "ARS_INTERFACES"), objects, found)
    next_hops = _read_next_hops(_table(root, "ARS_NEXTHOPS"), objects, found)
    users = {"interface": interfaces, "nexthop": next_hops, "global": []}[selector]
    chosen = _object_in_use(root, objects, default, users)
    if chosen:
        _read_object(chosen, profile, found)
    elif profile and not objects:
        root.refuse("ARS_OBJECT", "an object beside ARS_PROFILE")


def _table(root: Section, name: str) -> list[Section]:
    """Return the entries of a table under either of its spellings."""
    other = _SPELLINGS[name]
    if name in root and other in root:
        root.refuse(other, f"either {name} or {other}")
    return list((root.sections(name) or root.sections(other)).values())


def _named_object(section: Section, key: str, objects: dict[str, Section]) -> str | None:
    name = section.text(key)
    if name is not None and name not in objects:
        section.refuse(key, "the name of an ARS_OBJECT", did_you_mean(name[:60], objects))
    return name


User = tuple[Section, str | None]
"""An interface or next hop that takes part, and the object that it names."""


def _read_interfaces(table: list[Section], objects: dict[str, Section], found: Found) -> list[User]:
    factors: set[int] = set()
    for entry in table:
        before = len(factors)
        factors.add(entry.integer("scaling_factor", 0, 0, _U32))
        if before == 1 and len(factors) == 2:
            entry.refuse("scaling_factor", "the same for all: links have one rate")
    return _users(table, objects, found)


def _read_next_hops(table: list[Section], objects: dict[str, Section], found: Found) -> list[User]:
    for entry in table:
        if not entry.choice("role", True, {"primary_path": True, "alternative_path": False}):
            entry.refuse("role", "primary_path: all paths of a Clos are")
    return _users(table, objects, found)


def _users(table: list[Section], objects: dict[str, Section], found: Found) -> list[User]:
    users = [(entry, _named_object(entry, "ars_obj_name", objects)) for entry in table]
    for entry in table:
        entry.refuse_others()
    if table:
        found.remarks.append(f"{table[0].steps[0]}, {len(table)} in all: every uplink takes part")
    return users


def _object_in_use(
    root: Section, objects: dict[str, Section], default: str | None, users: list[User]
) -> Section | None:
    """Return the one object that all who take part refer to."""
    names = [name or default for _, name in users] or [default]
    for (user, _), name in zip(users, names, strict=False):
        if name != names[0]:
            user.refuse("ars_obj_name", f"{names[0]} as elsewhere: all switches follow one policy")
            break
    if names[0] in objects:
        return objects[names[0]]
    if names[0] is None and len(objects) > 1:
        root.refuse("ARS_OBJECT", "one object, or a default_ars_object that names one of them")
    return next(iter(objects.values()), None)


def _read_object(chosen: Section, profile: Section | None, found: Found) -> None:
    for key in ("primary_path_threshold", "alternative_path_cost"):
        chosen.integer(key, 0, 0, _U32)
        if key in chosen:
            found.remarks.append(f"{chosen.path(key)}: there are no alternative paths")
    flows = chosen.integer("max_flows", 512, 1, _U32)
    found.note("flows", chosen, "max_flows", DEFAULT)
    sample_us = load_samples = queue_samples = 16
    found.origins |= dict.fromkeys(("sample_us", "load_samples", "queue_samples"), DEFAULT)
    if profile:
        limit = profile.integer("max_flows", 0, 0, _U32)
        if 0 < limit < flows:
            flows = limit
            found.note("flows", profile, "max_flows", DEFAULT)
        sample_us = profile.integer("sampling_interval", 16, 1, 1_000_000)
        load_samples = max(profile.integer("past_load_weight", 16, 0, 255), 1)
        queue_samples = max(profile.integer("future_load_weight", 16, 0, 255), 1)
        found.note("sample_us", profile, "sampling_interval", DEFAULT)
        found.note("load_samples", profile, "past_load_weight", DEFAULT)
        found.note("queue_samples", profile, "future_load_weight", DEFAULT)
        _check_profile(profile, found)
    found.adaptive = Adaptive(
        mode=chosen.choice("assign_mode", "flowlet-quality", _MODES),
        idle_us=chosen.integer("flowlet_idle_time", 256, 2, 2047),
        flows=flows,
        sample_us=sample_us,
        load_samples=load_samples,
        queue_samples=queue_samples,
    )
    found.note("mode", chosen, "assign_mode", DEFAULT)
    found.note("idle_us", chosen, "flowlet_idle_time", DEFAULT)
    chosen.refuse_others()


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
    profile.refuse_others()


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
        table.refuse_others()
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
    settings.refuse_others()
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
