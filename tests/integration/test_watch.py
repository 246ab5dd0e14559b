"""Watching a run: the page while it runs, the picture in a terminal, captures of real traffic."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from scapy.contrib.roce import BTH
from scapy.utils import PcapNgReader

from fabric_emu.capture.pcapng import INBOUND, OUTBOUND
from fabric_emu.live.server import listen
from fabric_emu.net.registry import LEASE_DIR
from fabric_emu.results.browser import Browser

pytestmark = pytest.mark.root

COMMAND = [sys.executable, "-c", "from fabric_emu.cli import main; main()", "run"]
SCENARIO = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 20mbit}
workload: {pattern: pairs, flows_per_host: 4, load: 0.9, payload: 1024, duration: 600ms}
schemes: [ecmp]
"""
MESSAGES = """
title: small
topology: {leaves: 2, spines: 2, hosts_per_leaf: 2, link_rate: 40mbit, ip: 6}
workload: {kind: messages, collective: permutation, size: 256kB, payload: 1024, duration: 10s}
schemes: [ecmp]
"""


@pytest.fixture
def scenario(tmp_path):
    """Give a function that writes a scenario and returns its path."""

    def written(text):
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return str(path)

    return written


def start(*arguments, out, **options):
    return subprocess.Popen(
        [*COMMAND, *arguments, "--out", str(out)],
        text=True,
        start_new_session=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def run(*arguments, out):
    process = start(*arguments, out=out)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    (folder,) = [path for path in out.iterdir() if path.is_dir()]
    return folder, output, errors


def tshark(file, condition):
    """Return the frames that a display filter finds."""
    command = ["tshark", "-r", file, "-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-Y", condition]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.splitlines()


def test_capture_of_a_link_has_each_frame_once(scenario, tmp_path):
    out = tmp_path / "results"
    folder, _, errors = run(
        scenario(SCENARIO), "--pcap", "leaf1-spine1", "--pcap", "leaf1-spine2", out=out
    )
    (summary,) = json.loads((folder / "run.json").read_text())["schemes"]
    captures = summary["captures"]
    assert [one["of"] for one in captures] == ["leaf1-spine1", "leaf1-spine2"]
    assert sum(one["dropped"] for one in captures) == 0
    found = 0
    for one in captures:
        assert f"{one['file']}: {one['frames']:,} frames" in errors
        with PcapNgReader(str(folder / one["file"])) as reader:
            packets = list(reader)
        assert len(packets) == one["frames"]
        times = [packet.time for packet in packets]
        assert times == sorted(times)
        spine = one["of"].removeprefix("leaf1-")
        # Leaf 1 sends only: its frames arrive at the spine.
        assert {packet.sniffed_on for packet in packets} <= {f"{spine}:leaf1"}
        assert all(BTH in packet and packet.wirelen == len(packet) for packet in packets)
        found += len(packets)
    # All that was sent and not dropped before crossed one of the two uplinks.
    sent = summary["packets"]["sent"] - summary["packets"]["dropped"].get("queue_limit", 0)
    assert sent <= found <= summary["packets"]["sent"]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize(
    ("text", "ways", "headers"),
    [
        (SCENARIO, (OUTBOUND,), "infiniband.reth"),
        (MESSAGES, (INBOUND, OUTBOUND), "infiniband.aeth"),
    ],
)
def test_wireshark_dissects_captures_as_rocev2(text, ways, headers, scenario, tmp_path):
    folder, _, _ = run(scenario(text), "--pcap", "h1", out=tmp_path / "results")
    (summary,) = json.loads((folder / "run.json").read_text())["schemes"]
    (capture,) = summary["captures"]
    file = folder / capture["file"]
    # Over IPv6 the kernel itself says who listens to what.
    assert len(tshark(file, "infiniband.bth || icmpv6")) == capture["frames"]
    assert not tshark(file, "_ws.malformed || _ws.short")
    assert tshark(file, headers)
    for direction in ways:
        # Messages: 256 kB are 250 packets of 1024 bytes, and as many acknowledgements come back.
        # Else: 0.9 of 20 Mbit/s for 0.6 s are over 1000 packets.
        of = f"infiniband.bth && frame.packet_flags_direction == {direction}"
        assert len(tshark(file, of)) >= 250


def free_port():
    with listen("0") as listener:
        return listener.getsockname()[1]


def ended(process):
    """End a run as Ctrl-C does, and wait for it."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors


def test_a_taken_port_is_refused_before_anything_is_built(scenario, tmp_path):
    before = set(LEASE_DIR.glob("*.json"))
    with listen("0") as listener:
        port = str(listener.getsockname()[1])
        process = start(scenario(SCENARIO), "--live-web", port, out=tmp_path / "results")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.startswith(f"--live-web: '{port}': expected a port that can be listened on")
    assert not (tmp_path / "results").exists()
    assert not any(json.loads(path.read_text())["pid"] == process.pid for path in before)


def test_live_draws_in_a_terminal_and_leaves_it_clean(scenario, tmp_path):
    ours, theirs = pty.openpty()
    process = start(scenario(SCENARIO), "--live", out=tmp_path / "results", stderr=theirs)
    os.close(theirs)
    drawn = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the last one that had it open has gone
            break
        drawn += part
    os.close(ours)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    text = drawn.decode()
    assert "1 of 1: ecmp, seed 1" in text
    assert "spine2" in text
    # While hosts send, not only once the run is over: both in one picture, a line apart.
    assert re.search(r"s to go at most.{0,200}?reordered \d+\.\d %", text, re.DOTALL)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is back"
    assert "Results in" in output


def test_live_shows_nothing_where_there_is_no_terminal(scenario, tmp_path):
    _, _, errors = run(scenario(SCENARIO), "--live", out=tmp_path / "results")
    assert errors == ""


@pytest.fixture(scope="module")
def watched(tmp_path_factory, wait_until):
    """Start a long run with a page; give its process and the page's address once hosts send."""
    port = free_port()
    folder = tmp_path_factory.mktemp("watched")
    (folder / "small.yaml").write_text(SCENARIO)
    process = start(
        str(folder / "small.yaml"), "--set", "workload.duration=120s", "--live-web", str(port),
        out=folder / "results",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/"

    def sending():
        try:
            state = state_of(url)
        except OSError:
            assert process.poll() is None, process.communicate()
            return False
        return state and state["stage"] == "send" and state["elapsed"] > 0.5

    try:
        for _ in range(3):
            try:
                wait_until(sending)
                break
            except AssertionError:  # ten seconds may not suffice on a busy machine
                continue
        assert sending()
        yield process, url
    finally:
        if process.poll() is None:
            ended(process)


@pytest.fixture
def page(watched):
    """Give the address of the page."""
    return watched[1]


def state_of(url):
    with urllib.request.urlopen(url + "state.json", timeout=10) as answer:
        return json.load(answer)


def test_page_shows_changing_numbers_on_the_loopback_address_alone(page, wait_until):
    first = state_of(page)
    wait_until(lambda: state_of(page)["load"] != first["load"])
    second = state_of(page)
    assert second["elapsed"] > first["elapsed"]
    with urllib.request.urlopen(page + "layout.json", timeout=10) as answer:
        layout = json.load(answer)
    assert layout["names"] == ["spine1", "spine2"] * 2
    # Two hosts send 0.9 of a link each over two uplinks.
    assert sum(second["mean"][:2]) == pytest.approx(1.8, rel=0.25)
    # Already counted, and one path per flow keeps the order.
    assert second["reordered"] == pytest.approx(0, abs=0.01)
    port = int(page.rstrip("/").rpartition(":")[2])
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", port))
    listening = [
        line.split()[1]
        for file in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(file).read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F:{port:04X}"]


COUNT_PICTURES = """(() => {
  window.pictures = 0;
  const count = () => { window.pictures += 1; };
  new MutationObserver(count).observe(document.getElementById("now"), { childList: true });
})()"""


def cpu_seconds_of_view(pid):
    """Return what all threads of the process that serves the page have used of a processor."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (view,) = [
        child for child in children
        if b"fabric_emu.live" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]  # fmt: skip
    # The first figure of schedstat: nanoseconds on a processor.
    files = Path(f"/proc/{view}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_page_moves_in_a_browser_and_costs_little(watched):
    process, page = watched
    with Browser() as browser:
        browser.visit(page)
        browser.wait_for("document.querySelectorAll('.bar').length == 4")
        text = "document.getElementById('leaves').innerText"
        before = browser.evaluate(text)
        assert "leaf1" in before
        browser.wait_for(f"{text} != {json.dumps(before)}")
        assert browser.evaluate("document.getElementById('title').innerText") == "small"
        # Several times a second, for under 3 % of a processor (a tenth of that is usual).
        begin_s, spent_s = state_of(page)["elapsed"], cpu_seconds_of_view(process.pid)
        browser.evaluate(COUNT_PICTURES)
        # Counted in the browser: what asks the server for its state costs, too.
        browser.wait_for("window.pictures >= 10")
        passed_s = state_of(page)["elapsed"] - begin_s
        assert cpu_seconds_of_view(process.pid) - spent_s < 0.03 * passed_s
        # Five a second are sent; a busy machine may take more than half of them away.
        assert passed_s < 5
        assert not browser.errors
        assert all(url.startswith(page) for url in browser.requests if not url.startswith("data:"))
