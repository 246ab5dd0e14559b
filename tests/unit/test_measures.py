"""Measures on records made by hand: loads, conservation, paths, prediction, the verdict."""

import dataclasses

import numpy as np
import pytest

from fabric_emu.measure.fidelity import base_rtt_s, judge_fidelity
from fabric_emu.measure.links import LinkLoads, summarise_links
from fabric_emu.measure.paths import (
    check_prediction,
    check_undisturbed,
    conservation,
    delivered_by_path,
    paths_agree,
)
from fabric_emu.measure.record import Arrivals, Record, Senders, Settled
from fabric_emu.measure.recovery import LossWatch, longest_silence_s, summarise_recovery
from fabric_emu.model.queue_pair import QueuePairs
from fabric_emu.model.topology import Topology
from fabric_emu.predict.placement import path_stamps, port_stamps
from fabric_emu.switch.ports import FLOW_PORT_DTYPE, PORT_DTYPE, DropReason

TOPOLOGY = Topology(leaves=2, spines=2, hosts_per_leaf=1, link_rate="8mbit")
FRAME = 1000


def port(lower, upper, down=False):
    link = next(k for k in TOPOLOGY.links if (k.lower.name, k.upper.name) == (lower, upper))
    return link.down_port if down else link.up_port


PATHS = [
    [port("h1", "leaf1"), port("leaf1", spine), port("leaf2", spine, True),
     port("h2", "leaf2", True)]
    for spine in ("spine1", "spine2")
]  # fmt: skip


def record(sent=(100, 50), lost=0, lost_at=1, ring_dropped=0, swap=None):
    """Two queue pairs from h1 to h2, the first over spine 1, the second over spine 2.

    ``lost`` packets of the first are dropped at hop ``lost_at`` of its path.
    """
    ports = np.zeros(2 * len(TOPOLOGY.links), PORT_DTYPE)
    flows = np.zeros((2, len(ports)), FLOW_PORT_DTYPE)
    arrived = []
    for pair, path in enumerate(PATHS):
        alive = sent[pair]
        for hop, at in enumerate(path):
            drops = lost if (pair, hop) == (0, lost_at) else 0
            flows[pair, at]["offered_packets"] = alive
            flows[pair, at]["dropped_packets"] = drops
            ports[at]["dropped_packets"][DropReason.QUEUE_LIMIT] += drops
            ports[at]["dropped_bytes"][DropReason.QUEUE_LIMIT] += drops * FRAME
            alive -= drops
            for kind, unit in (("packets", 1), ("bytes", FRAME)):
                ports[at][f"enqueued_{kind}"] += alive * unit
                ports[at][f"departed_{kind}"] += alive * unit
        arrived.append(alive)
    pairs = np.repeat([0, 1], arrived)
    psn = np.concatenate([np.arange(n) for n in arrived])
    if swap is not None:
        psn[[swap, swap + 1]] = psn[[swap + 1, swap]]
    n = len(pairs)
    if ring_dropped:
        pairs, psn, n = pairs[:-ring_dropped], psn[:-ring_dropped], n - ring_dropped
    time = np.arange(n) * 1_000_000
    return Record(
        TOPOLOGY,
        QueuePairs(
            np.array([0, 0]),
            np.array([0, 0]),
            np.array([1, 1]),
            np.array([0, 0]),
            np.array([4, 4]),
            np.array([50000, 50001], np.uint16),
        ),
        data_pairs=2,
        closed_loop=False,
        needed=sum(sent),
        frame_bytes=FRAME,
        window_s=1.0,
        payload_bytes=FRAME - 82,
        queue_s=0.010,
        ports=ports,
        flow_ports=flows,
        no_route=0,
        service=np.full(len(ports), np.nan),
        predicted=np.array([[*path, -1, -1] for path in PATHS], np.int32),
        senders=Senders(sum(sent), np.array(sent), 0, ring_dropped, (0.0, 0.001, 0.002), 0.5),
        arrivals=Arrivals(
            pairs,
            psn,
            np.full(n, 50000, np.uint16),
            (pairs + 1).astype(np.uint8),
            np.full(n, FRAME),
            time,
            time + 5_000_000,
            np.zeros(n, bool),
            np.zeros(n, bool),
        ),
    )


