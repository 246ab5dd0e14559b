"""A small web server for the live picture: the page, and what changes in it as events."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from fabric_emu.errors import ScenarioError

LOOPBACK = "127.0.0.1"
_KEEP_ALIVE_S = 10.0
_SEND_TIMEOUT_S = 5.0
_CLIENTS_MAX = 32
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:"
)


def listen(text: str) -> socket.socket:
    """Return a socket that listens at ``PORT``, on the loopback address, or at ``ADDRESS:PORT``.

    Raises:
        ScenarioError: that is neither, or somebody else listens there.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ScenarioError("--live-web", text, "PORT or ADDRESS:PORT, with a port up to 65535")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    try:
        found = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        raise ScenarioError(
            "--live-web", text, "a numeric address, such as 127.0.0.1:8080 or [::1]:8080"
        ) from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ScenarioError(
            "--live-web", text, f"a port that can be listened on ({error.strerror})"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class Board:
    """The latest picture as JSON, which several threads wait for.

    Args:
        layout: what pages need to know once, ready for JSON.
    """

    def __init__(self, layout: dict[str, Any]) -> None:
        self.layout = json.dumps(layout, separators=(",", ":"))
        self._state = ""
        self._version = 0
        self._changed = threading.Condition()

    def put(self, state: dict[str, Any]) -> None:
        """Replace the picture."""
        text = json.dumps(state, separators=(",", ":"))
        with self._changed:
            self._state, self._version = text, self._version + 1
            self._changed.notify_all()

    def get(self, seen: int = -1, timeout_s: float = 0.0) -> tuple[int, str]:
        """Return version and picture, once it is another version than ``seen`` or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen, timeout_s)
            return self._version, self._state


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, board: Board) -> None:
        socketserver.BaseServer.__init__(self, listener.getsockname(), _Handler)
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.board = board
        self.page = resources.files("fabric_emu.results").joinpath("templates/live.html")
        self.places = threading.BoundedSemaphore(_CLIENTS_MAX)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that goes away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _SEND_TIMEOUT_S

    def do_GET(self) -> None:
        board = self.server.board
        match self.path.partition("?")[0]:
            case "/":
                self._answer("text/html; charset=utf-8", self.server.page.read_bytes())
            case "/layout.json":
                self._answer("application/json", board.layout.encode())
            case "/state.json":
                self._answer("application/json", (board.get()[1] or "null").encode())
            case "/events":
                self._events(board)
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self._headers(kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")

    def _events(self, board: Board) -> None:
        """Send the layout, then every picture, until the browser goes away."""
        if not self.server.places.acquire(blocking=False):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self._headers("text/event-stream")
            self.end_headers()
            self._send(f"event: layout\ndata: {board.layout}\n\n")
            version = 0
            while True:
                new, state = board.get(version, _KEEP_ALIVE_S)
                self._send(f"data: {state}\n\n" if new != version else ": still there\n\n")
                version = new
        finally:
            self.server.places.release()

    def _send(self, text: str) -> None:
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is somebody else's."""


def serve(listener: socket.socket, board: Board) -> Callable[[], None]:
    """Serve the page from a thread, and return what ends that."""
    server = _Server(listener, board)
    threading.Thread(target=server.serve_forever, args=(1.0,), daemon=True).start()
    return server.shutdown
