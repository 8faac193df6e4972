"""A proxy on a real socket: in a thread of this process, or as a process that may be killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from semel.once import Once
from semel.proxy.app import Proxy
from semel.proxy.process import listener_at, server_of, url_of
from semel.proxy.settings import ProxySettings, route_of
from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually

ROOT = Path(__file__).parent.parent.parent
CLIENT = httpx.Client(verify=False, timeout=25, limits=httpx.Limits(max_keepalive_connections=0))
"""One connection a request, and no certificates to read."""
ROUTES = tuple(
    route_of(text, "refuse")
    for text in (
        "POST /charges",
        "POST /lost",
        "POST /half",
        "POST /hold",
        "POST /drip",
        "POST /events",
        "POST /deaf",
        "POST /large",
        "POST /as/*",
        "PUT /things/* retry",
        "POST /again retry",
    )
)


@contextmanager
def proxied(upstream: str, store: Once, **options: object) -> Iterator[str]:
    """The URL of a proxy in a thread."""
    settings = ProxySettings(upstream, **{"routes": ROUTES, "stop_timeout": 5.0, "scope_headers": (), **options})  # type: ignore[arg-type]
    server, listener = server_of(settings, Proxy(settings, store)), listener_at(HOST, 0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(25)
        assert not thread.is_alive()


class Process:
    """A program of this repository on a port of its own, which may be started again."""

    def __init__(self, *words: str) -> None:
        guard()
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._words = words
        self.variables: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, output: Path | None = None, **variables: str) -> None:
        """Start it, and wait until it listens."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        env |= self.variables | variables
        words = [sys.executable, "-m", *(word.format(port=self.port) for word in (*self._words, *more))]
        with (output or Path(os.devnull)).open("ab") as told:
            self.process = subprocess.Popen(words, cwd=ROOT, env=env, stdout=told, stderr=told)
        eventually(self._listens, "it listens")

    def kill(self) -> None:
        """End it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(25)
            self.process = None

    def died(self) -> None:
        """Wait for a death of its own."""
        assert self.process is not None
        assert self.process.wait(25) == -9
        self.process = None

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "it ended"
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False


def exchanged(url: str, data: bytes | Sequence[bytes]) -> bytes:
    """What comes back for bytes on a socket, until it is closed."""
    host, port = url.removeprefix("http://").split(":")
    found = b""
    with socket.create_connection((host, int(port)), timeout=25) as connection:
        for piece in [data] if isinstance(data, bytes) else data:
            connection.sendall(piece)
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                found += piece
    return found
