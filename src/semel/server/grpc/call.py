"""One gRPC call: an HTTP/2 stream from its head to its status; and the table of methods that a listener serves."""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from semel.kernel.errors import Grpc
from semel.kernel.header_fields import HeaderFields
from semel.kernel.namespace import DEFAULT
from semel.server.grpc.messages import WORTH_PACKING_BYTES, FramedMessage, MessageBuffer, prefix_of
from semel.server.grpc.metadata import (
    ACCEPTED,
    CANCELLED,
    GZIP,
    OK,
    UNKNOWN,
    GrpcError,
    GrpcHeader,
    GrpcStatus,
    invalid_message,
)
from semel.server.ops.log_facts import request_facts
from semel.server.thread_pool import apart

if TYPE_CHECKING:
    from semel.server.grpc.connection import GrpcConnection

HEAD: tuple[GrpcHeader, ...] = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", ACCEPTED),
)
_UNREAD = "Too many answers wait to be read; try again in a moment."
_HASTY = "At most {} messages may be unanswered; read the answers before you send more."
_LATE = "The deadline passed before the answer was ready."


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One method of a service."""

    path: bytes
    parse: Callable[[bytes | bytearray], Any]
    """Parse a message, in a thread if it is large; raises for an invalid one."""
    run: Callable[[GrpcCall, Any], Awaitable[bytes | None]]
    """Run the call and return the content of the one answer, or None if it has sent its answers itself."""
    is_open: bool = False
    """Whether no credential is needed."""
    is_ordered: bool = False
    """Whether calls of one connection reach `run` in the order of their arrival."""
    max_bytes: int | None = None
    """The largest message in bytes, compressed or not; None is the server's limit."""
    max_waiting: int = 0
    """Limit on messages of a client stream that have arrived and are not read; flow control bounds their bytes.

    0 if the client sends one message; otherwise `run` gets None and reads them with `next_message`.
    """
    is_live: bool = False
    """Whether it answers at each change, until the client ends it."""

    @property
    def takes_many(self) -> bool:
        """Whether the client streams messages while it is answered."""
        return self.max_waiting > 0

    @property
    def name(self) -> str:
        """The name in metrics."""
        return self.path.rpartition(b"/")[2].decode()


@dataclass(frozen=True, slots=True)
class GrpcService:
    """The methods and rules of one listener. The transport knows nothing else of the surface."""

    methods: Mapping[bytes, GrpcMethod]
    """Methods by path."""
    max_message_bytes: int
    """The largest message in bytes, unless the method has a lower limit."""
    max_held_bytes: int
    """Limit on the bytes of requests and unsent answers in memory, of all calls together."""
    headers: tuple[GrpcHeader, ...]
    """Headers of every answer."""
    check_head: Callable[[HeaderFields], None]
    """Raises for a head that the service rejects before it checks the credential."""
    authenticate: Callable[[GrpcCall], object]
    """Checks the credential of a call and sets `call.identity`; raises if the call is refused."""
    status_of: Callable[[GrpcCall, Exception], GrpcStatus]
    """The status for an error of the transport or of a method; counts the error, and logs internal errors."""
    count: Callable[[GrpcCall, int], None]
    """Counts a call that has ended with this number of its status."""
    namespace: str = DEFAULT
    """The namespace that it serves."""


def _ignore() -> None:
    """The default of `on_end`: do nothing."""


