"""OpenTelemetry for the clients: a span for each call, and `traceparent` on each of its requests.

    client = Client("http://127.0.0.1:8788", telemetry=ClientTelemetry())

Needs the extra `semel[otel]`. Spans go to the tracer provider of the application. A call has one span of the kind
CLIENT, whatever the number of its attempts; attempts and retries are events of it. The server continues the trace in a
span for each attempt. Attributes have templates of paths, statuses and words of the client: no name, key, token or
content, and no text of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from semel.client.access import Address
from semel.client.errors import CallError, ConfigurationError, NoAnswerError, RefusedError
from semel.client.json_answer import facts_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

NO_EXTRA = "Telemetry needs OpenTelemetry: pip install 'semel[otel]'."
MAX_READ_BYTES = 64 * 1024
"""A longer answer is not searched for the member that tells a replay."""
_PATHS = """
v1 stream streams producers __ds subscriptions callback claim ack release jwks.json
v1 events id partitions
v1 jobs mesh submit_request pull_requests submit submit_result batch claim lookup dead keys release queues schedules
result results cancel requeue close members heartbeat complete fail defer steps
ledger v1 orgs vaults writes batches writes:bulk clients state entities entities:batchRead relationships resources tip
blocks blocks:watch proof transactions
v1 sync admin connectors push pull checkpoint actions ws schema sync-rules flush metrics clients forget-clients gateways
types tables rows entries
livez readyz v1 diagnose
"""
_WORDS = frozenset(_PATHS.split())
"""Segments of paths that are no names."""
_SURFACES = {
    "stream": "streams",
    "streams": "streams",
    "events": "events",
    "jobs": "jobs",
    "mesh": "jobs",
    "ledger": "ledger",
    "sync": "deltas",
    "admin": "deltas",
    "connectors": "deltas",
}
"""By the first segment of a path after its version."""
_OPERATIONS = {
    ("PUT", "/v1/stream/{}"): "create",
    ("POST", "/v1/stream/{}"): "append",
    ("GET", "/v1/stream/{}"): "read",
    ("HEAD", "/v1/stream/{}"): "info",
    ("GET", "/v1/streams"): "list",
    ("POST", "/v1/events"): "submit",
    ("GET", "/v1/events"): "read",
    ("POST", "/v1/jobs"): "submit",
    ("GET", "/v1/jobs"): "list",
    ("GET", "/v1/jobs/{}"): "read",
}
_PLAIN = {"PUT": "put", "POST": "post", "GET": "read", "HEAD": "info", "DELETE": "delete", "PATCH": "change"}
_CARRIED = ("traceparent", "tracestate")
_REPLAYED = ("replayed", "dedup")
"""Members of JSON answers that tell a replay."""


class CallSpan:
    """The span of one call."""

    def __init__(self, telemetry: ClientTelemetry, span: Span, outer: CallSpan | None) -> None:
        self.span = span
        self._telemetry = telemetry
        self._outer = outer
        self._attempts = 0
        self._has_name = False
        self.is_over = False
        self._token: Token[CallSpan | None] | None = None

    def enter(self) -> None:
        """The requests of this task or thread belong to the call from now on."""
        self._token = _CURRENT.set(self)

    def send(self, address: Address, method: str, path: str) -> None:
        """Note an attempt; the first one names the call, and the calls that it is a part of."""
        self._attempts += 1
        self.span.add_event("semel.attempt", {"semel.attempt.number": self._attempts})
        call: CallSpan | None = self
        while call is not None and not call._has_name:
            call._name(address, method, path)
            call = call._outer

    def _name(self, address: Address, method: str, path: str) -> None:
        self._has_name = True
        template = template_of(path)
        surface, operation = operation_of(method, template)
        self.span.update_name(f"semel {surface} {operation}")
        self.span.set_attributes(
            {
                "semel.surface": surface,
                "http.request.method": method,
                "url.template": template,
                "url.scheme": "https" if address.is_secure else "http",
                "server.address": address.host,
                "server.port": address.port,
            }
        )

    def retried(self, error: CallError, pause: float) -> None:
        """Note why the next attempt follows, and when."""
        self.span.add_event("semel.retry", {"error.type": error_type(error), "semel.retry.pause_seconds": pause})

    def ended(self, error: BaseException | None) -> None:
        """End the span."""
        self.is_over = True
        if self._attempts > 1:
            self.span.set_attribute("http.request.resend_count", self._attempts - 1)
        if error is not None:
            self._telemetry.fail(self.span, error_type(error))
        self.span.end()
        if self._token is not None:
            _CURRENT.reset(self._token)


_CURRENT: ContextVar[CallSpan | None] = ContextVar("semel_call_span", default=None)
"""The call whose requests this task or thread sends."""


def _current() -> CallSpan | None:
    """The call under way; a task that outlives the call that started it belongs to none."""
    call = _CURRENT.get()
    return None if call is None or call.is_over else call


class ClientTelemetry:
    """The `telemetry` of a client. One may serve several clients."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """`tracer_provider` is by default the one that the application has set. Raises ConfigurationError without the
        extra.
        """
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
            from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415
        except ImportError:
            raise ConfigurationError(NO_EXTRA) from None
        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("semel.client", None, tracer_provider)

    def begin(self) -> CallSpan:
        """A call begins, as a child of the application's current span."""
        outer = _current()
        context = None if outer is None else self._context_of(outer)
        span = self._tracer.start_span("semel call", context, self._trace.SpanKind.CLIENT, record_exception=False)
        call = CallSpan(self, span, outer)
        call.enter()
        return call

    def sending(self, address: Address, method: str, path: str) -> Mapping[str, str]:
        """The headers that continue the trace: of the call, or of the application's current span without one."""
        call = _current()
        if call is not None:
            call.send(address, method, path)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, None if call is None else self._context_of(call))
        return carrier

    def carried(self) -> Mapping[str, str]:
        """The members `traceparent` and `tracestate` for the `client` of a job; empty without a current span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier

    @contextmanager
    def job_run(self, kind: str, attempt: int, client: Mapping[str, object] | None) -> Iterator[Callable[[str], None]]:
        """The span of one run of a job, current within the block; it continues the trace of the job's submitter.

        `client` is the member of this name in the claim. Without a trace in it, the run is a trace of its own.
        """
        carrier = {name: text for name in _CARRIED if isinstance(text := (client or {}).get(name), str)}
        attributes: dict[str, str | int] = {
            "semel.surface": "jobs",
            "semel.job.kind": kind,
            "semel.job.attempt": attempt,
        }
        span = self._tracer.start_span(
            "semel jobs run", self._propagator.extract(carrier), self._trace.SpanKind.CONSUMER, attributes
        )
        with self._trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield lambda ending: self._end_run(span, ending)
            except BaseException as error:
                self.fail(span, type(error).__name__)
                raise

    def _end_run(self, span: Span, ending: str) -> None:
        span.set_attribute("semel.job.ending", ending)
        if ending == "failed":
            self.fail(span, "failed")

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Note the status of an answer, and whether it is a replay."""
        call = _current()
        if call is not None and call.span.is_recording():
            call.span.set_attribute("http.response.status_code", status)
            replayed = is_replayed(headers, body) if 200 <= status < 300 else None
            if replayed is not None:
                call.span.set_attribute("semel.replayed", replayed)

    def fail(self, span: Span, kind: str) -> None:
        """Mark a span as failed, without the text of the error."""
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.StatusCode.ERROR)

    def _context_of(self, call: CallSpan) -> Context:
        return self._trace.set_span_in_context(call.span)


