"""Health checks over gRPC: the ledger's own, and the standard one of load balancers.

Neither needs a credential, as the health paths of HTTP do not. A call that names an organization or a vault does:
whether one exists is not told to strangers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from semel.contracts.ledger.reading import tip
from semel.contracts.ledger.refusals import RefusedLedger
from semel.server.health import liveness, readiness
from semel.server.ledger.desk import Asked, Desk
from semel.server.ledger.grpc.call import Call, Method
from semel.server.ledger.grpc.inbound import OPEN_BYTES, parser, place_of, same
from semel.server.ledger.grpc.standard import standard_class
from semel.server.ledger.proto import ledger_pb2 as pb

LOOK_SECONDS = 1.0
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


class HealthService:
    """ledger.v1.HealthService."""

    def __init__(self, desk: Desk, judge: Callable[[Call], Asked]) -> None:
        self._desk = desk
        self._judge = judge

    def methods(self) -> Iterator[Method]:
        """The only one."""
        parse = parser(pb.HealthCheckRequest, same)
        yield Method(b"/ledger.v1.HealthService/Check", parse, self._check, is_open=True, max_bytes=OPEN_BYTES)

    async def _check(self, call: Call, request: pb.HealthCheckRequest) -> bytes:
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


class Pulse:
    """Polls a value every second while there are listeners, and wakes them all when it has changed."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.change = asyncio.Event()
        """Set at the next change; take it before looking, then wait for it."""
        self._look = look
        self._seen: object = None
        self._listeners = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Be among those that are woken."""
        self._listeners += 1
        if self._timer is None:
            self._seen = self._look()
            self._wait()
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._beat)

    def _beat(self) -> None:
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            self.change.set()
            self.change = asyncio.Event()
        self._wait()


class StandardHealth:
    """grpc.health.v1.Health."""

    def __init__(self, desk: Desk, services: Collection[str]) -> None:
        self._context = desk.context
        self._names = frozenset(("", *services))
        self._pulse = Pulse(lambda: (readiness(self._context), self._context.is_stopping))
        self._response = standard_class("grpc.health.v1.HealthCheckResponse")

    def methods(self) -> Iterator[Method]:
        """Asked once, or followed."""
        parse = parser(standard_class("grpc.health.v1.HealthCheckRequest"), same)
        yield Method(b"/grpc.health.v1.Health/Check", parse, self._check, is_open=True, max_bytes=OPEN_BYTES)
        yield Method(b"/grpc.health.v1.Health/Watch", parse, self._watch, is_open=True, max_bytes=OPEN_BYTES)

    async def _check(self, call: Call, request: Any) -> bytes:
        if request.service not in self._names:
            raise RefusedLedger("not_found", "There is no such service here.")
        return self._told(self._status(request.service))

    async def _watch(self, call: Call, request: Any) -> None:
        with self._pulse.listen():
            told = None
            while True:
                change = self._pulse.change
                status = self._status(request.service)
                if status != told:
                    told = status
                    await call.send(self._told(status))
                elif self._context.is_stopping:
                    return
                else:
                    await change.wait()

    def _status(self, service: str) -> int:
        if service not in self._names:
            return _UNKNOWN
        return _SERVING if readiness(self._context) == "ok" else _NOT_SERVING

    def _told(self, status: int) -> bytes:
        content: bytes = self._response(status=status).SerializeToString()
        return content
