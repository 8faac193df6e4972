"""The gRPC listener of a server that logs requests: every log line of a call has its request id and `traceparent`."""

from __future__ import annotations

from semel.server.grpc.call import GrpcCall
from semel.server.grpc.messages import FramedMessage
from semel.server.grpc.server import GrpcServer
from semel.server.ops.log_facts import REQUEST


class LoggedGrpcServer(GrpcServer):
    """A listener whose calls are known to the log; the base of a listener of a surface, before its own class."""

    def open(self, call: GrpcCall) -> None:
        """Check the head of a call."""
        token = REQUEST.set(call)
        try:
            super().open(call)
        finally:
            REQUEST.reset(token)

    def start_call(self, call: GrpcCall, message: FramedMessage | None) -> None:
        """Run the method of a call; what it starts belongs to the call."""
        token = REQUEST.set(call)
        try:
            super().start_call(call, message)
        finally:
            REQUEST.reset(token)
