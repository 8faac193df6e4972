"""A server of keys over HTTP, or with a certificate over TLS, and JWTs that these keys verify."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt

from tests.harness.server import HOST
from tests.server.auth import signing


def key_set(*kids: str) -> bytes:
    keys = [signing.ed_jwk(signing.ed_key(number)) | {"kid": kid} for number, kid in enumerate(kids)]
    return json.dumps({"keys": keys}).encode()


def signed(number: int, kid: str, **claims: Any) -> str:
    given = {"sub": "ada", "exp": int(time.time()) + 600} | claims
    return jwt.encode(given, signing.ed_key(number), "EdDSA", {"kid": kid})


class QuietServer(ThreadingHTTPServer):
    """A server that prints nothing about a client that does not trust it."""

    def handle_error(self, *_: object) -> None:
        """Nothing is printed."""


class KeyServer:
    """A server of keys; `answer` writes what it answers with."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.keys("first")
        keys = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys.asked.append(self.path)
                keys.answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = QuietServer((HOST, 0), Handler)
        self.port = self.server.server_port
        self.url = f"{'http' if tls is None else 'https'}://{HOST}:{self.port}/keys.json"
        if tls is not None:  # the handshake is that of the thread of a connection
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def keys(self, *kids: str, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
        return self.body(key_set(*kids), 200, **headers)

    def body(self, body: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in ({"Content_Length": str(len(body))} | headers).items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            request.wfile.write(body)

        return answer

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()
