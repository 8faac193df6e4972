"""The OpenTelemetry SDK of a server: spans wait in a bounded queue, and a thread sends them over OTLP/HTTP.

The standard `OTEL_*` variables describe the collector, the queue, the sampler and the resource. The event loop only
puts a span into the queue; a full queue drops the oldest. While the collector cannot be reached one line is logged, and
one more when it is reached again. Imported only if the setting `otel` is on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

STOP_SECONDS = 5.0
"""Time at shutdown for the spans that wait, in seconds; those that are left are dropped."""

_log = logging.getLogger("semel.server")


class QuietExporter(SpanExporter):
    """Sends spans through another exporter; its failures are logged once, not for each batch."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. Called in the thread of the queue; never raises."""
        try:
            result = self._inner.export(spans)
        except Exception:  # noqa: BLE001 - traces are lost, and nothing else
            result = SpanExportResult.FAILURE
        has_failed = result is not SpanExportResult.SUCCESS
        if has_failed and not self._is_failing:
            _log.warning("traces cannot be sent; they are dropped until the collector can be reached")
        elif self._is_failing and not has_failed:
            _log.info("traces are sent again")
        self._is_failing = has_failed
        return result

    def shutdown(self) -> None:
        """End the connections."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True


class SdkExport:
    """The tracer of the process and the queue behind it."""

    def __init__(self, exporter: SpanExporter) -> None:
        own = {SERVICE_VERSION: _version()}
        if not {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} & os.environ.keys():
            own[SERVICE_NAME] = "semel"
        self._provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(QuietExporter(exporter)))
        self.tracer = self._provider.get_tracer("semel.server", _version())

    async def stop(self) -> None:
        """Send what waits, within `STOP_SECONDS`. The thread is a daemon: a collector that hangs ends with it."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=shut_down, name="semel-traces", daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), STOP_SECONDS)
        except TimeoutError:
            _log.warning("some traces could not be sent before the stop")


def start_export() -> SdkExport:
    """The export that the `OTEL_*` variables describe."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # `QuietExporter` logs failures once
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    return SdkExport(OTLPSpanExporter())


def _version() -> str:
    try:
        return version("semel")
    except PackageNotFoundError:
        return "0"
