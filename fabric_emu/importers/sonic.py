"""Reading a SONiC ``config_db.json``: adaptive routing (ARS) and packet trimming.

==================================  ==========================================================
CONFIG_DB                           here
==================================  ==========================================================
ARS_OBJECT assign_mode              mode: flowlet-quality (unless given), per-packet-quality
ARS_OBJECT flowlet_idle_time        flowlet_gap, 2 to 2047 microseconds; 256 unless given
ARS_OBJECT max_flows                max_flows; 512 unless given
ARS_PROFILE max_flows               the same, the smaller of the two; 0 is no limit
ARS_PROFILE sampling_interval       sampling, microseconds; 16 unless given
ARS_PROFILE past_load_weight 2^e    exponent e; 16 unless given, so 4; 0 as 1
SWITCH_TRIMMING GLOBAL size         trim_to; 128 bytes unless given
SWITCH_TRIMMING GLOBAL dscp_value   trimmed and trimmed_last_hop
BUFFER_PROFILE                      trimming is on when a profile's packet_discard_action is trim
==================================  ==========================================================

Times are longer here by as much as the fabric is slower. Which ports and next hops take part
(ARS_INTERFACES, ARS_NEXTHOPS, selector modes) is the topology's to say: every uplink does. These
tables are read for the object they name, and checked. Both spellings are taken (ARS_INTERFACES of
the design, ARS_INTERFACE of the YANG model). All other tables are left alone.

The profile's weights are those of the moving averages, as in SAI (the larger, the less a sample
counts), not of the two measures against each other; for that SONiC has no setting.

Fidelity: SAI does not say what a weight is exactly; an average over as many samples is our
reading. The queue counts as it is even where future_load_weight is left out, whose default is 16.

Refused by name:

==================================  ==========================================================
past_load_weight                    not a power of two up to 128
future_load_weight                  over 1: the queue counts as it is, not as an average
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
dscp_value 0, 10, 48; size          what trimmed packets would be taken for; over 1500
queue_index dynamic                 trimmed packets go to the control class, whatever their DSCP
other ARS tables, unknown fields    an older or a vendor's schema
==================================  ==========================================================

Source: SONiC doc/ARS/Local_ARS_HLD.md revision 1.4, sonic-ars.yang, sonic-trimming.yang,
doc/packet_trimming/packet-trimming-design.md; OCP SAI saiars.h and saiarsprofile.h.
"""

from __future__ import annotations

from fabric_emu.importers.document import Document, Section
from fabric_emu.importers.found import Found, Setting
from fabric_emu.model.mistakes import did_you_mean
from fabric_emu.model.policies import MAX_FLOWS

DEFAULT = "SONiC's default"

