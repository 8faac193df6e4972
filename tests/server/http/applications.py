"""A small application behind the HTTP host, for tests of the host alone."""

from __future__ import annotations

from collections.abc import Callable

from semel.kernel.errors import Refusal
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.request import Request


class Echo:
    """Answers with what was asked for: method, target, and the body."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def handle(self, request: Request) -> Answer | None:
        """At once when the body is there, else later."""
        self.requests.append(request)
        if request.is_whole:
            return echoed(request, request.body)
        request.later(self._read(request))
        return None

    async def _read(self, request: Request) -> Answer:
        body = bytearray()
        while piece := await request.exchange.read_piece():
            body += piece
        return echoed(request, bytes(body))

    def failed(self, request: Request, error: Exception) -> Answer:
        """No request of these tests fails."""
        raise error

    def answered(self, request: Request, status: int) -> None:
        """The client sees it."""

    def refused(self, refusal: Refusal) -> None:
        """The client sees it."""

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """There is no WebSocket."""
        return None

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """There is one listener."""
        return False


def echoed(request: Request, body: bytes) -> Answer:
    """What `Echo` answers."""
    told = b"%b %b?%b %b" % (request.method.encode(), request.raw_path, request.query, body)
    return Answer(200, [(b"content-type", b"text/plain")], told)
