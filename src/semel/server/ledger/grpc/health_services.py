"""The ledger's own health service.

It needs no credential, as the health paths of HTTP do not. A caller that names an organization or a vault needs one:
whether it exists is not told to strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from semel.contracts.ledger.reading import tip
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import OPEN_BYTES, parser, same
from semel.server.health import liveness, readiness
from semel.server.ledger.desk import Asked, Desk
from semel.server.ledger.grpc.inbound import place_of
from semel.server.ledger.proto import ledger_pb2 as pb


class HealthService:
    """ledger.v1.HealthService."""

    def __init__(self, desk: Desk, judge: Callable[[GrpcCall], Asked]) -> None:
        self._desk = desk
        self._judge = judge

    def methods(self) -> Iterator[GrpcMethod]:
        """The only one."""
        parse = parser(pb.HealthCheckRequest, same)
        yield GrpcMethod(b"/ledger.v1.HealthService/Check", parse, self._check, is_open=True, max_bytes=OPEN_BYTES)

    async def _check(self, call: GrpcCall, request: pb.HealthCheckRequest) -> bytes:
        context = self._desk.context
        facts, ready = liveness(context), readiness(context)
        status = pb.HEALTH_STATUS_HEALTHY if ready == "ok" else pb.HEALTH_STATUS_UNAVAILABLE
        if ready == "ok" and "audit" in facts:
            status, ready = pb.HEALTH_STATUS_DEGRADED, "the audit log cannot be written"
        told = pb.HealthCheckResponse(status=status, message=ready, details={"version": facts["version"]})
        if request.HasField("organization"):
            place = place_of(request)
            height = (await self._desk.look(self._judge(call), place, lambda reading: tip(reading, place))).height
            told.details["height"] = str(height)
        return told.SerializeToString()
