"""A collector, and a server that sends its traces there; the collector keeps what all tests of a module cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from semel.client import ClientTelemetry
from tests.harness.collector import Collector
from tests.harness.server import RunningServer
from tests.tracing.calls import TOKEN


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that wants a token, with gRPC. Its sampler takes everything: the caller alone decides."""
    variables = collector.variables() | {"SEMEL_TOKEN_ACTIVE": TOKEN, "OTEL_TRACES_SAMPLER": "always_on"}
    with RunningServer(tmp_path_factory.mktemp("traced") / "data", env=variables, grpc=True) as running:
        yield running


@pytest.fixture
def provider(collector: Collector) -> Iterator[TracerProvider]:
    """The tracer provider of an application that sends its spans to the same collector, at once."""
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint)))
    yield made
    made.shutdown()


@pytest.fixture
def telemetry(provider: TracerProvider) -> ClientTelemetry:
    return ClientTelemetry(provider)
