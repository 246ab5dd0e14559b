"""FRR's configurations: the AS plan of RFC 7938, and one whole file as it must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric_emu.model.control_plane import Bgp, Static
from fabric_emu.model.frr import as_number, configuration, configurations
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.topology import Role, Topology

GOLDEN = Path(__file__).parent / "golden" / "leaf1.frr.conf"
SMALL = Topology(leaves=2, spines=2, hosts_per_leaf=1, ip="both")


def test_a_leaf_is_configured_as_in_the_golden_file() -> None:
    bgp = Bgp(bfd=True, keepalive=1, hold=3)
    assert configuration(SMALL, bgp, SMALL.nodes["leaf1"]) == GOLDEN.read_text()


def test_a_spine_announces_nothing_of_its_own() -> None:
    text = configuration(SMALL, Bgp(), SMALL.nodes["spine2"])
    assert "router bgp 65534" in text
    assert "\n  network " not in text
    assert "bfd" not in text
    assert [f"neighbor leaf{i} interface peer-group FABRIC" in text for i in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_one_family_leaves_the_other_inactive() -> None:
    text = configuration(Topology(ip=6), Bgp(), Topology(ip=6).nodes["leaf1"])
    four, six = text.split("address-family ipv6")
    assert "  no neighbor FABRIC activate" in four
    assert "network" not in four.split("address-family ipv4")[1]
    assert "network fd00:0:1::/48" in six


def test_three_tiers_share_numbers_as_the_rfc_says() -> None:
    t = Topology(tiers=3, leaves=2, spines=2, pods=3, super_spines=4, hosts_per_leaf=1)
    numbers: dict[Role, list[int]] = {role: [] for role in Role}
    for switch in t.switches:
        numbers[switch.role].append(as_number(t, switch))
    assert numbers[Role.SUPER_SPINE] == [65534] * 4
    assert numbers[Role.SPINE] == [64601, 64601, 64602, 64602, 64603, 64603]
    assert numbers[Role.LEAF] == list(range(65001, 65007))
    assert len(configurations(t, Bgp())) == 16


def test_more_leaves_than_short_numbers_get_long_ones() -> None:
    t = Topology(leaves=600, spines=1, hosts_per_leaf=1)
    numbers = {as_number(t, switch) for switch in t.switches}
    # RFC 6996: 4200000000 to 4294967294 are private, too.
    assert len(numbers) == 601
    assert min(numbers - {65534}) == 4_200_000_000


def parsed(text: str, *changes: str) -> Scenario:
    return parse_scenario(f"title: t\n{text}\n", "mine.yaml", changes)


def test_a_scheme_may_have_a_control_plane_of_its_own() -> None:
    scenario = parsed(
        "control_plane: bgp\nschemes: [ecmp, {name: own, switch: {control_plane: static}}]"
    )
    planes = [scenario.control_plane_of(scheme) for scheme in scenario.schemes]
    assert planes == [Bgp(), Static()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("control_plane: ospf", "control_plane.kind: 'ospf': expected 'static' or 'bgp'"),
        ("control_plane: {kind: bgp, hold: 4}", "hold: 4: expected three keepalives (9 s) or more"),
        ("control_plane: {kind: bgp, bfd_interval: 1ms}", "bfd_interval"),
        ("control_plane: {bfd: true}", "a key of kind: bgp"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(InvalidScenario) as caught:
        parsed(text)
    assert said in str(caught.value)


def test_one_chassis_has_nobody_to_talk_to() -> None:
    with pytest.raises(InvalidScenario, match="static with tiers: 1"):
        parsed(
            "control_plane: bgp\ntopology: {tiers: 1, leaves: 1, spines: 0}\nworkload: {shift: 1}"
        )