def verdict(run):
    packets = conservation(run)
    agree = paths_agree(run, port_stamps(TOPOLOGY))
    offered = LinkLoads.of(
        TOPOLOGY, run.ports["enqueued_bytes"], run.ports["departed_bytes"], run.window_s
    ).offered
    return judge_fidelity(run, packets, agree, check_undisturbed(run), offered)


def test_loads_are_bytes_over_rate_and_time():
    run = record()
    enqueued, departed = run.ports["enqueued_bytes"], run.ports["departed_bytes"]
    loads = LinkLoads.of(TOPOLOGY, enqueued, departed, window_s=1.0)
    # 100 frames of 1,000 B in a second on 8 Mbit/s are a tenth.
    assert loads.offered[port("leaf1", "spine1")] == pytest.approx(0.1)
    found = summarise_links(TOPOLOGY, loads)
    assert found["worst_uplink"] == "leaf1-spine1"
    assert found["worst_uplink_load"] == pytest.approx(0.1)
    assert [entry["spine"] for entry in found["uplinks"]["leaf1"]] == ["spine1", "spine2"]
    assert found["imbalance"]["leaf1"]["max_over_mean"] == pytest.approx(100 / 75)
    assert found["imbalance"]["leaf2"]["max_over_mean"] == 1.0
    # The link into the host carries both.
    assert found["worst_link"] == "h2-leaf2"
    assert found["worst_link_load"] == pytest.approx(0.15)


def test_one_tier_has_no_uplinks():
    chassis = Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=2)
    found = summarise_links(chassis, LinkLoads(np.arange(4) / 4, np.zeros(4)))
    assert found["uplinks"] == {}
    assert found["worst_uplink_load"] is None
    assert (found["worst_link"], found["worst_link_load"]) == ("h2-chassis1", 0.75)


def test_packets_are_conserved():
    packets = conservation(record(lost=7))
    assert (packets.sent, packets.delivered, packets.dropped) == (150, 143, {"queue_limit": 7})
    assert (packets.queued, packets.trimmed, packets.unaccounted) == (0, 0, 0)


def test_full_rings_are_a_reason_of_their_own():
    packets = conservation(record(ring_dropped=3))
    assert packets.dropped == {"receive_ring": 3}
    assert packets.unaccounted == 0


def test_damaged_packets_are_a_reason_of_their_own():
    run = record()
    run.arrivals.queue_pair[-4:] = -1
    run.ports["icrc_errors"][port("h2", "leaf2", True)] = 4
    assert conservation(run).dropped == {"icrc_errors": 4}
    assert paths_agree(run, port_stamps(TOPOLOGY))
    assert verdict(run).trustworthy
    # Forged ones nobody has sent; nobody misses them.
    run.ports["icrc_errors"][port("h2", "leaf2", True)] = 9
    assert conservation(run).dropped == {"icrc_errors": 4}
    assert verdict(run).trustworthy
    # They hide no packet that has vanished otherwise.
    run.ports["icrc_errors"][port("h2", "leaf2", True)] = 3
    assert conservation(run).unaccounted == 1


def test_probes_are_packets_but_no_data():
    run = record()
    arrivals = run.arrivals
    arrivals.probe[:3] = True
    assert np.count_nonzero(run.data) == len(arrivals.psn) - 3
    assert conservation(run) == conservation(record())


def test_what_is_in_a_queue_is_queued():
    run = record()
    run.ports["departed_packets"][port("h2", "leaf2", True)] -= 2
    run.arrivals.queue_pair[-2:] = -1
    packets = conservation(run)
    assert (packets.delivered, packets.queued, packets.unaccounted) == (148, 2, 0)


