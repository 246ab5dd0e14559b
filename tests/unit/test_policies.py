"""Policies of switches as described: names, defaults in numbers, what is refused."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from fabric_emu.model.load import InvalidScenario, parse_scenario
from fabric_emu.model.policies import Dlb, Ecmp, Glb, SwitchSpray
from fabric_emu.model.queueing import Ecn, Trimming
from fabric_emu.model.scale import (
    base_rtt_s,
    bdp_bytes,
    data_frame_bytes,
    hardware_scale,
)
from fabric_emu.model.scenario import Scenario
from fabric_emu.model.scheme import Nic, Scheme, Switch
from fabric_emu.model.topology import Topology
from fabric_emu.switch.policies import SwitchPlan

# Four links of 100 Mbit/s: 1,000 bytes take 80 us on each.
TOPOLOGY = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="100mbit", mtu=1986)
FRAME = 1000


def test_scale_is_against_400_gbit_unless_said_otherwise() -> None:
    assert hardware_scale(TOPOLOGY) == 4000
    assert hardware_scale(TOPOLOGY.model_copy(update={"stands_for": 10**9})) == 10


def test_bandwidth_delay_product() -> None:
    assert base_rtt_s(TOPOLOGY, FRAME) == pytest.approx(320e-6)
    # Four frames of serialisation; a fabric is taken to hold eight.
    assert bdp_bytes(TOPOLOGY, FRAME) == 8 * FRAME
    three = Topology(tiers=3, pods=2, spines=1, super_spines=1, link_rate="100mbit")
    assert base_rtt_s(three, FRAME) == pytest.approx(480e-6)
    assert bdp_bytes(three, FRAME) == 8 * FRAME


@pytest.mark.parametrize(
    ("ip", "payload", "bytes_"), [(4, 1024, 1098), (6, 1024, 1118), (4, 9, 86)]
)
def test_data_frames(ip: int, payload: int, bytes_: int) -> None:
    topology = TOPOLOGY.model_copy(update={"ip": ip})
    assert data_frame_bytes(topology, payload) == bytes_


def test_times_of_hardware_are_scaled() -> None:
    numbers = Dlb().resolved(TOPOLOGY)
    assert numbers.flowlet_gap_s == pytest.approx(256e-6 * 4000)
    assert numbers.sampling_s == pytest.approx(16e-6 * 4000)
    glb = Glb().resolved(TOPOLOGY)
    assert glb.glb_interval_s == pytest.approx(16e-6 * 4000)
    assert glb.ageing_s == pytest.approx(4 * 16e-6 * 4000)
    assert Dlb(flowlet_gap="5ms", sampling="1ms").resolved(TOPOLOGY).flowlet_gap_s == 0.005


def test_adverts_are_not_sent_faster_than_a_process_can() -> None:
    fast = TOPOLOGY.model_copy(update={"link_rate": 10**10})
    assert Glb().resolved(fast).glb_interval_s == 0.005
    assert Glb(glb_interval="1ms").resolved(fast).glb_interval_s == 0.001
    assert Glb(glb_interval="1ms", ageing="9ms").resolved(fast).ageing_s == pytest.approx(0.009)


def test_quality_in_numbers() -> None:
    numbers = Dlb().resolved(TOPOLOGY, FRAME)
    assert (numbers.load_weight, numbers.queue_weight) == (0.5, 0.5)
    assert numbers.queue_range == (0, 8 * FRAME)
    numbers = Dlb(load_weight=70, queue_weight=30, queue_min=500).resolved(TOPOLOGY, FRAME)
    assert numbers.load_weight == pytest.approx(0.7)
    assert numbers.queue_range == (500, 500 + 8 * FRAME)
    assert Dlb(queue_max="9KB").resolved(TOPOLOGY).queue_range == (0, 9000)
    assert Dlb().resolved(TOPOLOGY).queue_range == (0, 8 * 2000)  # frames that fill the MTU


def test_only_glb_has_adverts_and_only_adaptive_policies_measure() -> None:
    assert [
        (numbers.mode, numbers.sampling_s > 0, numbers.glb_interval_s > 0)
        for numbers in (
            policy.resolved(TOPOLOGY)
            for policy in (Ecmp(), SwitchSpray(), SwitchSpray(order="round-robin"), Dlb(), Glb())
        )
    ] == [
        ("kernel", False, False),
        ("per-packet-random", False, False),
        ("round-robin", False, False),
        ("flowlet-quality", True, False),
        ("flowlet-quality", True, True),
    ]


def test_marking_thresholds() -> None:
    assert Ecn().resolved(TOPOLOGY, FRAME).above_bytes == 4 * FRAME
    step = Ecn(mark_at="50KB").resolved(TOPOLOGY)
    assert (step.above_bytes, step.all_above_bytes, step.per_million) == (50_000, 50_000, 10**6)
    ramp = Ecn(max_probability=0.01).resolved(TOPOLOGY, FRAME)
    assert (ramp.above_bytes, ramp.all_above_bytes, ramp.per_million) == (1600, 6400, 10_000)
    ramp = Ecn(mark_min="5KB", mark_max="100KB").resolved(TOPOLOGY)
    assert (ramp.above_bytes, ramp.all_above_bytes, ramp.per_million) == (5000, 100_000, 10**6)
    # One end beyond the other's default: still a ramp.
    ramp = Ecn(mark_min="100KB").resolved(TOPOLOGY)
    assert ramp.above_bytes == 100_000 < ramp.all_above_bytes
    ramp = Ecn(mark_max=100).resolved(TOPOLOGY)
    assert ramp.above_bytes < ramp.all_above_bytes == 100


def test_trimming_limits() -> None:
    limits = Trimming().resolved(TOPOLOGY, FRAME)
    assert (limits.above_bytes, limits.last_hop_above_bytes) == (8 * FRAME, 12 * FRAME)
    assert limits.control_limit_bytes == 8 * FRAME
    assert limits.trim_to_bytes == 64
    limits = Trimming(trim_at="40KB").resolved(TOPOLOGY, FRAME)
    assert (limits.above_bytes, limits.last_hop_above_bytes) == (40_000, 60_000)
    assert limits.control_limit_bytes == 40_000
    limits = Trimming(trim_at="40KB", trim_at_last_hop="41KB", control_limit="1KB").resolved(
        TOPOLOGY
    )
    assert (limits.last_hop_above_bytes, limits.control_limit_bytes) == (41_000, 1000)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dlb(load_weight=0, queue_weight=0),
        lambda: Dlb(load_min=0.5, load_max=0.5),
        lambda: Dlb(queue_min=100, queue_max=100),
        lambda: Dlb(mode="guess"),
        lambda: Dlb(max_flows=0),
        lambda: Dlb(exponent=8),
        lambda: Dlb(glb_interval="1ms"),  # type: ignore[call-arg]
        lambda: Ecn(mark_at=1000, mark_min=10),
        lambda: Ecn(mark_min=1000, mark_max=1000),
        lambda: Ecn(max_probability=0),
        lambda: Trimming(trimmable=()),
        lambda: Trimming(trimmable=(64,)),
        lambda: Trimming(trimmable=(48,)),
        lambda: Trimming(trimmed=10),
        lambda: Trimming(trimmed_last_hop=48),
        lambda: Trimming(trimmed=0),
    ],
)  # fmt: skip
def test_contradictions_are_refused(make: object) -> None:
    with pytest.raises(ValidationError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("policy", ["ecmp", "dlb", "glb", "switch-spray"])
def test_a_policy_may_be_its_name_alone(policy: str) -> None:
    switch = Switch(policy=policy)  # type: ignore[arg-type]
    assert switch.policy.kind == policy
    assert Switch.model_validate(json.loads(switch.model_dump_json())) == switch
    assert Switch(policy={"kind": policy}) == switch  # type: ignore[arg-type]


def test_ecn_and_trimming_may_just_be_on() -> None:
    on = Switch.model_validate({"ecn": True, "trimming": True})
    assert (on.ecn, on.trimming) == (Ecn(), Trimming())
    off = Switch.model_validate({"ecn": False, "trimming": None})
    assert (off.ecn, off.trimming) == (None, None) == (Switch().ecn, Switch().trimming)


SCENARIO = "title: x\nschemes: [{{name: a, switch: {{policy: {}}}}}]"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("dbl", "did you mean 'dlb'?"),
        ("{kind: dlb, flowlet_gapp: 1ms}", "did you mean 'flowlet_gap'?"),
        ("{kind: dlb, max_flows: 0}", "schemes[0].switch.policy.max_flows: 0: expected 1 or more"),
        ("{kind: dlb, glb_interval: 1ms}", "kind: glb"),
        ("{kind: dlb, load_min: 2}", "load_min: 2: expected a number under 1"),
    ],
)
def test_mistakes_are_named(policy: str, message: str) -> None:
    with pytest.raises(InvalidScenario) as caught:
        parse_scenario(SCENARIO.format(policy), "x.yaml")
    assert message in str(caught.value)


def test_policies_are_in_the_schema() -> None:
    text = json.dumps(Scenario.model_json_schema())
    for word in ("flowlet_gap", "glb_interval", "switch-spray", "trim_at", "mark_at"):
        assert word in text


def test_named_schemes() -> None:
    kinds = {name: Scheme.named(name).switch.policy for name in (
        "ecmp", "dlb", "dlb-packet", "glb", "switch-spray", "switch-spray-rr", "mrc"
    )}  # fmt: skip
    assert kinds == {
        "ecmp": Ecmp(),
        "dlb": Dlb(),
        "dlb-packet": Dlb(mode="per-packet-quality"),
        "glb": Glb(),
        "switch-spray": SwitchSpray(),
        "switch-spray-rr": SwitchSpray(order="round-robin"),
        "mrc": Ecmp(),
    }
    assert kinds.keys() - {"ecmp"} <= set(Scheme.names())


def test_only_the_kernels_hash_is_predicted() -> None:
    hashed = {name: Scheme.named(name).hashed for name in ("ecmp", "ecmp-4qp", "dlb", "glb", "mrc")}
    assert hashed == {"ecmp": True, "ecmp-4qp": True, "dlb": False, "glb": False, "mrc": False}


def test_the_dscp_of_data() -> None:
    def dscp(**switch: object) -> int:
        return Scheme(name="x", nic=Nic(trimmable=True), switch=Switch(**switch)).data_dscp  # type: ignore[arg-type]

    assert Scheme.named("ecmp").data_dscp == 0
    assert dscp() == dscp(trimming=Trimming()) == 10
    assert dscp(trimming=Trimming(trimmable=(20, 21))) == 20


def test_control_packets_of_a_scheme_that_trims() -> None:
    assert Switch().control_dscps == (48,)
    assert Switch(trimming=Trimming()).control_dscps == (48, 46, 44)
    assert Switch(trimming=Trimming(trimmed=5, trimmed_last_hop=5)).control_dscps == (48, 5)


class TestPlan:
    """Which switches choose, and among what."""

    def test_ecmp_has_nothing_to_plan(self) -> None:
        plan = SwitchPlan.of(TOPOLOGY, Switch())
        assert (plan.switches, plan.groups, plan.routes) == ((), (), ())

    def test_leaves_choose_where_they_have_uplinks(self) -> None:
        topology = Topology(leaves=3, spines=2, hosts_per_leaf=1)
        plan = SwitchPlan.of(topology, Switch(policy=Dlb()))
        assert [switch.name for switch in plan.switches] == ["leaf1", "leaf2", "leaf3"]
        # Three host links come first: the leaves' uplinks are links 3 to 8.
        assert plan.groups == ((6, 8), (10, 12), (14, 16))
        assert plan.routes == ((0, 1, 1), (2, 0, 2), (3, 3, 0))

    def test_parallel_links_make_spines_choose_too(self) -> None:
        topology = Topology(leaves=2, spines=1, hosts_per_leaf=1, links_per_pair=2)
        plan = SwitchPlan.of(topology, Switch(policy=SwitchSpray()))
        assert [switch.name for switch in plan.switches] == ["leaf1", "leaf2", "spine1"]
        assert plan.groups[2:] == ((5, 7), (9, 11))
        assert plan.routes[2] == (3, 4)

    def test_one_spine_leaves_no_choice(self) -> None:
        topology = Topology(leaves=2, spines=1, hosts_per_leaf=1)
        assert SwitchPlan.of(topology, Switch(policy=Dlb())).switches == ()

    def test_three_tiers(self) -> None:
        topology = Topology(tiers=3, pods=2, leaves=1, spines=2, super_spines=4, hosts_per_leaf=1)
        names = [node.name for node in SwitchPlan.of(topology, Switch(policy=Dlb())).switches]
        assert names == ["leaf1", "leaf2", "spine1", "spine2", "spine3", "spine4"]
        # Super-spines listen to adverts, though they have one way only.
        names = [node.name for node in SwitchPlan.of(topology, Switch(policy=Glb())).switches]
        assert names[-4:] == ["super1", "super2", "super3", "super4"]

    def test_each_plane_has_its_own(self) -> None:
        topology = Topology(leaves=2, spines=2, hosts_per_leaf=1, planes=2)
        plan = SwitchPlan.of(topology, Switch(policy=Dlb()))
        assert [(node.name, node.plane) for node in plan.switches] == [
            ("leaf1", 0), ("leaf2", 0), ("leaf1p2", 1), ("leaf2p2", 1)
        ]  # fmt: skip

    def test_more_next_hops_than_programs_take_are_refused(self) -> None:
        topology = Topology(leaves=2, spines=13, hosts_per_leaf=1, links_per_pair=5)
        with pytest.raises(Exception, match="at most 64 equal next hops"):
            SwitchPlan.of(topology, Switch(policy=Dlb()))
        SwitchPlan.of(topology, Switch())