_U32 = 2**32 - 1
_FLOWLETS = "flowlet-quality"
_MODES = {
    "per_flowlet_quality": _FLOWLETS,
    "per_packet_quality": "per-packet-quality",
    "per_packet": "per-packet-quality",
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
_POWERS = [1 << exponent for exponent in range(8)]
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
    if not found.policy and not found.trimming:
        document.refuse((), "neither", "ARS_OBJECT, or SWITCH_TRIMMING and a profile that trims")
        document.finish()
    return found


def _read_adaptive(root: Section, found: Found) -> None:
    profiles = root.sections("ARS_PROFILE")
    objects = root.sections("ARS_OBJECT")
    for name in root:
        if name.startswith("ARS_PORTCHANNEL") and root.values[name] != {}:
            root.cannot(name, "no such table: there are no port channels")
        elif name.startswith("ARS") and name not in _TABLES:
            root.cannot(name, "no such table: it is of an older or a vendor's schema")
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
            entry.cannot("scaling_factor", "the same for all: links have one rate")
    return _users(table, objects, found)


def _read_next_hops(table: list[Section], objects: dict[str, Section], found: Found) -> list[User]:
    for entry in table:
        if not entry.choice("role", True, {"primary_path": True, "alternative_path": False}):
            entry.cannot("role", "primary_path: all paths of a Clos are")
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
            user.cannot("ars_obj_name", f"{names[0]} as elsewhere: all switches follow one policy")
            break
    if names[0] in objects:
        return objects[names[0]]
    if names[0] is None and len(objects) > 1:
        root.refuse("ARS_OBJECT", "one object, or a default_ars_object that names one of them")
    return next(iter(objects.values()), None)


def _read_object(chosen: Section, profile: Section | None, found: Found) -> None:
    policy = found.policy
    mode = chosen.choice("assign_mode", _FLOWLETS, _MODES)
    policy["mode"] = Setting.of(chosen, "assign_mode", mode, DEFAULT)
    idle_us = chosen.integer("flowlet_idle_time", 256, 2, 2047)
    if mode == _FLOWLETS:
        policy["flowlet_gap"] = Setting.of(chosen, "flowlet_idle_time", idle_us * 1e-6, DEFAULT)
    elif "flowlet_idle_time" in chosen:
        found.remarks.append(f"{chosen.path('flowlet_idle_time')}: there are no flowlets")
    flows = chosen.integer("max_flows", 512, 1, MAX_FLOWS)
    policy["max_flows"] = Setting.of(chosen, "max_flows", flows, DEFAULT)
    for key in ("primary_path_threshold", "alternative_path_cost"):
        chosen.integer(key, 0, 0, _U32)
        if key in chosen:
            found.remarks.append(f"{chosen.path(key)}: there are no alternative paths")
    chosen.refuse_others()
    profile = profile or Section(chosen.document, (), {})
    limit = profile.integer("max_flows", 0, 0, _U32)
    if 0 < limit < flows:
        policy["max_flows"] = Setting.of(profile, "max_flows", limit, DEFAULT)
    interval_us = profile.integer("sampling_interval", 16, 1, 1_000_000)
    policy["sampling"] = Setting.of(profile, "sampling_interval", interval_us * 1e-6, DEFAULT)
    weight = max(profile.integer("past_load_weight", 16, 0, 255), 1)
    if weight not in _POWERS:
        profile.cannot("past_load_weight", f"one of {', '.join(map(str, _POWERS))}")
    exponent = weight.bit_length() - 1
    policy["exponent"] = Setting.of(profile, "past_load_weight", exponent, DEFAULT)
    if profile.integer("future_load_weight", 0, 0, 255) > 1:
        profile.cannot("future_load_weight", "0 or 1: the queue counts as it is, not its average")
    _check_profile(profile, found)


def _check_profile(profile: Section, found: Found) -> None:
    """Check the fields that change nothing here, or must not."""
    profile.choice("algorithm", "ewma", {"ewma": "ewma"})
    profile.choice("ars_lag_path_selector_mode", "interface", {"interface": "", "global": ""})
    if "ars_lag_path_selector_mode" in profile:
        where = profile.path("ars_lag_path_selector_mode")
        found.remarks.append(f"{where}: there are no port channels")
    for key, expected in _ONLY_ZERO.items():
        if profile.integer(key, 0, 0, 65535):
            profile.cannot(key, expected)
    for key in ("ipv4_enable", "ipv6_enable"):
        if not profile.flag(key, True):
            profile.cannot(key, "true: both families are balanced")
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
    size = settings.integer("size", 128, 1, _U32)
    found.trimming["trim_to"] = Setting.of(settings, "size", size, DEFAULT)
    dscp = _number(settings, "dscp_value", 63, "from-tc", "traffic classes have no DSCP here")
    if "dscp_value" in settings:
        setting = Setting.of(settings, "dscp_value", dscp, DEFAULT)
        found.trimming |= {"trimmed": setting, "trimmed_last_hop": setting}
    _number(settings, "queue_index", 255, "dynamic", "whatever their DSCP, it is the control class")
    if "queue_index" in settings:
        found.remarks.append(f"{settings.path('queue_index')}: it is the control class here")
    settings.integer("tc_value", 0, 0, 255)
    if "tc_value" in settings:
        found.remarks.append(f"{settings.path('tc_value')}: there are no traffic classes")
    settings.refuse_others()
    found.remarks.append(
        f"{trims[0].path()} trims: here every port does, packets of a NIC with trimmable: true"
    )


def _number(section: Section, key: str, high: int, word: str, why: str) -> int:
    """Return a number; the word that CONFIG_DB also takes is refused."""
    if key in section and section.values[key] == word:
        section.cannot(key, f"a whole number from 0 to {high}: {why}")
        return 0
    return section.integer(key, 0, 0, high)


def _refuse_access_lists(root: Section) -> None:
    for rule in root.sections("ACL_RULE").values():
        if rule.values.get("DISABLE_ARS_FORWARDING") in ("true", True):
            rule.cannot("DISABLE_ARS_FORWARDING", "no such action: there are no access lists")
        if rule.values.get("PACKET_ACTION") == "DISABLE_TRIM":
            rule.cannot("PACKET_ACTION", "another action: there are no access lists")