def test_a_vanished_packet_is_noticed():
    run = record()
    run.arrivals.queue_pair[-1] = -1
    assert conservation(run).unaccounted == 1


def test_paths_seen_by_receivers_and_by_switches_agree():
    run = record()
    paths = delivered_by_path(run)
    assert (paths[0, 1], paths[1, 2], paths.sum()) == (100, 50, 150)
    assert paths_agree(run, port_stamps(TOPOLOGY))


@pytest.mark.parametrize("hop", [1, 2, 3])
def test_paths_agree_wherever_packets_are_dropped(hop):
    assert paths_agree(record(lost=9, lost_at=hop), port_stamps(TOPOLOGY))


def test_a_wrong_stamp_is_noticed():
    run = record()
    run.arrivals.path_stamp[0] = 2
    assert not paths_agree(run, port_stamps(TOPOLOGY))


def test_a_lost_packet_that_no_switch_dropped_is_noticed():
    run = record()
    run.arrivals.queue_pair[0] = -1
    assert not paths_agree(run, port_stamps(TOPOLOGY))


def test_prediction_is_checked_queue_pair_by_queue_pair():
    run = record()
    check = check_undisturbed(run)
    assert check.matched.tolist() == [True, True]
    run.predicted[1] = run.predicted[0]
    assert check_undisturbed(run).matched.tolist() == [True, False]


def test_prediction_holds_for_a_queue_pair_lost_on_the_way():
    check = check_undisturbed(record(sent=(10, 50), lost=10, lost_at=1))
    assert check.matched.tolist() == [True, True]


def test_a_queue_pair_that_sent_nothing_is_not_checked():
    check = check_undisturbed(record(sent=(0, 50)))
    assert check.checked.tolist() == [False, True]


def test_stamps_follow_from_paths():
    paths = np.array([[*path, -1, -1] for path in PATHS], np.int32)
    assert path_stamps(TOPOLOGY, paths).tolist() == [1, 2]


def test_a_sound_run_is_trustworthy():
    found = verdict(record(lost=5))
    assert found.trustworthy
    assert found.reasons == []
    assert {check.name for check in found.checks} >= {"conservation", "predicted paths"}


def changed(run, **senders):
    return dataclasses.replace(run, senders=dataclasses.replace(run.senders, **senders))


def saturated(run, share):
    """Make leaf1-spine1 asked for 120 % and served at a share of its rate."""
    at = port("leaf1", "spine1")
    run.ports["enqueued_bytes"][at] = 1_200_000
    run.service[at] = share
    return run


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (changed(record(), sent=np.array([101, 50])), "neither delivered, dropped"),
        (record(ring_dropped=1), "full receive rings"),
        (changed(record(), lag_s=(0.0, 0.005, 0.01)), "5.00 ms late"),
        (changed(record(), lag_s=(0.0, 0.001, 0.2)), "stood still for 200 ms"),
        (dataclasses.replace(record(), altered=3), "3 interfaces have GRO off"),
        (changed(record(), scheduled=200), "never sent"),
        (changed(record(), busy=0.97), "busy 97% of its time"),
        (record(swap=10), "overtook"),
        (saturated(record(), 0.9), "10.0% off its configured rate"),
    ],
)
def test_each_fault_makes_the_run_doubtful_for_its_own_reason(run, reason):
    found = verdict(run)
    assert not found.trustworthy
    assert [text for text in found.reasons if reason in text]


