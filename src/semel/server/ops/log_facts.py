"""The request id, `traceparent` and namespace of the log lines that belong to a request, a message or a call.

The line of a fault gets them from the request that failed, so a server without an access log pays nothing for them.
With an access log or a slow log, `REQUEST` names the request whose code runs, and all lines that this code logs get
them. A background task of a namespace runs with `NAMESPACE` set, so its lines name the namespace.

An id that a client sent is checked before it is used: it has at most 128 printable ASCII characters.
Nothing else that a client sent gets into a line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from semel.kernel.namespace import DEFAULT

if TYPE_CHECKING:
    from semel.engine.caller import RequestOrigin, WaitingCaller
    from semel.kernel.header_fields import HeaderFields

MAX_TOLD = 20
"""Limit on the requests that the line of a failed batch names."""
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

_GIVEN_ID = re.compile(rb"[ -~]{1,128}")

REQUEST: ContextVar[RequestOrigin | None] = ContextVar("semel_request", default=None)
"""What the running code belongs to, while requests are logged; tasks inherit it."""
NAMESPACE: ContextVar[str] = ContextVar("semel_namespace", default=DEFAULT)
"""The namespace whose background task runs."""


@contextmanager
def lines_of(namespace: str) -> Iterator[None]:
    """The lines of tasks that are started in the block have the name of this namespace."""
    token = NAMESPACE.set(namespace)
    try:
        yield
    finally:
        NAMESPACE.reset(token)


class WithRequest(logging.Filter):
    """Adds the request id and `traceparent` to the log lines of a request, and the namespace to those of its tasks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Never suppresses a line."""
        request = REQUEST.get()
        facts = namespace_fact(NAMESPACE.get()) if request is None else request.log_facts()
        for name, value in facts.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


class KnownOrigin(NamedTuple):
    """A request of which nothing but its facts is kept: the handshake of a WebSocket, or a request of a known shape."""

    facts: Mapping[str, str]

    def log_facts(self) -> Mapping[str, str]:
        """Its facts."""
        return self.facts


class OriginContext(Protocol):
    """What a shape knows of its server."""

    namespace: str

    def request_id(self) -> bytes:
        """A new request id."""


class ShapedOrigin:
    """The first base of a plain write of a known shape: it draws its request id when it fails, or is answered in full.

    The slot `origin` is empty until then, because constructors on the write path set nothing that is not needed.
    """

    __slots__ = ()

    shape: Any
    origin: RequestOrigin | None

    def origins(self) -> Sequence[RequestOrigin]:
        """Itself, with the request id of its answer."""
        return (self._drawn(),)

    def drawn_id(self) -> bytes:
        """The request id of an answer that is not plain: that of its log line, if it has one."""
        return self._drawn().log_facts()["request_id"].encode("latin-1")

    def _drawn(self) -> RequestOrigin:
        origin: RequestOrigin | None = getattr(self, "origin", None)
        if origin is None:
            context: OriginContext = self.shape.context
            origin = drawn_origin(context.request_id(), context.namespace)
            self.origin = origin  # type: ignore[misc]  # a slot of the other base
        return origin


def drawn_origin(request_id: bytes, namespace: str) -> KnownOrigin:
    """A request whose head was known by its bytes: it gets its id when it is answered or fails, and has no trace."""
    return KnownOrigin({"request_id": request_id.decode("latin-1"), **namespace_fact(namespace)})


def is_valid_id(given: bytes) -> bool:
    """Whether the request id that a client sent is taken; otherwise it gets a new one."""
    return _GIVEN_ID.fullmatch(given) is not None


def traceparent_of(fields: HeaderFields) -> str:
    """The `traceparent` of a request, if it is one by the recommendation of W3C; else empty."""
    given = fields.get(b"traceparent") or b""
    return given.decode() if _TRACEPARENT.fullmatch(given) else ""


def request_facts(request_id: bytes, fields: HeaderFields, namespace: str) -> dict[str, str]:
    """What the log lines of a request have: its id, its `traceparent` if it has one, and its namespace."""
    facts = {"request_id": request_id.decode("latin-1")} if request_id else {}
    found = _TRACEPARENT.fullmatch(fields.get(b"traceparent") or b"")
    if found is not None:
        facts |= {"traceparent": found[0].decode(), "trace_id": found[1].decode()}
    return facts | namespace_fact(namespace)


def namespace_fact(namespace: str) -> dict[str, str]:
    """The name of a namespace; nothing for the default one."""
    return {} if namespace == DEFAULT else {"namespace": namespace}


def callers_facts(callers: Sequence[WaitingCaller]) -> dict[str, object]:
    """What the line of a failure has of the requests that it concerns: of one its facts, of several their ids."""
    origins = [origin for caller in callers for origin in caller.origins()]
    told = [origin.log_facts() for origin in origins[:MAX_TOLD]]
    if len(told) == 1:
        return dict(told[0])
    ids = [facts["request_id"] for facts in told if "request_id" in facts]
    traces = [facts["traceparent"] for facts in told if "traceparent" in facts]
    found: dict[str, object] = {"request_ids": ids} if ids else {}
    if traces:
        found["traceparents"] = traces
    if len(origins) > MAX_TOLD:
        found["further_requests"] = len(origins) - MAX_TOLD
    return found
