"""A webhook receiver of the tests: it keeps every request, and answers each as its script says."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.harness.server import HOST, free_port

WAIT_SECONDS = 30.0


class Delivery(NamedTuple):
    """One webhook as it arrived."""

    method: str
    path: str
    raw: bytes
    signature: str
    body: dict[str, Any]
    headers: dict[str, str]

    def stream(self, path: str) -> dict[str, Any]:
        """What it says of one stream."""
        return next(one for one in self.body["streams"] if one["path"] == path)


class Reply(NamedTuple):
    """How a request is answered."""

    status: int = 200
    body: bytes = b'{"done":true}'
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    """Wait before the answer."""
    hangs: bool = False
    """Never answer, and close the connection when the receiver ends."""


DONE = Reply()
ACCEPTED = Reply(body=b"{}")


class Receiver:
    """Listens on a port of its own until it is closed; `kill` and `revive` close it and open it again."""

    def __init__(self, answer: Callable[[Delivery], Reply] = lambda delivery: DONE) -> None:
        self.port = free_port()
        self.answer = answer
        self.got: list[Delivery] = []
        self.is_over = threading.Event()
        self._came = threading.Condition()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The URL of the webhook."""
        return f"http://{HOST}:{self.port}/hook"

    def revive(self) -> None:
        """Listen."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.take(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST  # noqa: N815 - names of the standard library

            def log_message(self, *args: Any) -> None:
                """Be quiet."""

        ThreadingHTTPServer.allow_reuse_address = True
        self.is_over.clear()
        self._server = ThreadingHTTPServer((HOST, self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def kill(self) -> None:
        """Listen no more: connections are refused."""
        assert self._server is not None
        self.is_over.set()
        self._server.shutdown()
        self._server.socket.close()
        self._server = None

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        """Keep a request and answer it."""
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        signature = headers.get("webhook-signature", "")
        delivery = Delivery(handler.command, handler.path, raw, signature, json.loads(raw or b"{}"), headers)
        with self._came:
            self.got.append(delivery)
            self._came.notify_all()
        reply = self.answer(delivery)
        if reply.hangs:
            self.is_over.wait(60)
            handler.close_connection = True
            return
        self.is_over.wait(reply.seconds)
        try:
            handler.send_response(reply.status)
            for name, value in (("Content-Length", str(len(reply.body))), *reply.headers):
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(reply.body)
        except OSError:
            handler.close_connection = True

    def wait(self, count: int, seconds: float = WAIT_SECONDS) -> list[Delivery]:
        """The requests so far, once there are this many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got) >= count, seconds), f"{len(self.got)} of {count} came"
            return list(self.got)

    def __enter__(self) -> Self:
        self.revive()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self.kill()


def is_signed(delivery: Delivery, jwks: dict[str, Any]) -> bool:
    """Whether a webhook has a valid signature of one of these keys."""
    parts = dict(part.split("=", 1) for part in delivery.signature.split(","))
    key = next(key for key in jwks["keys"] if key["kid"] == parts["kid"])
    public = Ed25519PublicKey.from_public_bytes(_unpadded(key["x"]))
    try:
        public.verify(_unpadded(parts["ed25519"]), f"{parts['t']}.".encode() + delivery.raw)
    except InvalidSignature:
        return False
    return True


def _unpadded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Control:
    """Calls of the streams surface and of its control routes."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=f"{url}/v1/stream/", headers=headers, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def create(self, path: str, *events: Any) -> None:
        body = json.dumps(list(events))
        self.http.put(path, content=body, headers={"content-type": "application/json"}).raise_for_status()

    def append(self, path: str, *events: Any) -> str:
        body = json.dumps(list(events))
        answer = self.http.post(path, content=body, headers={"content-type": "application/json"})
        return str(answer.raise_for_status().headers["stream-next-offset"])

    def read(self, path: str, offset: str = "-1") -> list[Any]:
        found: list[Any] = self.http.get(path, params={"offset": offset}).raise_for_status().json()
        return found

    def put(self, name: str, **members: Any) -> httpx.Response:
        return self.http.put(f"__ds/subscriptions/{name}", json=members)

    def webhook(self, name: str, url: str, **members: Any) -> dict[str, Any]:
        answer = self.put(name, type="webhook", webhook={"url": url}, **members)
        assert answer.status_code in (200, 201), answer.text
        record: dict[str, Any] = answer.json()
        return record

    def get(self, name: str) -> dict[str, Any]:
        record: dict[str, Any] = self.http.get(f"__ds/subscriptions/{name}").raise_for_status().json()
        return record

    def acked(self, name: str, path: str) -> str | None:
        """The acknowledged offset of a stream; None if it is not linked."""
        return next((one["acked_offset"] for one in self.get(name)["streams"] if one["path"] == path), None)

    def call(self, name: str, what: str, token: str | None = None, **members: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.http.post(f"__ds/subscriptions/{name}/{what}", json=members, headers=headers)

    def callback(self, delivery: Delivery, **members: Any) -> httpx.Response:
        """Call back for a webhook, as its body says."""
        body = {"wake_id": delivery.body["wake_id"], "generation": delivery.body["generation"]} | members
        headers = {"Authorization": f"Bearer {delivery.body['callback_token']}"}
        return self.http.post(delivery.body["callback_url"], json=body, headers=headers)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal on a control route."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["message"]
    return answer.status_code, error["code"]


def until(is_so: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
