"""A real browser without a window: Debian's Chromium, driven over its DevTools protocol.

Where Chromium is not installed it is installed from Debian's packages, which takes root. Names of tests lead to this
machine, and the browser reaches nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.harness.server import HOST

PROGRAM = "/usr/bin/chromium"
FOREIGN, REBOUND = "evil.example", "rebound.example"
PATIENCE_SECONDS = 60.0
INSTALL_SECONDS = 540.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A tab in the background goes on like one in front: tests open a second one beside it.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--no-proxy-server",
    "--remote-debugging-port=0",
    f"--host-resolver-rules=MAP {FOREIGN} {HOST}, MAP {REBOUND} {HOST}, MAP *.localhost {HOST}",
)


class BrowserError(Exception):
    """There is no browser, or it does not do what it is told."""


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []
        """What the browser told without being asked, of the domains that were enabled."""

    def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        self.ask("Page.enable")
        answer = self.ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.run("location.href + ' ' + document.readyState") != f"{url} complete":
            if time.monotonic() > deadline:
                raise BrowserError(f"{url} is not loaded")
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """What an expression of the page's own script comes to; a promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the DevTools protocol; events that arrive do not extend the wait."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                message = json.loads(self._socket.recv(max(deadline - time.monotonic(), 0.0)))
            except TimeoutError as error:
                raise BrowserError(f"{method} was not answered within {PATIENCE_SECONDS:.0f} s") from error
            if message.get("id") == self._number:
                if "error" in message:
                    raise BrowserError(json.dumps(message["error"]))
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)


class Browser:
    """A running browser."""

    def __init__(self, port: int) -> None:
        self._port = port

    @contextmanager
    def page(self, url: str) -> Iterator[Page]:
        """A new tab that shows a page."""
        tab = httpx.put(f"http://{HOST}:{self._port}/json/new?about:blank").json()
        # Without a bound and pings: a test that asks nothing for a while reads no events, and no pong behind them.
        address = tab["webSocketDebuggerUrl"]
        with connect(address, proxy=None, max_size=None, max_queue=None, ping_interval=None) as socket:
            page = Page(socket)
            page.open(url)
            yield page
        httpx.get(f"http://{HOST}:{self._port}/json/close/{tab['id']}")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone at the end."""
    install()
    profile = Path(tempfile.mkdtemp(prefix="semel-chromium-"))
    process = subprocess.Popen(
        [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        env=os.environ | {"HOME": str(profile)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield Browser(_debugging_port(process, profile / "DevToolsActivePort"))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
        shutil.rmtree(profile, ignore_errors=True)


def _debugging_port(process: subprocess.Popen[bytes], file: Path) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError, ValueError, IndexError):  # not there, or not written yet
            return int(file.read_text().splitlines()[0])
        time.sleep(0.05)
    raise BrowserError(f"{PROGRAM} did not start, or died")


def install() -> None:
    """Take Chromium from Debian where it is missing."""
    if Path(PROGRAM).exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BrowserError(f"These tests need {PROGRAM}: install it with `apt-get install chromium`, as root.")
    with (Path(tempfile.gettempdir()) / "semel-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side want it at the same time
        if Path(PROGRAM).exists():
            return
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for words in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
            command = ["apt-get", "-qq", *words]
            done = subprocess.run(command, env=quiet, capture_output=True, timeout=INSTALL_SECONDS, check=False)
            if done.returncode != 0:
                raise BrowserError(f"apt-get {words[0]} failed: {done.stderr.decode()[-500:]}")


class _Blank(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    timeout = 1.0
    """Browsers open connections that they may need later; none of them outlives the server by more than this."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title><body></body>")

    def log_message(self, *_: object) -> None:
        pass


class _Pages(ThreadingHTTPServer):
    daemon_threads = False
    """So that its end waits for them."""


@contextmanager
def pages(port: int = 0) -> Iterator[int]:
    """A web server with nothing but blank pages; its port."""
    with _Pages((HOST, port), _Blank) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)
