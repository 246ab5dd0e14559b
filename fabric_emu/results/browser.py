"""A headless Chromium that draws pages: for pictures in files, and for tests of what it shows.

It is talked to over two pipes in the protocol of its developer tools: no port is opened, no
driver is needed, and it is told to know no host but this one's loopback address.
Source: chromedevtools.github.io/devtools-protocol (Target, Page, Runtime, Emulation, Network).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fabric_emu.errors import CommandFailed, HostUnfit, WaitTimeout

TIMEOUT_S = 60.0
_ENDING_S = 5.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_REMEDY = "sudo apt-get install chromium (or save single plots from the report itself, as SVG)"
_SWITCHES = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
)


def chromium() -> str:
    """Return the path of a Chromium or Chrome.

    Raises:
        HostUnfit: there is none.
    """
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise HostUnfit("no Chromium, which draws the pictures", _REMEDY)


class Browser:
    """One page of a headless browser.

    Attributes:
        errors: what the page said on its console as errors, exceptions that nobody caught, and
            what the browser refused to do for it.
        requests: addresses that the page asked for, its own included.

    Raises:
        HostUnfit: there is no browser.
        CommandFailed: it ended.
        WaitTimeout: it does not answer.
    """

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._size = (width, height)
        self._resources = contextlib.ExitStack()
        self._buffer = b""
        self._events: deque[dict[str, Any]] = deque()
        self._number = 0
        self._session: str | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
            self._resources = stack.pop_all()
        self.look(dark=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resources.close()

    def open(self, file: Path) -> None:
        """Open a file of HTML and wait until it is loaded."""
        self.visit(file.absolute().as_uri())

    def visit(self, url: str) -> None:
        """Open a page, of a file or at the loopback address, and wait until it is loaded."""
        self._events.clear()
        self._call("Page.navigate", url=url)
        deadline = time.monotonic() + TIMEOUT_S
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive(deadline, f"{url} to load")

    def look(self, *, dark: bool, width: int = 0, height: int = 0) -> None:
        """Choose the colour scheme that the page finds preferred, and the window's size."""
        self._size = (width or self._size[0], height or self._size[1])
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=self._size[0],
            height=self._size[1],
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """Return what JavaScript gives, as JSON has it; promises are waited for.

        Raises:
            CommandFailed: it threw something.
        """
        found = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if details := found.get("exceptionDetails"):
            raise CommandFailed(f"the page: {_thrown(details)}")
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise WaitTimeout(f"{condition} did not come true; errors: {self.errors}")
            self.evaluate("new Promise(done => setTimeout(done, 20))")

    def point_at(self, element: str) -> None:
        """Move the pointer to the middle of an element, which is scrolled into view."""
        x, y = self.evaluate(
            f"(() => {{ const one = {element}; one.scrollIntoView({{block: 'center'}});"
            " const box = one.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def show(self, svg: str, width: int) -> None:
        """Show nothing but a drawing, as wide as this, on white."""
        size = "<style>body{margin:0;background:#fff}svg{display:block;width:100%}</style>"
        frame = self._call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.look(dark=False, width=width, height=10)
        self._call("Page.setDocumentContent", frameId=frame, html=f"<!doctype html>{size}{svg}")

    def screenshot(self, scale: float = 1) -> bytes:
        """Return all of the page as PNG, each pixel of it ``scale`` wide and high."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": self._size[0], "height": size["height"], "scale": scale}
        found = self._call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(found["data"])

    def _start(self, stack: contextlib.ExitStack) -> None:
        program = chromium()
        profile = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="fabric-emu-chromium-", ignore_cleanup_errors=True)
        )
        arguments = [program, *_SWITCHES, f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # root has none
        their_in, self._out = _pipe()
        stack.callback(os.close, self._out)
        self._in, their_out = _pipe()
        stack.callback(os.close, self._in)
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, their_in, 3), (os.POSIX_SPAWN_DUP2, their_out, 4)]
        try:
            pid = os.posix_spawn(
                program,
                arguments,
                {**os.environ, "HOME": profile},
                file_actions=[*nowhere, *pipes],
                setsid=True,
            )
        finally:
            os.close(their_in)
            os.close(their_out)
        stack.callback(_end, pid)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        try:
            while content:
                content = content[os.write(self._out, content) :]
        except BrokenPipeError:
            raise CommandFailed("Chromium ended") from None
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._receive(deadline, f"an answer to {method}")
            if answer is None or answer.get("id") != self._number:
                continue
            if "error" in answer:
                raise CommandFailed(f"Chromium: {method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _receive(self, deadline: float, awaited: str) -> dict[str, Any] | None:
        """Return the next answer; None after an event, which is kept."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WaitTimeout(f"Chromium: waited {TIMEOUT_S:.0f} s for {awaited}")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise CommandFailed(f"Chromium ended while awaiting {awaited}")
            self._buffer += part
        content, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(content)
        if "id" in message:
            return message
        self._note(message)
        self._events.append(message)
        return None

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event["method"]:
            case "Runtime.exceptionThrown":
                self.errors.append(_thrown(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "assert"):
                words = [
                    str(one.get("value", one.get("description"))) for one in parameters["args"]
                ]
                self.errors.append(" ".join(words))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])


def _thrown(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])


def _pipe() -> tuple[int, int]:
    """Return a pipe's ends, away from the low numbers that the browser's own will have."""
    ends = []
    for fd in os.pipe():
        ends.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(fd)
    return ends[0], ends[1]


def _end(pid: int) -> None:
    """End the browser and its helpers, which share a session that is theirs alone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # The helpers, too, before the profile goes that they write to.
    deadline = time.monotonic() + _ENDING_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(pid, 0)
            time.sleep(0.01)
