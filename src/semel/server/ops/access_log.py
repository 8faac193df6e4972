"""The access log and the slow log: one JSON line for each request, or for each slow one; both are off by default.

With both settings off there is no object of this module, and the process has the plain classes: nothing is paid. With
one of them on, the process has subclasses of the application, of connections and of listeners, which tell of each
answer here.

A line has templates, numbers and words of the server, the actor, the remote address, and the request id and
`traceparent` of the caller. It has no path, query, header, key, token or content.

Adding a line never waits for the disk: lines wait in a bounded queue (`rotated_file`), a thread writes them several
times a second, and what does not fit is lost and counted. A crash loses the lines of the last fraction of a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from semel.kernel.clock import World, utc_text
from semel.kernel.namespace import DEFAULT
from semel.server.ops.log_facts import traceparent_of
from semel.server.ops.request_times import HTTP, LIVE, WEBSOCKET
from semel.server.ops.rotated_file import LineFile, LineQueue
from semel.server.ops.traces import route_template

if TYPE_CHECKING:
    from semel.server.http.request import Request
    from semel.server.websocket.conversation import MessageTimes

ACCESS_NAME = "access.jsonl"
SLOW_NAME = "slow.jsonl"
FLUSH_SECONDS = 0.2
WAIT_SECONDS = 1.0
"""Time limit for the last lines at shutdown."""
_NO_WORDS: frozenset[bytes] = frozenset()

_log = logging.getLogger("semel.server")


class LoggedRequest(NamedTuple):
    """The facts of a request in its line."""

    surface: str
    wire: str
    method: str
    route: str
    """The path with `{}` in place of names."""
    status: int | None
    """None if the client left before the answer, and for messages of a WebSocket."""
    bytes: int | None
    """Bytes that were sent, with the head; None if they are not counted apart."""
    seconds: float
    """The time from the request to the head of its answer."""
    principal: str
    remote: str
    request_id: str
    traceparent: str = ""
    namespace: str = DEFAULT


class RequestIds:
    """Gives out request ids; the log has the last one, because a plain answer is logged before another is taken."""

    def __init__(self, ids: Iterator[bytes], log: AccessLog) -> None:
        self._ids = ids
        self._log = log

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        given = self._log.last_id = next(self._ids)
        return given


class ShapeContext(Protocol):
    """What a shape knows of its server."""

    namespace: str


class LoggableShape(Protocol):
    """What a head shape tells of its requests."""

    context: ShapeContext
    counted: tuple[str, str, int]
    """Surface, method and status."""
    raw_path: bytes


class ShapedCall(Protocol):
    """A request of a known shape."""

    shape: LoggableShape
    admitted_at: float
    principal: str


class AccessLog:
    """Writes both logs. For the event loop, but for what its own thread does."""

    def __init__(
        self, folder: Path, world: World, words: Mapping[str, frozenset[bytes]], *, logs_all: bool, slow_ms: int
    ) -> None:
        """Without `logs_all` only slow requests are logged; `slow_ms` 0 logs none as slow.

        `words` are the segments of paths that are no names, by surface.
        """
        self._world = world
        self._words = words
        self.last_id = b""
        """The last request id that was given out."""
        self._access = LineQueue(LineFile(folder / ACCESS_NAME), self._loss) if logs_all else None
        self._slow = LineQueue(LineFile(folder / SLOW_NAME), self._loss) if slow_ms else None
        self._slow_seconds = slow_ms / 1_000
        self._queues = [queue for queue in (self._access, self._slow) if queue is not None]
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="semel-access")
        self.write_errors = 0
        self._is_broken = False

    @property
    def lines(self) -> int:
        """The number of lines written."""
        return sum(queue.lines for queue in self._queues)

    @property
    def lost_lines(self) -> int:
        """The number of lines lost because the disk did not keep up."""
        return sum(queue.lost_lines for queue in self._queues)

    def add(self, request: LoggedRequest) -> None:
        """Queue the line of a request; one that waits for data on purpose is never slow."""
        is_slow = self._slow is not None and request.seconds >= self._slow_seconds and request.wire != LIVE
        if self._access is None and not is_slow:
            return
        line = self._line(request)
        if self._access is not None:
            self._access.add(line)
        if is_slow and self._slow is not None:
            self._slow.add(line)

    def facts(self, request: Request, status: int | None, size: int | None, seconds: float) -> LoggedRequest:
        """The line of a request."""
        return LoggedRequest(
            request.surface,
            LIVE if request.is_live else HTTP,
            request.method,
            self._route(request.surface, request.raw_path),
            status,
            size,
            seconds,
            request.principal,
            request.remote,
            request.id.decode("latin-1"),
            traceparent_of(request.fields),
            getattr(request, "namespace", DEFAULT),
        )

    def add_shaped(self, call: ShapedCall, remote: str, size: int, *, is_answered: bool) -> None:
        """Add the line of a request of a known shape: right after its answer was written, or after its client left."""
        surface, method, status = call.shape.counted
        told, given = (status, self.last_id.decode("latin-1")) if is_answered else (None, "")
        route = self._route(surface, call.shape.raw_path)
        took = monotonic() - call.admitted_at
        who, where = (call.principal, remote), call.shape.context.namespace
        self.add(LoggedRequest(surface, HTTP, method, route, told, size, took, *who, given, "", where))

    def _route(self, surface: str, raw_path: bytes) -> str:
        return route_template(raw_path, self._words.get(surface, _NO_WORDS))

    async def run(self) -> None:
        """Write waiting lines until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            if any(queue.has_work for queue in self._queues):
                await loop.run_in_executor(self._writer, self._write)

    def close(self) -> None:
        """Write the last lines, within a time limit, and close the files."""
        done = self._writer.submit(self._write)
        wait([done], WAIT_SECONDS)
        self._writer.shutdown(wait=False, cancel_futures=True)
        if done.done():
            for queue in self._queues:
                queue.close()

    def _write(self) -> None:
        try:
            for queue in self._queues:
                queue.write()
        except OSError as error:
            self.write_errors += 1
            if not self._is_broken:
                self._is_broken = True
                _log.error("the access log cannot be written", extra={"reason": error.strerror or str(error)})
        else:
            self._is_broken = False

    def _line(self, request: LoggedRequest) -> bytes:
        seconds = request.seconds
        facts = {"ts": utc_text(self._world.wall_ms()), **request._asdict(), "seconds": round(seconds, 6)}
        facts = {
            name: value for name, value in facts.items() if value != "" and (name != "namespace" or value != DEFAULT)
        }
        return orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE)

    def _loss(self, count: int) -> bytes:
        facts = {"ts": utc_text(self._world.wall_ms()), "lost_lines": count}
        return orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE)


class LoggedTimes:
    """The histogram of a WebSocket's messages, which also logs each of them."""

    def __init__(
        self, times: MessageTimes, log: AccessLog, handshake: LoggedRequest, principal: Callable[[], str]
    ) -> None:
        self._times = times
        self._log = log
        self._handshake = handshake._replace(method="MESSAGE", wire=WEBSOCKET, status=None, bytes=None)
        self._principal = principal

    def observe(self, seconds: float, /) -> None:
        """A message was answered."""
        self._times.observe(seconds)
        principal = self._principal() or self._handshake.principal
        self._log.add(self._handshake._replace(seconds=seconds, principal=principal))
