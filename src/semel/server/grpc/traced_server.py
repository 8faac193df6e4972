"""The gRPC listener of a traced server: a span for each call that carries a sampled `traceparent`."""

from __future__ import annotations

from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import FramedMessage
from semel.server.grpc.metadata import CANCELLED
from semel.server.grpc.server import GrpcServer
from semel.server.ops.traces import CURRENT, ServerTracing, TracedCall

_OWN_FAULTS = frozenset({2, 4, 12, 13, 14, 15})
"""Statuses that are failures of the server, by the conventions of OpenTelemetry."""


class TracedGrpcServer(GrpcServer):
    """A listener with spans; the base of a listener of a surface, before its own class."""

    surface = ""

    def trace(self, tracing: ServerTracing) -> None:
        """Begin to trace; called once, before it listens."""
        self.tracing = tracing
        self._traced: dict[GrpcCall, TracedCall] = {}
        """The spans of open calls."""

    def open(self, call: GrpcCall) -> None:
        """Begin the span of a call, and check the head of the call."""
        method = self.service.methods.get(call.fields.get(b":path") or b"")
        path = "" if method is None else method.path.decode("latin-1").strip("/")
        attributes = {"rpc.system.name": "grpc", "rpc.method": path or "_OTHER"}
        namespace = self.service_of(call).namespace
        traced = self.tracing.begin(call.fields, path or "_OTHER", self.surface, attributes, namespace)
        if traced is None:
            super().open(call)
            return
        self._traced[call] = traced
        token = CURRENT.set(traced)
        try:
            super().open(call)
        finally:
            CURRENT.reset(token)

    def start_call(self, call: GrpcCall, message: FramedMessage | None) -> None:
        """Run the method of a call; what it starts belongs to the span of the call."""
        token = CURRENT.set(self._traced.get(call))
        try:
            super().start_call(call, message)
        finally:
            CURRENT.reset(token)

    def count(self, call: GrpcCall, number: int) -> None:
        """Count a call that has ended, and end its span."""
        super().count(call, number)
        traced = self._traced.pop(call, None)
        if traced is not None:
            traced.span.set_attribute("rpc.response.status_code", str(number))
            if number in _OWN_FAULTS:
                self.tracing.fail(traced.span, str(number))
            if number == CANCELLED:
                traced.leave()
            else:
                traced.release()
