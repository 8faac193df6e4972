"""A server between a client and the real one, which may change what the real one answers."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx

from tests.harness.server import HOST

SECONDS = 30.0
Forge = Callable[[str, Any], Any]
"""Gets the path and the JSON of an answer, and returns the JSON that the client gets."""
Spoil = Callable[[bytes], bytes]
"""Gets the bytes of an answer's body, and returns those that the client gets."""
Meddle = Callable[[str], tuple[int, bytes] | None]
"""Gets the path of a request, and may wait. Returns the status and the body of its answer; None passes it on."""
KEPT = ("authorization", "content-type", "idempotency-key")
"""Headers of a request that are passed on."""


class ForgingProxy:
    """Passes requests on, and changes answers while `forge` is set."""

    def __init__(self, url: str) -> None:
        self.forge: Forge | None = None
        self.meddle: Meddle | None = None
        self.spoils: deque[Spoil] = deque()
        """What becomes of the next answers to writes."""
        self.instead: deque[tuple[int, bytes] | None] = deque()
        """Statuses and bodies that answer the next requests, which are not passed on; None passes one on."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                own = proxy.instead.popleft() if proxy.instead else None
                if proxy.meddle is not None:
                    own = proxy.meddle(self.path)
                if own is not None:
                    self.send_response(own[0])
                    self.send_header("Content-Length", str(len(own[1])))
                    self.end_headers()
                    self.wfile.write(own[1])
                    return
                kept = {"Content-Type": "application/json"}
                kept |= {name: value for name, value in self.headers.items() if name.lower() in KEPT}
                answer = httpx.request(self.command, url + self.path, content=body, headers=kept, timeout=SECONDS)
                content = answer.content
                if proxy.forge is not None:
                    content = json.dumps(proxy.forge(self.path, answer.json())).encode()
                if proxy.spoils and self.command != "GET":
                    content = proxy.spoils.popleft()(content)
                self.send_response(answer.status_code)
                for name in ("content-type", "idempotency-replayed", "events-replayed", "events-log-epoch"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815 - the names that the standard library calls

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)
