"""A server that answers from a script, for what a real one does only on a bad day."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Line(NamedTuple):
    """One answer; status 0 is a connection that ends without any."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Seen(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Scripted(ThreadingHTTPServer):
    """Answers with the lines in order; the last one goes on for ever."""

    def __init__(self, lines: list[Line]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines = lines
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append(Seen(self.command, self.path, dict(self.headers.items()), body))
        line = self.server.lines.pop(0) if len(self.server.lines) > 1 else self.server.lines[0]
        if line.status == 0:
            self.close_connection = True
            return
        self.send_response(line.status)
        for name, value in line.headers.items():
            self.send_header(name, value)
        if line.status != 204:
            self.send_header("Content-Length", str(len(line.body)))
        self.end_headers()
        self.wfile.write(line.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        pass


@contextmanager
def scripted(*lines: Line) -> Iterator[Scripted]:
    """Run the script on a free port."""
    with Scripted(list(lines)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
