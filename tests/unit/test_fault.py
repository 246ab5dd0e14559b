"""Faults as described: which links they hit, what they leave of them, mistakes by name."""

from __future__ import annotations

import numpy as np
import pytest

from fabric_emu.measure.downlinks import room_share
from fabric_emu.model.fault import Fault
from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.topology import Topology
from fabric_emu.results.describe import fault_text

TOPOLOGY = Topology(leaves=2, spines=2, hosts_per_leaf=2)


def test_a_reboot_hits_all_links_of_a_switch() -> None:
    reboot = Fault(at=1.0, duration=0.5, switch="leaf1", action="reboot")
    links = reboot.links(TOPOLOGY, "faults[0]")
    assert [link.name for link in links] == [
        "leaf1-spine1", "leaf1-spine2", "h1-leaf1", "h2-leaf1",
    ]  # fmt: skip
    room = room_share(TOPOLOGY, [reboot], 2.0)
    hit = [port for link in links for port in (link.up_port, link.down_port)]
    np.testing.assert_allclose(room[hit], 0.75)
    assert room.sum() == pytest.approx(len(room) - len(hit) / 4)
    assert fault_text(reboot) == "leaf1 reboot, from 1 s for 500 ms"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("action: reboot", "switch: a value with action reboot"),
        ("action: reboot, switch: spine9", "faults[0].switch: 'spine9'"),
        ("action: reboot, switch: h1", "the name of a switch, such as"),
        ("action: reboot, switch: spine1, link: leaf1-spine1", "link: nothing with action reboot"),
        ("action: reboot, switch: spine1, towards: leaf1", "towards: nothing with action reboot"),
        ("action: down, switch: spine1", "switch: nothing with action down"),
        ("action: down", "link: the name of a link with action down"),
    ],
)
def test_mistakes_are_named(fault: str, said: str) -> None:
    with pytest.raises(InvalidScenario) as caught:
        parse_scenario(f"title: t\nfaults: [{{at: 1s, {fault}}}]\n", "mine.yaml")
    words = said.split(": ", 1)
    assert all(word in str(caught.value) for word in words), str(caught.value)
