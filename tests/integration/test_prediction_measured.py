"""Forecasts against runs of the same seed: loads to the packet, paths to the last one."""

import pytest

from fabric_emu.experiment import run_scheme
from fabric_emu.model.load import parse_scenario
from fabric_emu.model.scheme import Nic, Scheme, Switch
from fabric_emu.predict.forecast import forecast

pytestmark = pytest.mark.root

PAYLOAD = 1024
MESSAGE = 4  # packets that stay on one queue pair
TWO_TIERS = f"""
title: two tiers
topology: {{leaves: 2, spines: 4, hosts_per_leaf: 2, link_rate: 40mbit}}
workload:
  {{pattern: pairs, flows_per_host: 4, load: 0.8, payload: {PAYLOAD}, duration: 500ms,
  message_size: {MESSAGE * PAYLOAD}}}
"""
THREE_TIERS = f"""
title: three tiers
topology:
  {{tiers: 3, pods: 2, leaves: 1, spines: 2, super_spines: 4, hosts_per_leaf: 2, link_rate: 40mbit}}
workload:
  {{pattern: pairs, flows_per_host: 8, load: 0.4, payload: {PAYLOAD}, duration: 500ms,
  message_size: {MESSAGE * PAYLOAD}}}
"""


MESSAGES = """
title: messages
topology: {leaves: 4, spines: 4, hosts_per_leaf: 1, link_rate: 40mbit}
workload: {kind: messages, collective: all-to-all, size: 256KiB, message_size: 4KiB, payload: 1024}
"""


def run(text, scheme, *changes, seed=1):
    scenario = parse_scenario(text, "made-up.yaml", changes)
    measured, predicted = run_scheme(scenario, scheme, seed), forecast(scenario, scheme, seed)
    if not measured.summary["prediction"]["offered"] and scheme.hashed:
        pytest.skip(measured.summary["prediction"]["reason"])
    return scenario, measured, predicted


def assert_same_loads(scenario, scheme, measured, predicted):
    """Assert that every uplink was asked for what was predicted, give or take whole packets."""
    frame_bits = 8 * (PAYLOAD + 14 + 60 + 40)  # at most: Ethernet, IPv6, UDP, BTH, RETH, ICRC
    window_bits = scenario.topology.link_rate * scenario.workload.duration
    packet = frame_bits / window_bits
    # Now and then the kernel itself says something in IPv6 (multicast listener reports, 90 bytes).
    own = 4 * 8 * 90 / window_bits if 6 in scenario.topology.families else 0.0
    # A queue pair may have sent one message more than its share, a flow one packet on each path;
    # its first packet is due within an interval of the start.
    whole = MESSAGE + 1 if scheme.nic.queue_pairs > 1 else 2
    flows = len(predicted.flows["flow"])
    for switch, links in predicted.summary["uplinks"].items():
        for link, seen in zip(links, measured.summary["uplinks"][switch], strict=True):
            assert link["link"] == seen["link"]
            if scheme.nic.entropy == "qp":
                # Ports tell how many queue pairs share the uplink.
                streams = sum(
                    _crosses(path, switch, link) for path in predicted.flows["predicted_path"]
                )
            else:
                streams = flows
            slack = streams * whole * packet + own
            assert seen["offered"] == pytest.approx(link["offered"], abs=slack)
            assert (link["offered"] > 0) == (seen["offered"] > own)


def _crosses(path, switch, link):
    above = link.get("spine") or link.get("super_spine")
    return f"{switch}>{above}" in path


