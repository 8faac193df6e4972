"""One HTTP request, from its head to its answer.

The host creates it, and the application answers it once: `handle(request)` returns an `Answer`, or returns None and
answers later with `reply`, or passes a coroutine to `later`. Answers are sent in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from semel.kernel.header_fields import HeaderFields
from semel.kernel.namespace import DEFAULT
from semel.server.http.answer import Answer, Header, StreamedAnswer
from semel.server.ops.log_facts import request_facts
from semel.server.thread_pool import is_small

if TYPE_CHECKING:
    from semel.server.auth.principals import Principal
    from semel.server.http.head_shapes import HeadShape
    from semel.server.ops.traces import TracedCall
    from semel.server.quotas.accounts import QuotaHolder


WRITES_PATH = b"/v1/writes/"
"""Look-ups of writes are below this path. What follows may be an idempotency key, so no log line has it."""


class Exchange(Protocol):
    """The connection's side of one request; implemented in `server/http/exchange.py`, and by tests."""

    @property
    def connection(self) -> QuotaHolder:
        """The connection, which is counted for the principal of its latest request."""

    def reply(self, answer: Answer | StreamedAnswer) -> None:
        """Send the answer; does nothing if the client has disconnected. At most once for each request."""

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Run a coroutine in a task and reply with its result; `ClientGoneError` and cancellation end it without an
        answer.
        """

    def proceed(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """The same, without a task while it waits at most once; `work` must not ask for its own task before that."""

    async def read_piece(self) -> bytes:
        """The next piece of the body, b"" after the last one; `ClientGoneError` if it will never arrive.

        The first call sends `100 Continue` to a client that waits for it.
        """

    def reply_late(self, answer: Answer, seconds: float) -> None:
        """As `reply`, after this time: meanwhile the connection begins no other request."""

    def bound_unsent(self, size: int) -> None:
        """Keep at most about `size` bytes in the system's send buffer, so that a slow reader is noticed."""

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Recognize requests like this one by their heads; `make` gets the key, `size` is that of the body.

        With a `prefix`, the key is the name in the path after these first bytes of the head.
        """

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""


class Request:
    """One request. Used on the event loop only."""

    __slots__ = (
        "_fields",
        "announced",
        "began_at",
        "body",
        "client",
        "common",
        "credential",
        "exchange",
        "gone",
        "headers",
        "id",
        "is_live",
        "is_whole",
        "method",
        "namespace",
        "on_gone",
        "principal",
        "query",
        "raw_path",
        "scheme",
        "server",
        "surface",
        "traced",
        "version",
    )

    namespace: str
    """The namespace of the request; not set in the default one of a process."""
    traced: TracedCall
    """The span of the request; not set unless it is traced."""

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
        """Names in lower case, values trimmed."""
        self.version = version
        self.scheme = scheme
        self.client = client
        self.server = server
        self.body = b""
        """The body, if `is_whole`."""
        self.is_whole = True
        """Whether the body was complete when the request was passed on; otherwise `exchange.read_piece` returns it."""
        self.announced = 0
        """The Content-Length of a client that waits for `100 Continue`; 0 for any other."""
        self.began_at = monotonic()
        """When the head was complete, in seconds of the monotonic clock."""
        self.is_live = False
        """Whether the answer waits for new data on purpose: a long poll, or a stream of events."""
        self.gone = False
        """Whether the client has disconnected."""
        self.on_gone: Callable[[], None] | None = None
        """Called once when the client disconnects."""
        self.id = b""
        """Returned as `x-request-id`; the application sets it before the answer."""
        self.common = b""
        """Rendered header lines of the answer besides its own; the application sets them."""
        self.surface = "none"
        """The surface of the request, for metrics."""
        self.principal = ""
        """The actor of the accepted credential; empty in development mode and before authentication."""
        self.credential: Principal | None = None
        """The principal of the accepted credential, which may expire while it is answered; None as for `principal`."""
        self._fields: HeaderFields | None = None

    @property
    def fields(self) -> HeaderFields:
        """The header fields by name."""
        if self._fields is None:
            self._fields = HeaderFields(self.headers)
        return self._fields

    @property
    def path(self) -> str:
        """The path for logs and audit lines, without the query, and without the id in a look-up of a write."""
        if self.raw_path.startswith(WRITES_PATH):
            return f"{WRITES_PATH.decode()}{{id}}"
        return self.raw_path.decode("latin-1")

    @property
    def remote(self) -> str:
        """The address of the client; empty if the transport does not know it."""
        return self.client[0] if self.client else ""

    @property
    def where(self) -> dict[str, str]:
        """Method, path and remote address, for audit lines."""
        return {"path": self.path, "remote_addr": self.remote}

    def log_facts(self) -> dict[str, str]:
        """What every log line of the request has."""
        return request_facts(self.id, self.fields, getattr(self, "namespace", DEFAULT))

    def end_trace(self) -> None:
        """The client has disconnected: end the span of a traced request."""
        traced: TracedCall | None = getattr(self, "traced", None)
        if traced is not None:
            traced.leave()

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Answer with the result of a coroutine, in a task."""
        self.exchange.later(work)

    def proceed(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Answer with the result of a coroutine, which begins at once if the whole body is here and small."""
        if self.is_whole and is_small(len(self.body)):
            self.exchange.proceed(work)
        else:
            self.exchange.later(work)
