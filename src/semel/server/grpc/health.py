"""The gRPC health service, `grpc.health.v1.Health`, for load balancers.

It needs no credential, like the health endpoints of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from semel.kernel.errors import Grpc
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import OPEN_BYTES, parser, same
from semel.server.grpc.metadata import GrpcError

LOOK_SECONDS = 1.0
SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


@cache
def _descriptors() -> DescriptorPool:
    """The descriptors of the service, compiled at build time.

    They are in a pool of their own: other packages have modules for the same names, and the default pool accepts each
    name once.
    """
    pool = DescriptorPool()
    content = files("semel.server.grpc.proto").joinpath("health.binpb").read_bytes()
    for file in FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def health_class(name: str) -> Any:
    """The class of a message of the service."""
    return GetMessageClass(_descriptors().FindMessageTypeByName(f"grpc.health.v1.{name}"))


class HealthPoll:
    """Reads a value every second while it has listeners, and wakes all of them when it has changed."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.change = asyncio.Event()
        """Set at the next change; take it before reading the value, then wait for it."""
        self._look = look
        self._seen: object = None
        self._listeners = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Register a listener that is woken at a change."""
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
    """grpc.health.v1.Health, which also answers for itself."""

    def __init__(
        self, services: Collection[str], is_ready: Callable[[], bool], is_stopping: Callable[[], bool]
    ) -> None:
        self._names = frozenset(("", SERVICE, *services))
        self._is_ready = is_ready
        self._is_stopping = is_stopping
        self._poll = HealthPoll(lambda: (is_ready(), is_stopping()))
        self._response = health_class("HealthCheckResponse")

    def methods(self) -> Iterator[GrpcMethod]:
        """Check (one answer) and Watch (an answer at each change)."""
        parse = parser(health_class("HealthCheckRequest"), same)
        yield GrpcMethod(b"/grpc.health.v1.Health/Check", parse, self._check, is_open=True, max_bytes=OPEN_BYTES)
        yield GrpcMethod(b"/grpc.health.v1.Health/Watch", parse, self._watch, True, max_bytes=OPEN_BYTES, is_live=True)

    async def _check(self, call: GrpcCall, request: Any) -> bytes:
        if request.service not in self._names:
            raise GrpcError(Grpc.NOT_FOUND, "There is no such service here.")
        return self._told(self._status(request.service))

    async def _watch(self, call: GrpcCall, request: Any) -> None:
        with self._poll.listen():
            told = None
            while True:
                change = self._poll.change
                status = self._status(request.service)
                if status != told:
                    told = status
                    await call.send(self._told(status))
                elif self._is_stopping():
                    return
                else:
                    await change.wait()

    def _status(self, service: str) -> int:
        if service not in self._names:
            return _UNKNOWN
        return _SERVING if self._is_ready() else _NOT_SERVING

    def _told(self, status: int) -> bytes:
        content: bytes = self._response(status=status).SerializeToString()
        return content
