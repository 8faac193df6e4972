"""Small applications behind the HTTP host, for tests of the host alone."""

from __future__ import annotations

from collections.abc import Callable

from semel.kernel.errors import Refusal
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.request import Request


class Silent:
    """Takes requests and never answers by itself; what was said to it is kept."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.statuses: list[int] = []
        self.refusals: list[Refusal] = []
        self.errors: list[Exception] = []

    def handle(self, request: Request) -> Answer | None:
        """Keep it."""
        self.requests.append(request)
        return None

    def failed(self, request: Request, error: Exception) -> Answer:
        """Keep the error."""
        self.errors.append(error)
        return Answer(500, [], b"fault")

    def answered(self, request: Request, status: int) -> None:
        """Keep the status."""
        self.statuses.append(status)

    def refused(self, refusal: Refusal) -> None:
        """Keep the refusal."""
        self.refusals.append(refusal)

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """There is no WebSocket."""
        return None

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """There is one listener."""
        return False


class Echo(Silent):
    """Answers with what was asked for: method, target, and the body."""

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


def echoed(request: Request, body: bytes) -> Answer:
    """What `Echo` answers."""
    told = b"%b %b?%b %b" % (request.method.encode(), request.raw_path, request.query, body)
    return Answer(200, [(b"content-type", b"text/plain")], told)
