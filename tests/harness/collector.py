"""A collector of traces: an OTLP/HTTP receiver in the process of the tests, which decodes what it gets."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_SECONDS = 60.0
KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


class ReceivedSpan(NamedTuple):
    """One span, as it came."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    is_failed: bool
    service: str


class Collector:
    """Listens on a free port of 127.0.0.1."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[ReceivedSpan] = []
        self.raw = b""
        """Every byte that was sent here, decompressed: heads and bodies."""
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL of traces."""
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def variables(self) -> dict[str, str]:
        """The environment of a server that sends its traces here, without delay."""
        return {
            "SEMEL_OTEL": "true",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_SERVICE_NAME": "semel-under-test",
        }

    def wait_for(self, is_so: Callable[[list[ReceivedSpan]], bool]) -> list[ReceivedSpan]:
        """All spans, once they meet a condition; an AssertionError with what has come if they never do."""
        until = time.monotonic() + WAIT_SECONDS
        with self._arrived:
            while not is_so(self.spans):
                assert self._arrived.wait(max(0.0, until - time.monotonic())), self.spans
            return list(self.spans)

    def take(self, payload: bytes, head: bytes) -> None:
        """Keep what an exporter sent."""
        message = ExportTraceServiceRequest.FromString(payload)
        with self._arrived:
            self.raw += head + payload
            for group in message.resource_spans:
                service = _values(group.resource.attributes).get("service.name", "")
                for scope in group.scope_spans:
                    self.spans += [_span(span, service) for span in scope.spans]
            self._arrived.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    collector.take(body, str(self.headers).encode())
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not printed."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _span(span: Any, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        KINDS[span.kind],
        _values(span.attributes),
        [(event.name, _values(event.attributes)) for event in span.events],
        span.status.code == 2,
        service,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