class GrpcCall:
    """One call, created when the head of its stream has arrived."""

    def __init__(self, connection: GrpcConnection, stream_id: int, fields: HeaderFields, now: float) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.fields = fields
        self.began_at = self.data_at = now
        self.opened_at = monotonic()
        """As `began_at`, by a clock that is read for this call alone: that of the loop stands still during a pass."""
        self.stalled_at: float | None = None
        self.service: GrpcService = connection.reception.service
        """The service of the namespace that the call names."""
        self.request_id = b""
        """The id in the answer and in log lines: the one in the metadata, or a new one."""
        self.method: GrpcMethod | None = None
        self.max_bytes = self.service.max_message_bytes
        """The largest message in bytes."""
        self.identity: object = None
        """The caller, as the service knows it; None before the credential is checked."""
        self.on_end: Callable[[], None] = _ignore
        """Called when the call has ended, for any reason."""
        self.inbox = MessageBuffer(self.max_bytes)
        self.encoding = fields.get(b"grpc-encoding") or b""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.head: list[GrpcHeader] = []
        """Headers of the answer, in addition to `HEAD`."""
        self.held = 0
        """Bytes of the request that count towards the memory limit."""
        self.unread = 0
        """Bytes of the request that have not been acknowledged to flow control yet."""
        self.is_arriving = True
        self.is_over = False
        self._has_begun = False
        self._is_hung_up = False
        self._message: FramedMessage | None = None
        self._queue: deque[FramedMessage] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    def log_facts(self) -> Mapping[str, str]:
        """What every log line of the call has."""
        return request_facts(self.request_id, self.fields, self.service.namespace)

    def use(self, method: GrpcMethod) -> None:
        """Set the method, and its limit on the size of a message."""
        self.method = method
        if method.max_bytes is not None:
            self.max_bytes = min(self.max_bytes, method.max_bytes)
            self.inbox = MessageBuffer(self.max_bytes)

    # ---- Input ----

    def keep(self, size: int) -> bool:
        """Count `size` bytes of the request; False if all requests together exceed the limit.

        Calls that need no credential are not counted: their messages are small and their number is limited. Callers
        without a credential therefore cannot use up the memory of the others.
        """
        if self.method is not None and self.method.is_open:
            return True
        self.held += size
        return self.connection.reception.hold(size)

    def take(self, data: bytes, flow_bytes: int) -> bool:
        """Add bytes of the request; True if flow control must wait until they are read."""
        self.data_at = self.connection.now
        try:
            self._sort(self.inbox.feed(data))
        except GrpcError as error:
            self.refuse(error)
            return False
        if self.takes_many:
            self.unread += flow_bytes
        return self.takes_many

    def end(self) -> None:
        """The client has ended its side of the stream."""
        self.is_arriving = False
        self._arrived.set()
        if self.takes_many or self.is_over:
            return
        if self._message is None or not self.inbox.is_empty:
            self.refuse(invalid_message("The call carries no complete message."))
            return
        self.connection.reception.start_call(self, self._message)

    def hang_up(self) -> None:
        """Accept no further messages of a client stream; those before are still answered."""
        if self.takes_many:
            self._is_hung_up = True
            self._arrived.set()

    async def next_message(self) -> FramedMessage | None:
        """The next message of a client stream; None at the end."""
        await asyncio.sleep(0)  # let other calls run: many messages may have arrived at once
        while not self._queue:
            self._release()
            if not self.is_arriving or self._is_hung_up:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def arrived_messages(self, most: int) -> list[FramedMessage]:
        """Further messages of a client stream that are here already, up to a number."""
        queue = self._queue
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    def _release(self) -> None:
        """Flow control: all input has been read, so release its memory and let the client send as much again."""
        read = min(self.held, self.unread)
        self.held -= read
        self.connection.reception.hold(-read)
        self.connection.acknowledge(self.stream_id, self.unread)
        self.unread = 0

    @property
    def takes_many(self) -> bool:
        """Whether the client streams messages."""
        return self.method is not None and self.method.takes_many

    def _sort(self, messages: list[FramedMessage]) -> None:
        method = self.method
        if method is not None and method.takes_many:
            if not self._is_hung_up:
                self._queue.extend(messages)
            if len(self._queue) > method.max_waiting:
                raise GrpcError(Grpc.RESOURCE_EXHAUSTED, _HASTY.format(method.max_waiting))
            if messages:
                self._arrived.set()
            return
        for message in messages:
            if self._message is not None:
                raise invalid_message("The call carries more than one message.")
            self._message = message

    # ---- Output ----

    def begin(self) -> None:
        """Send the head of the answer, unless it was sent already."""
        if not self._has_begun:
            self._has_begun = True
            packing: tuple[GrpcHeader, ...] = ((b"grpc-encoding", GZIP),) if self._packs else ()
            self.connection.head(self.stream_id, [*HEAD, *packing, *self.head])

    @property
    def _packs(self) -> bool:
        """Whether answers are compressed: if the client compresses its messages and accepts gzip."""
        return self.encoding == GZIP and GZIP in (self.fields.get(b"grpc-accept-encoding") or b"")

    async def send(self, content: bytes) -> None:
        """Send one message; returns when the transport has accepted it.

        Unsent bytes are counted until they are sent, and refused beyond the limit: otherwise a client that does not
        read would determine the memory that is kept for it.
        """
        if self._packs and len(content) >= WORTH_PACKING_BYTES:
            content = await apart(len(content), gzip.compress, content, 1)
            prefix = prefix_of(content, is_packed=True)
        else:
            prefix = prefix_of(content)
        self.begin()
        size = len(prefix) + len(content)
        if size <= self.connection.room(self.stream_id):
            self.connection.put(self.stream_id, prefix + content)
            return
        hold = self.connection.reception.hold_answer
        try:
            if not hold(size):
                raise GrpcError(Grpc.UNAVAILABLE, _UNREAD, retry_after_ms=1_000)
            await self._put(prefix)  # sent separately, so that a large message is not copied to be joined to it
            await self._put(content)
        finally:
            hold(-size)

    async def _put(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            room = self.connection.room(self.stream_id)
            if room <= 0:
                await self._wait_for_room()
                continue
            self.stalled_at = None
            self.connection.put(self.stream_id, data[start : start + room])
            start += room

    def finish(self, status: GrpcStatus = OK) -> None:
        """End the call with a status."""
        if self.is_over:
            return
        self.close()
        self.begin()
        self.connection.end(self.stream_id, status.trailers, is_arriving=self.is_arriving)
        self.connection.reception.count(self, status.number)

    def reject(self, status: bytes) -> None:
        """Refuse a request that is not gRPC, with an HTTP status."""
        self.close()
        self.connection.end(self.stream_id, [(b":status", status)], is_arriving=self.is_arriving)
        self.connection.reception.count(self, UNKNOWN)

    def refuse(self, error: Exception) -> None:
        """End the call with the status of an error."""
        if not self.is_over:
            self.finish(self.service.status_of(self, error))

    # ---- Events that end the call ----

    def expire(self) -> None:
        """The deadline has passed."""
        self.refuse(GrpcError(Grpc.DEADLINE_EXCEEDED, _LATE))

    def leave(self) -> None:
        """The client has disconnected or has reset the stream: no answer is sent."""
        if not self.is_over:
            self.close()
            self.connection.reception.count(self, CANCELLED)

    def close(self) -> None:
        """Stop the call: nothing more is sent or run for it."""
        self.is_over = True
        on_end, self.on_end = self.on_end, _ignore  # it refers back to the call
        on_end()
        self.connection.forget(self)
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    def wake(self) -> None:
        """Retry sending: flow control may have opened."""
        self._room.set()

    async def _wait_for_room(self) -> None:
        """Wait for `wake`. The call counts as stalled until bytes could be sent, because a wake does not
        promise room.
        """
        self._room.clear()
        if self.stalled_at is None:
            self.stalled_at = self.connection.now
        await self._room.wait()
