"""A proxy on a real socket that passes requests on, and loses the first answer to each method of each path."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.harness.server import HOST


@contextmanager
def losing(upstream: str) -> Iterator[tuple[str, list[int]]]:
    """The URL of a proxy, and the statuses of the answers that it has lost."""
    port, lost, seen = urlsplit(upstream).port, list[int](), set[str]()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            connection = http.client.HTTPConnection(HOST, port, timeout=30)
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            told = answer.read()
            connection.close()
            self.close_connection = True
            asked = f"{self.command} {self.path}"
            if asked not in seen:
                seen.add(asked)
                lost.append(answer.status)
                return
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815 - the names that the standard library looks for

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}", lost
    finally:
        server.shutdown()
        server.server_close()
        thread.join(25)