@pytest.mark.parametrize("ip", ["4", "6"])
@pytest.mark.parametrize("text", [TWO_TIERS, THREE_TIERS])
@pytest.mark.parametrize("name", ["ecmp", "ecmp-4qp", "mrc"])
def test_loads_are_as_predicted(name, text, ip):
    scheme = Scheme.named(name)
    scenario, measured, predicted = run(text, scheme, f"topology.ip={ip}")
    assert_same_loads(scenario, scheme, measured, predicted)
    assert measured.summary["paths"]["used"] == predicted.summary["paths"]["used"]
    if scheme.hashed:
        assert measured.flows["predicted_path"] == predicted.flows["predicted_path"]
        assert measured.flows["source_port"] == predicted.flows["source_port"]
        prediction = measured.summary["prediction"]
        assert prediction["matched"] == prediction["checked"] == len(measured.flows["flow"])


@pytest.mark.parametrize("ip", ["4", "6"])
def test_loads_are_as_predicted_with_chosen_fields(ip):
    scheme = Scheme(name="fields", switch=Switch(hash_policy=3))
    scenario, measured, predicted = run(THREE_TIERS, scheme, f"topology.ip={ip}")
    assert_same_loads(scenario, scheme, measured, predicted)
    assert measured.summary["prediction"]["matched"] == len(measured.flows["flow"])


def test_what_an_overloaded_uplink_loses_is_as_predicted():
    scheme = Scheme(name="addresses", switch=Switch(hash_policy=0, drop_at="40KB"))
    changes = ["topology.host_rate=80mbit", "topology.hosts_per_leaf=1", "workload.load=0.95"]
    scenario, measured, predicted = run(TWO_TIERS, scheme, *changes)
    assert_same_loads(scenario, scheme, measured, predicted)
    assert predicted.summary["efficiency"] == pytest.approx(1 / 1.9)
    # The full queue drains after the end of the run: 40 KB of the 4.75 MB that were sent.
    assert measured.summary["efficiency"] == pytest.approx(
        predicted.summary["efficiency"] + 40_000 / 4_750_000, abs=0.02
    )


def test_messages_take_the_predicted_paths():
    _, measured, predicted = run(MESSAGES, Scheme.named("ecmp-4qp"))
    n = len(predicted.flows["flow"])
    assert n == 4 * 3 * 4
    assert measured.flows["source_port"][:n] == predicted.flows["source_port"]
    assert measured.flows["predicted_path"][:n] == predicted.flows["predicted_path"]
    prediction = measured.summary["prediction"]
    assert prediction["matched"] == prediction["checked"] >= n


@pytest.mark.parametrize("entropy", ["qp", "random"])
@pytest.mark.parametrize("mode", ["same", "per-switch"])
def test_polarisation_is_as_predicted(mode, entropy):
    # Three spines and three super-spines each: 9 paths, the diagonal of 3 with one seed.
    nic = Nic(entropy=entropy)
    scheme = Scheme(name="polarised", nic=nic, switch=Switch(hash_seeds=mode))
    changes = ["topology.spines=3", "topology.super_spines=9", "workload.flows_per_host=32"]
    _, measured, predicted = run(THREE_TIERS, scheme, *changes)
    used = measured.summary["paths"]["used"]
    assert used == predicted.summary["paths"]["used"]
    assert predicted.summary["paths"]["possible"] == 9
    if mode == "same":
        assert used == 3
    else:
        # 64 flows, or many packets more, miss one of 9 paths with P = 9 (8/9)^64 = 0.5 %.
        assert used >= 8


def test_even_spraying_is_balanced_and_random_spraying_less_so_and_both_reorder():
    scenario, even, _ = run(TWO_TIERS, Scheme.named("mrc"), "workload.duration=1s")
    random = run_scheme(scenario, Scheme.named("mrc-random"), 1)
    spread = [one.summary["imbalance"]["leaf1"]["max_over_mean"] for one in (even, random)]
    # 8 flows of about 860 packets: evenly sprayed each has one more at most on an uplink than on
    # another; at random four uplinks get 1,700 each and deviate by 36.
    assert spread[0] < 1.006 < spread[1] < 1.1
    assert all(one.summary["reordering"]["ratio"] >= 0 for one in (even, random))