def template_of(path: str) -> str:
    """A path without its query, and with `{}` in place of everything that is no word of Semel."""
    pieces: list[str] = []
    for piece in path.partition("?")[0].split("/")[1:]:
        shown = piece if piece in _WORDS else "{}"
        if shown != "{}" or pieces[-1:] != ["{}"]:
            pieces.append(shown)
    return "/" + "/".join(pieces)


def operation_of(method: str, template: str) -> tuple[str, str]:
    """The surface and the operation of a request."""
    words = [piece for piece in template.split("/") if piece not in ("", "v1", "{}")]
    surface = _SURFACES.get(words[0], "server") if words else "server"
    operation = _OPERATIONS.get((method, template))
    if operation is None:
        is_named = len(words) > 1 or surface == "server"
        operation = words[-1] if words and is_named else _PLAIN.get(method, method.lower())
    return surface, operation


def is_replayed(headers: Mapping[str, str], body: bytes) -> bool | None:
    """Whether an answer tells that it is the replay of an earlier one; None if it tells neither."""
    if "idempotency-replayed" in headers:
        return headers["idempotency-replayed"].lower() == "true"
    if "events-replayed" in headers:
        return bool(headers["events-replayed"])
    if len(body) > MAX_READ_BYTES or not any(b'"%s"' % name.encode() in body for name in _REPLAYED):
        return None
    try:
        facts = facts_of(body)
    except ValueError:
        return None
    told = [facts[name] for name in _REPLAYED if isinstance(facts.get(name), bool)]
    return bool(told[0]) if told else None


def error_type(error: BaseException) -> str:
    """The kind of an error: the status of a refusal, or the name of what failed."""
    if isinstance(error, RefusedError):
        return str(error.status)
    reason = error.reason if isinstance(error, NoAnswerError) else ""
    return reason or type(error).__name__
