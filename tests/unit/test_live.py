"""The live picture: numbers from samples, lines for a terminal, the page and its server."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fabric_emu.errors import ScenarioError
from fabric_emu.live.server import Board, listen, serve, url_of
from fabric_emu.live.shared import SharedSample
from fabric_emu.model.topology import Topology
from fabric_emu.results.live import STAGES, Layout, Meter, Picture, Sample
from fabric_emu.results.live_bars import lines
from fabric_emu.switch.ports import PORT_DTYPE, DropReason

SEND, DRAIN = STAGES.index("send"), STAGES.index("drain")
RATE = 100_000_000
SECOND_BYTES = RATE // 8


def layout_of(topology: Topology) -> Layout:
    return Layout.of(topology, [("ecmp", 1), ("mrc", 1)], 4.0, "Two schemes")


def table(topology: Topology, **loads: float) -> NDArray[np.void]:
    """Return a port table where links were asked for this share of a second, half of it queued."""
    ports = np.zeros(2 * len(topology.links), PORT_DTYPE)
    for link in topology.links:
        asked = round(loads.get(link.name.replace("-", "_"), 0.0) * SECOND_BYTES)
        ports["enqueued_bytes"][link.up_port] = asked
        ports["departed_bytes"][link.up_port] = asked // 2
    return ports


def test_load_is_what_was_asked_since_the_sample_before() -> None:
    topology = Topology()
    layout = layout_of(topology)
    meter = Meter(layout)
    meter.picture(Sample(0, SEND, 1.0, table(topology, leaf1_spine1=0.5)))
    picture = meter.picture(Sample(0, SEND, 2.0, table(topology, leaf1_spine1=1.75)))
    at = layout.links.index("leaf1-spine1")
    assert picture.load[at] == 1.25
    assert picture.mean[at] == 0.875
    assert picture.depth_bytes[at] == picture.queued_bytes == 1.75 * SECOND_BYTES // 2
    assert np.count_nonzero(picture.load) == 1
    assert picture.offered_bps == 1.25 * RATE


def test_what_is_dropped_or_trimmed_was_asked_for() -> None:
    topology = Topology()
    ports = table(topology)
    port = next(link for link in topology.links if link.name == "leaf2-spine1").up_port
    ports["dropped_bytes"][port, DropReason.QUEUE_LIMIT] = SECOND_BYTES
    ports["dropped_packets"][port, DropReason.QUEUE_LIMIT] = 12
    ports["trimmed_bytes"][port] = SECOND_BYTES
    ports["trimmed_packets"][port] = 5
    ports["marked_packets"][port ^ 1] = 3
    picture = Meter(layout_of(topology)).picture(Sample(0, SEND, 1.0, ports))
    assert picture.load.max() == 2.0
    assert (picture.dropped, picture.trimmed, picture.marked) == (12, 5, 3)
    assert picture.lost.sum() == 12


def test_loads_stay_while_queues_drain_and_what_is_over_is_remembered() -> None:
    topology = Topology()
    meter = Meter(layout_of(topology))
    meter.picture(Sample(0, SEND, 1.0, table(topology, leaf1_spine2=1.5), 400, 40))
    last = meter.picture(Sample(0, DRAIN, 2.0, table(topology, leaf1_spine2=1.5), 400, 80))
    assert last.load.max() == 1.5
    assert last.reordered == 0.2
    fresh = meter.picture(Sample(1, SEND, 0.0, table(topology)))
    assert not fresh.load.any()
    (over,) = fresh.past
    assert (over.run, over.load, over.link) == (0, 1.5, "leaf1-spine2")
    assert (over.reordered, fresh.reordered) == (0.2, None)
    # What was measured of all arrivals may come after the next run has begun.
    meter.measured(0, 0.25)
    later = meter.picture(Sample(1, SEND, 0.1, table(topology)))
    assert (later.reordered, later.past[0].reordered) == (None, 0.25)


def test_three_tiers_show_leaves_and_one_chassis_its_hosts() -> None:
    three = layout_of(Topology(tiers=3, pods=2, leaves=1, spines=2, super_spines=4))
    assert [name for name, _, _ in three.switches] == ["leaf1", "leaf2"]
    chassis = layout_of(Topology(tiers=1, leaves=1, spines=0, hosts_per_leaf=3))
    assert chassis.names == ("h1", "h2", "h3")
    assert (chassis.ports % 2 == 1).all()  # the chassis's ends of the links


def picture_of(topology: Topology) -> tuple[Layout, Picture]:
    layout = layout_of(topology)
    meter = Meter(layout)
    meter.picture(Sample(0, SEND, 1.0, table(topology, leaf1_spine1=1.6)))
    meter.measured(0, 0.125)
    return layout, meter.picture(Sample(1, SEND, 1.0, table(topology, leaf1_spine1=1.4), 1000, 345))


@pytest.mark.parametrize("width", [40, 79, 200])
@pytest.mark.parametrize("height", [5, 23, 60])
@pytest.mark.parametrize("leaves", [1, 2, 40])
def test_lines_fit_the_terminal(width: int, height: int, leaves: int) -> None:
    layout, picture = picture_of(Topology(leaves=leaves, spines=12))
    drawn = lines(layout, picture, width, height, ascii_only=False)
    assert len(drawn) <= height
    assert max(line.cell_len for line in drawn) <= width


def test_lines_say_what_is_to_be_seen() -> None:
    layout, picture = picture_of(Topology())
    drawn = [line.plain for line in lines(layout, picture, 79, 23, ascii_only=True)]
    assert drawn[0] == "Two schemes"
    assert drawn[1] == "2 of 2: mrc, seed 1   1.0 s, 3.0 s to go at most"
    assert drawn[2].startswith("offered 140 Mbit/s   queued ")
    assert drawn[2].endswith("   reordered 34.5 %")
    assert drawn[3] == "dropped 0   trimmed 0   marked 0"
    assert drawn[4] == (
        "ecmp, seed 1: 160 % on leaf1-spine1, reordered 12.5 %, dropped 0, trimmed 0"
    )
    busiest = next(line for line in drawn if line.startswith("spine1"))
    assert "#|#" in busiest
    assert "140 %" in busiest
    assert "\n".join(drawn).isascii()


def test_leaves_without_room_are_summed_up() -> None:
    layout, picture = picture_of(Topology(leaves=40, spines=12))
    drawn = lines(layout, picture, 79, 23, ascii_only=False)
    assert drawn[-1].plain.startswith("38 more leaves, up to 0")


# Between the processes.


def test_a_sample_crosses_memory_whole() -> None:
    topology = Topology()
    ports = table(topology, leaf1_spine1=0.75)
    ours = SharedSample(len(ports))
    theirs = SharedSample(len(ports), socket.dup(ours.fd))
    assert theirs.read() is None
    ours.write(1, SEND, 0.5, ports, (20, 3))
    sample = theirs.read()
    assert sample is not None
    assert (sample.run, sample.stage, sample.elapsed_s) == (1, SEND, 0.5)
    assert (sample.ports == ports).all()
    before = theirs.sequence()
    ours.write(1, DRAIN, 0.6)
    sample = theirs.read()
    assert sample is not None
    assert sample.stage == DRAIN
    assert (sample.ports == ports).all()
    assert (sample.received, sample.late) == (20, 3)
    assert theirs.sequence() != before
    ours.clear(0, 0)
    sample = theirs.read()
    assert sample is not None
    assert not sample.ports["enqueued_bytes"].any()
    assert (sample.received, sample.late) == (0, 0)
    del sample
    theirs.close()
    ours.close()


# The page.


@pytest.fixture
def page() -> Iterator[tuple[str, Board]]:
    listener = listen("0")
    board = Board(layout_of(Topology()).document())
    stop = serve(listener, board)
    yield url_of(listener), board
    stop()
    listener.close()


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_server_gives_layout_and_the_latest_state(page: tuple[str, Board]) -> None:
    url, board = page
    assert fetched(url + "layout.json")["title"] == "Two schemes"
    assert fetched(url + "state.json") is None
    for run in (0, 1):
        board.put({"run": run})
        assert fetched(url + "state.json") == {"run": run}


def test_server_sends_every_change_as_an_event(page: tuple[str, Board]) -> None:
    url, board = page
    board.put({"run": 0})
    with urllib.request.urlopen(url + "events", timeout=10) as events:
        assert events.headers["Content-Type"] == "text/event-stream"
        found = [events.readline().decode() for _ in range(4)]
        assert found[0] == "event: layout\n"
        assert found[3] == 'data: {"run":0}\n'
        board.put({"run": 1})
        assert [events.readline() for _ in range(2)] == [b"\n", b'data: {"run":1}\n']


def test_page_is_whole_and_asks_for_nothing_elsewhere(page: tuple[str, Board]) -> None:
    url, _ = page
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "http:" not in text
    assert "https:" not in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + "../run.json", timeout=10)


def test_server_listens_on_the_loopback_address_unless_told_otherwise() -> None:
    with listen("0") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with listen("127.0.0.2:0") as listener:
        assert url_of(listener).startswith("http://127.0.0.2:")


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "localhost:80", "127.0.0.1:", "٣"])
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="--live-web"):
        listen(text)


def test_a_port_that_is_taken_is_refused() -> None:
    with listen("0") as listener:
        port = str(listener.getsockname()[1])
        with pytest.raises(ScenarioError, match=f"'{port}': .*Address already in use"):
            listen(port)
