"""One HTTP request, from its head to its answer.

The host makes it, the application answers it once: `handle(request)` returns an `Answer`, or None and answers later
with `reply`, or hands a coroutine to `later`. Answers leave in the order of the requests on the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from semel.kernel.header_fields import HeaderFields
from semel.server.http.answer import Answer, Header, StreamedAnswer
from semel.server.thread_pool import is_small

if TYPE_CHECKING:
    from semel.server.auth.principals import Principal
    from semel.server.http.head_shapes import HeadShape


class Exchange(Protocol):
    """The connection's side of one request; `server/http/exchange.py` has the real one, tests bring their own."""

    def reply(self, answer: Answer | StreamedAnswer) -> None:
        """Send the answer; does nothing when the client has gone. At most one a request."""

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Run it in a task and reply with its result; `ClientGoneError` and cancellation end it without an answer."""

    def proceed(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """The same, without a task while it waits at most once; `work` must not ask for its own task before that."""

    async def read_piece(self) -> bytes:
        """The next piece of the body, b"" behind the last one; `ClientGoneError` when it will never arrive.

        The first call sends `100 Continue` to a client that waits for it.
        """

    def bound_unsent(self, size: int) -> None:
        """Keep at most about `size` bytes in the system's send buffer, so that a slow reader is noticed here."""

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int) -> None:
        """Recognize requests like this one by their heads; `make` gets the key, `size` is that of the body."""

    def abort(self) -> None:
        """Close the connection at once, whatever is still to be sent."""


class Request:
    """What was asked for. Used on the event loop only."""

    __slots__ = (
        "_fields",
        "announced",
        "body",
        "client",
        "common",
        "credential",
        "exchange",
        "gone",
        "headers",
        "id",
        "is_whole",
        "method",
        "on_gone",
        "principal",
        "query",
        "raw_path",
        "scheme",
        "server",
        "surface",
        "version",
    )

    def __init__(
        self,
        exchange: Exchange,
        method: str,
        raw_path: bytes,
        query: bytes = b"",
        headers: list[Header] | None = None,
        version: str = "1.1",
        scheme: str = "http",
        client: tuple[str, int] | None = None,
        server: tuple[str, int] | None = None,
    ) -> None:
        self.exchange = exchange
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.headers: list[Header] = [] if headers is None else headers
        """Names in small letters, values trimmed."""
        self.version = version
        self.scheme = scheme
        self.client = client
        self.server = server
        self.body = b""
        """The body, if `is_whole`."""
        self.is_whole = True
        """Whether the whole body had arrived when the request was handed over; else `exchange.read_piece` has it."""
        self.announced = 0
        """The length of the body that a client which waits for `100 Continue` would send; 0 for any other."""
        self.gone = False
        """Whether the client has gone: the answer would reach no one."""
        self.on_gone: Callable[[], None] | None = None
        """Called once when the client goes."""
        self.id = b""
        """Given back as `x-request-id`; the application sets it before the answer."""
        self.common = b""
        """Header lines of the answer besides its own, rendered; the application sets them."""
        self.surface = "none"
        """Whose request it is, for metrics."""
        self.principal = ""
        """The actor whose credential was accepted; empty in development mode and before that."""
        self.credential: Principal | None = None
        """The principal whose credential was accepted, which may end while it is answered; None as for `principal`."""
        self._fields: HeaderFields | None = None

    @property
    def fields(self) -> HeaderFields:
        """The header fields by name."""
        if self._fields is None:
            self._fields = HeaderFields(self.headers)
        return self._fields

    @property
    def path(self) -> str:
        """The path for logs and audit lines, without the query."""
        return self.raw_path.decode("latin-1")

    @property
    def remote(self) -> str:
        """The address of the client; empty when the transport does not tell."""
        return self.client[0] if self.client else ""

    @property
    def where(self) -> dict[str, str]:
        """What was asked for and from where, for audit lines."""
        return {"path": self.path, "remote_addr": self.remote}

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Answer with the result of a coroutine, in a task of its own."""
        self.exchange.later(work)

    def proceed(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Answer with the result of a coroutine, which begins at once if the whole body is here and small."""
        if self.is_whole and is_small(len(self.body)):
            self.exchange.proceed(work)
        else:
            self.exchange.later(work)
