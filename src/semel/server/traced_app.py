"""The application of a traced server: a span for each request that carries a sampled `traceparent`."""

from __future__ import annotations

from semel.server.app import App
from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.request import Request
from semel.server.ops.traces import CURRENT, TracedCall, route_template
from semel.surfaces.registry import SURFACES

OWN_WORDS = frozenset(b"livez health readyz ready metrics v1 diagnose openapi.json".split())


class TracedApp(App):
    """An application with spans. A span ends when the head of the answer is sent, or the client has disconnected."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.tracing is not None
        self._tracing, self._namespace = context.tracing, context.namespace
        self._words = {row.name: row.route_words for row in SURFACES}

    def handle(self, request: Request) -> Answer | None:
        """Answer one request; what it starts belongs to its span."""
        traced = self._begin(request)
        if traced is None:
            return super().handle(request)
        request.traced = traced
        token = CURRENT.set(traced)
        try:
            return super().handle(request)
        finally:
            CURRENT.reset(token)

    def answered(self, request: Request, status: int) -> None:
        """Count an answer, and end the span of its request."""
        super().answered(request, status)
        traced: TracedCall | None = getattr(request, "traced", None)
        if traced is not None:
            traced.span.set_attribute("http.response.status_code", status)
            if status >= 500:
                self._tracing.fail(traced.span, str(status))
            traced.release()

    def _begin(self, request: Request) -> TracedCall | None:
        surface = self._surface_of(request.raw_path)
        name = "none" if surface is None else surface.surface
        route = route_template(request.raw_path, self._words.get(name, OWN_WORDS))
        return self._tracing.begin(
            request.fields,
            f"{request.method} {route}",
            name,
            {
                "http.request.method": request.method,
                "http.route": route,
                "network.protocol.version": request.version,
                "url.scheme": request.scheme,
            },
            self._namespace,
        )