@pytest.mark.parametrize(("planes", "other_port", "overtaken"), [(1, 1, 1), (2, 2, 1), (2, 1, 0)])
def test_sprayed_messages_keep_their_order_on_each_path_of_each_plane(
    planes, other_port, overtaken
):
    run = record()
    run = dataclasses.replace(
        run,
        topology=TOPOLOGY.model_copy(update={"planes": planes}),
        closed_loop=True,
        one_path=False,
    )
    arrivals = run.arrivals
    # Of two neighbours of one queue pair with one stamp the later one is there first. With two
    # planes, neighbouring source ports lead to different ones, over paths with the same stamps.
    arrivals.source_port[11] += other_port
    arrivals.send_ns[[10, 11]] = arrivals.send_ns[[11, 10]]
    order = next(check for check in verdict(run).checks if check.name == "order on one path")
    assert order.measured == overtaken


def test_a_wrong_prediction_makes_the_run_doubtful():
    run = record()
    run.predicted[1] = run.predicted[0]
    assert verdict(run).reasons == ["1 of 2 queue pairs did not take the predicted path"]


def test_paths_are_compared_while_routes_are_settled():
    run = record()
    stamps = path_stamps(TOPOLOGY, np.array(PATHS))
    # The first queue pair's packets are sent at 0 to 99 ms, the second's after that; all arrive 5
    # ms later. One of the first's has another path before routes settle at 50 ms.
    arrivals = run.arrivals
    arrivals.send_ns[0] = 1  # none is 0, which would say that it is not known
    arrivals.path_stamp[49] = stamps[1]
    arrivals.path_stamp[85] = stamps[1]  # on its way when links change at 90 ms

    def checked(begin_ms, end_ms):
        settled = Settled(begin_ms * 1_000_000, end_ms * 1_000_000, stamps)
        found = check_prediction(dataclasses.replace(run, settled=(settled,)))
        assert found
        return found.checked.tolist(), found.matched.tolist()

    assert checked(50, 90) == ([True, False], [True, False])
    assert checked(50, 91) == ([True, False], [False, False])
    assert checked(49, 90) == ([True, False], [False, False])
    assert checked(120, 150) == ([False, True], [False, True])
    assert checked(149, 150) == ([False, False], [False, False])


def test_a_port_served_at_its_rate_is_fine():
    assert verdict(saturated(record(), 0.985)).trustworthy


def test_the_base_round_trip_is_serialisation():
    # Four links of 8 Mbit/s, 1 ms each for 1,000 bytes.
    assert base_rtt_s(TOPOLOGY, FRAME) == pytest.approx(0.004)


def test_recovery_counts_what_faults_took_and_how_long_flows_were_silent():
    # Arrivals every millisecond from 5 ms on: 98 packets of the first queue pair, then the second.
    one = record(lost=2)
    found = summarise_recovery(one, last_loss_s=0.25, first_fault_s=0.2, start_ns=0, unfinished=0)
    assert found["lost"] == 0  # a full queue took them
    assert found["last_loss"] == pytest.approx(0.05)
    assert found["flows_hit"] == 1
    assert found["all_running"] == pytest.approx(1.0 - 0.2)  # the last came at 102 ms
    assert longest_silence_s(one, np.array([0]), 0.05, 0.06, 0) == pytest.approx(0.001)
    assert longest_silence_s(one, np.array([1]), 0.01, None, 0) == pytest.approx(0.103 - 0.01)
    assert longest_silence_s(one, np.array([], int), 0.0, 1.0, 0) == 0
    lost = summarise_recovery(one, None, 0.2, 0, unfinished=1)
    assert lost["last_loss"] is None
    assert lost["all_running"] is None


def test_a_watch_remembers_when_faults_last_took_something():
    ports = np.zeros(2, PORT_DTYPE)
    unrouted = [7]
    watch = LossWatch(ports, lambda: unrouted[0])
    watch.look(0.1)
    assert watch.last_s is None
    ports["dropped_packets"][1, DropReason.QUEUE_LIMIT] = 5
    watch.look(0.2)
    assert watch.last_s is None
    ports["dropped_packets"][1, DropReason.BLACKHOLE] = 1
    watch.look(0.3)
    unrouted[0] = 9
    watch.look(0.4)
    watch.look(0.5)
    assert watch.last_s == 0.4
    assert watch.no_route == 2
