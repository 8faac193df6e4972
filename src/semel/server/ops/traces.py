"""Traces of requests: one span for each request that carries a sampled `traceparent`, and one for each of its commits.

With the setting `otel` off nothing here runs: the process then has the plain application and the plain engine. With it
on, a request without a sampled `traceparent` is not traced; the caller decides which requests are. Such requests are
never of a known shape (`http/head_shapes.py`), so the shortcuts of plain heads know nothing of traces.

Attributes have templates, numbers and words of the server. No path, key, name, credential or content is exported. Spans
wait in a bounded queue (`trace_export.py`); a full queue drops spans, and no failure here fails a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from semel.kernel.namespace import DEFAULT
from semel.server.http.request import WRITES_PATH
from semel.server.setting_values import SettingsError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from semel.kernel.header_fields import HeaderFields

Attributes = Mapping[str, str | int | bool]
NO_EXTRA = "otel needs OpenTelemetry: pip install 'semel[otel]', or set otel to false."
_SAMPLED = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf](?:-.*)?")
_NAME = b"{}"
MAX_STATE_BYTES = 512
"""A longer `tracestate` is left out, as the recommendation of W3C allows."""


class TraceExporter(Protocol):
    """Where spans are made and sent from; `trace_export.py` is the one."""

    tracer: Tracer

    async def stop(self) -> None:
        """Send what waits, within a time limit."""


class TracedCall:
    """A request, a message or a gRPC call that is traced. Its span ends when it and its commits have ended."""

    __slots__ = ("_holds", "span", "subject")

    def __init__(self, span: Span, subject: Attributes) -> None:
        self.span = span
        self.subject = subject
        """Its surface and its namespace, which its commits have too."""
        self._holds = 1

    @property
    def is_over(self) -> bool:
        """Whether the span has ended."""
        return not self._holds

    def hold(self) -> None:
        """Keep the span open until one more `release`."""
        self._holds += 1

    def release(self) -> None:
        """End the span, if nothing else holds it."""
        if self._holds:
            self._holds -= 1
            if not self._holds:
                self.span.end()

    def leave(self) -> None:
        """The client has disconnected before the answer."""
        if self._holds:
            self.span.set_attribute("error.type", "client_disconnected")
            self.release()


CURRENT: ContextVar[TracedCall | None] = ContextVar("semel_traced_call", default=None)
"""The traced call that the running code belongs to; tasks inherit it."""


class ServerTracing:
    """Makes the spans of a server. Used on the event loop only."""

    def __init__(self, exporter: TraceExporter, store: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - only if tracing is on
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._exporter = exporter
        self._store = store

    def is_sampled(self, fields: HeaderFields) -> bool:
        """Whether the caller samples its trace."""
        return _SAMPLED.fullmatch(fields.get(b"traceparent") or b"") is not None

    def begin(
        self, fields: HeaderFields, name: str, surface: str, attributes: Attributes, namespace: str = DEFAULT
    ) -> TracedCall | None:
        """The span of a call that continues the caller's trace; None if the caller does not sample it."""
        if not self.is_sampled(fields):
            return None
        carrier = {"traceparent": (fields.get(b"traceparent") or b"").decode("latin-1")}
        state = fields.get(b"tracestate")
        if state is not None and len(state) <= MAX_STATE_BYTES:
            carrier["tracestate"] = state.decode("latin-1")
        context = self._propagator.extract(carrier)
        if not self._trace.get_current_span(context).get_span_context().is_valid:
            return None
        kind = self._trace.SpanKind.SERVER
        subject = {"semel.surface": surface}
        if namespace != DEFAULT:
            subject["semel.namespace"] = namespace
        span = self._exporter.tracer.start_span(name, context, kind, {**subject, **attributes}, record_exception=False)
        return TracedCall(span, subject) if span.is_recording() else None

    def begin_commit(self) -> CommitSpan | None:
        """The span of a write of the current call, from its admission; None if the call is not traced."""
        call = CURRENT.get()
        if call is None or call.is_over:
            return None
        call.hold()
        span = self._exporter.tracer.start_span(
            "semel commit",
            self._trace.set_span_in_context(call.span),
            self._trace.SpanKind.INTERNAL,
            {**call.subject, "db.system.name": self._store},
        )
        return CommitSpan(call, span)

    def fail(self, span: Span, kind: str) -> None:
        """Mark a span as failed, with the name of the failure and no text of it."""
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.StatusCode.ERROR)

    async def stop(self) -> None:
        """Send what waits, within a time limit."""
        await self._exporter.stop()


class CommitSpan:
    """The span of one write: from its admission until it is on disk."""

    __slots__ = ("_call", "_span")

    def __init__(self, call: TracedCall, span: Span) -> None:
        self._call = call
        self._span = span

    def end(self, tracing: ServerTracing, batch: int, commit: str, verdict: str, error: BaseException | None) -> None:
        """The write was decided, and its commit is on disk; or it has failed."""
        self._span.set_attribute("semel.batch.size", batch)
        if error is not None:
            tracing.fail(self._span, type(error).__name__)
        else:
            self._span.set_attribute("semel.commit", commit)
        if verdict:
            self._span.set_attribute("semel.verdict", verdict)
            self._call.span.set_attribute("semel.verdict", verdict)
        self._span.end()
        self._call.release()

    def drop(self) -> None:
        """The write was not admitted; another part of the server has to decide what becomes of it."""
        self._call.release()


def route_template(raw_path: bytes, words: frozenset[bytes]) -> str:
    """A path with `{}` in place of everything that is none of these words, such as names and ids."""
    if raw_path.startswith(WRITES_PATH):
        return f"{WRITES_PATH.decode()}{{}}"  # an id may be equal to a word
    pieces: list[bytes] = []
    for piece in raw_path.split(b"/")[1:]:
        shown = piece if piece in words else _NAME
        if not (shown is _NAME and pieces and pieces[-1] is _NAME):  # a name may have slashes
            pieces.append(shown)
    return "/" + b"/".join(pieces).decode("ascii")


def start_tracing(store_url: str) -> ServerTracing:
    """Tracing with the exporter that the `OTEL_*` variables describe. Raises `SettingsError` without the extra."""
    try:
        from semel.server.ops.trace_export import start_export  # noqa: PLC0415 - only if tracing is on
    except ImportError:
        raise SettingsError(NO_EXTRA) from None
    return ServerTracing(start_export(), store_url.partition(":")[0])
