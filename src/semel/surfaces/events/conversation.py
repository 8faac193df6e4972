"""A WebSocket connection of events: requests and answers in order, live events between them.

Extends `server/websocket/conversation.py`: submissions go to the engine as they arrive, several at a time, without a
task for each, and are decided in that order; every other request waits until they are answered. So does a submission
for the full rules while plain ones are pending, because the engine could decide it before them. Back pressure: when too
many items are in flight, the socket is not read. After a crash, every answered submission is on disk, and the client
can repeat the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from weakref import proxy

from websockets.frames import CloseCode

from semel.engine.contract import EngineError, OverloadedError
from semel.kernel.errors import REGISTRY, Refusal, Refused
from semel.kernel.rate_limit import TokenBucket
from semel.server.auth.principals import Principal
from semel.server.thread_pool import apart, is_small
from semel.server.websocket.connection_limits import ConversationLimits, InboxMessage, MessageKind
from semel.server.websocket.conversation import STOPPING, Conversation, MessageTimes
from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.http_refusals import own_refusal
from semel.surfaces.events.requests import EventSubmissions, SyncHandler, unanswerable
from semel.surfaces.events.service import SOCKET_PATH, SURFACE, ClientInstance, EventService
from semel.surfaces.events.subscriber import EventSubscriber
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.messages import Connect, Disconnect, Heartbeat, Request, Sync, bad_request
from semel.surfaces.events.wire.session import EventSession, SessionState

if TYPE_CHECKING:
    from semel.surfaces.events.socket import EventSocket

REPLACED = 4001
"""The close code of a connection that a newer connection replaced."""
PRUNED = "Events that were still to be sent have been pruned; connect again and sync."
ROOM_SECONDS = 5.0
"""Longest wait of a submission for room in the engine's queue, in seconds, before it is refused."""
RETRY_SECONDS = 0.05
MAX_BAD_MESSAGES = 100
"""A connection is closed after this number of malformed messages in a row."""


class EventConversation(Conversation):
    """A WebSocket connection after its handshake."""

    surface = SURFACE

    def __init__(self, service: EventService, socket: EventSocket) -> None:
        settings = service.settings
        seconds = [ms / 1_000 for ms in (settings.events_ping_ms, settings.events_slow_ms, settings.events_idle_ms)]
        limits = ConversationLimits(service.policy.limits.message_bytes, *seconds)
        super().__init__(service.context, socket, limits)
        self.origin = service.origin()
        self._service = service
        self._session = EventSession(service.policy, self.origin)
        self._subscriber = EventSubscriber(service.feed, proxy(self), settings.events_buffer_bytes)
        self._connect_timer = self._loop.call_later(settings.events_idle_ms / 1_000, self.never_connected)
        self._bucket = TokenBucket(settings.events_rate_messages)
        self._pending = EventSubmissions(
            service, self._session, self._tell_all, self.go_on, self.fail, self.refuse, self._subscriber, socket.remote
        )
        self._pending.origin = lambda: self.handshake
        self._bad = 0
        self._instance: ClientInstance | None = None
        self._request: Request | Refusal | None = None
        """The first message of the inbox, after it was parsed."""
        self._read_bytes = 0
        """Bytes of messages parsed on the event loop since it last yielded to other tasks."""
        self._is_resting = False
        self._room_since: float | None = None
        """The loop time since which a submission waits for room in the engine's queue."""
        service.opened(self)

    def time_messages(self, times: MessageTimes) -> None:
        """Count durations here, also those of submissions."""
        super().time_messages(times)
        self._pending.times = times

    @property
    def audience(self) -> Hashable:
        """The audience of the connection: all of one audience get the same frames."""
        assert self._session.dialect is not None
        return self._session.dialect.audience

    @property
    def is_full(self) -> bool:
        """Whether the buffer limit is reached."""
        return self._socket.is_full

    @property
    def is_watched(self) -> bool:
        """Whether the idle timeout applies."""
        return self._session.dialect is None or self._session.dialect.is_watched

    @property
    def is_answering(self) -> bool:
        """Whether submissions or other work are under way."""
        return bool(self._pending) or self._is_busy

    @property
    def is_occupied(self) -> bool:
        """Whether the server itself keeps the client waiting, or does not read from it."""
        return self.is_answering or super().is_occupied

    @property
    def is_stranger(self) -> bool:
        """Whether the client is not authenticated, and no authentication is in progress."""
        return self._session.state is SessionState.AWAITING and not self._is_busy

    @property
    def has_room(self) -> bool:
        """Whether the inbox has room, and the limit of items in flight is not reached."""
        return super().has_room and self._may_submit

    @property
    def _may_submit(self) -> bool:
        return self._pending.items < self._service.policy.limits.in_flight_items

    def frame(self, row: EventRow) -> bytes:
        """The frame of an event for this audience."""
        dialect = self._session.dialect
        assert dialect is not None
        text = dialect.message("event_broadcast", dialect.event(row), f"e-{row.committed_id}", None, row.committed_at)
        return self._socket.frame(text)

    def push(self, frame: bytes) -> None:
        """Send a live event, in one write with others."""
        self._socket.write_soon(frame)

    def pruned(self, pruned_to: int) -> bool:
        """Retention removed unsent events. Only pages can report that, so the client must sync."""
        self.fail(PRUNED)
        return False

    def under_way(self, name: bytes) -> asyncio.Future[Any] | None:
        """The pending answer to the submitter of this event; None if there is none."""
        return self._pending.under_way(name)

    def drained(self) -> None:
        """The client reads again."""
        self._subscriber.drained()
        super().drained()

    # How a connection ends.

    def abandoned(self) -> None:
        """The connection is lost: cancel the submissions that are not decided."""
        self._pending.part()

    def stopping(self) -> None:
        """The server is stopping."""
        self.fail(STOPPING, CloseCode.GOING_AWAY)

    def replaced(self) -> None:
        """A newer connection of the same client instance replaces this one; an error would start a reconnect loop."""
        self.close(REPLACED, "replaced by a newer connection")

    def expired(self) -> None:
        """The credential has expired."""
        self.refuse(Refusal("auth_failed", "The credential has expired; connect again with a new one.", closes=True))

    def silent(self) -> None:
        """Idle timeout: the client sent nothing for too long."""
        if self.is_watched:
            self.close(CloseCode.GOING_AWAY, "idle for too long")
        else:
            self.fail("No sign of life for too long; connect again.", CloseCode.GOING_AWAY)

    def never_connected(self) -> None:
        """The client did not authenticate in time."""
        self.close(CloseCode.GOING_AWAY, "no connect for too long")

    def stalled(self) -> None:
        """Send timeout: the client read nothing for too long."""
        self._service.counts["slow_readers"] += 1
        self.fail("Too slow in reading; connect again and sync from your cursor.", CloseCode.TRY_AGAIN_LATER)

    def fail(self, message: str, close_code: int = CloseCode.INTERNAL_ERROR) -> None:
        """Close with an error that makes every client reconnect."""
        self._tell_error(Refusal("server_error", message))
        self.close(close_code, message)

    def ended(self, has_pong: bool) -> None:
        """The connection has ended: stop live delivery."""
        self._session.state = SessionState.CLOSED
        self._subscriber.close()
        self._connect_timer.cancel()
        self._service.closed(self, self._instance)

    # Requests, in order of arrival.

    def take(self) -> bool:
        """Hand a submission to the engine; any other request waits until all submissions are answered."""
        if self._is_resting or not self._may_submit:
            return False
        if self._request is None:
            if self._take_plain():
                return True
            if not self._read_first():
                return False
        request = self._request
        assert request is not None
        if isinstance(request, EventSubmit):
            is_taken = self._pending.takes_full and self._submit(request)
        else:
            is_taken = not self._pending
        if is_taken:
            self._drop_first()
            if not isinstance(request, EventSubmit):
                self._handle(request)
        return is_taken

    def _take_plain(self) -> bool:
        """Hand the first message to the engine if it is a plain submission. False if it must be read in full."""
        session, pending = self._session, self._pending
        message = self._inbox.first
        if message.kind is not MessageKind.TEXT or not pending.takes_plain:
            return False
        command = session.read_plain(message.raw)
        if command is None or self._bucket.take(self._loop.time()):
            return False
        size = len(message.raw)
        if not pending.hand_over_plain(command, size, session.reply_to):
            return False
        self._bad = 0
        self._inbox.pop()
        self._count_read(size)
        return True

    def _drop_first(self) -> None:
        self._request = None
        self._inbox.pop()

    def _read_first(self) -> bool:
        """Parse the first message. False if parsing has to wait, or runs in a thread because the message is large."""
        wait = self._bucket.take(self._loop.time())
        message = self._inbox.first
        if wait:
            self._pause(wait)
        elif not is_small(len(message.raw)):
            self.start(self._read_apart, message)
        else:
            self._request = self._read(message)
            self._count_read(len(message.raw))
        return self._request is not None

    def _count_read(self, size: int) -> None:
        """Count bytes that were parsed on the event loop; after many, yield to other tasks."""
        self._read_bytes += size
        if not is_small(self._read_bytes):
            self._read_bytes, self._is_resting = 0, True
            self._loop.call_soon(self._rested)

    async def _read_apart(self, message: InboxMessage) -> None:
        self._request = await apart(len(message.raw), self._read, message)

    def _rested(self) -> None:
        self._is_resting = False
        self.go_on()

    def _read(self, message: InboxMessage) -> Request | Refusal:
        try:
            if message.kind is MessageKind.TOO_LARGE:
                details = {"max_message_bytes": message.limit}
                words = f"a message may have at most {message.limit} bytes here"
                return Refusal("bad_request", words, details, own_status=413, closes=True)
            if message.kind is not MessageKind.TEXT:
                raise bad_request("send messages as text frames")
            return self._session.read(message.raw)
        except Refused as refused:
            return refused.refusal
        except Exception:  # noqa: BLE001 - after any fault, the client gets an answer, and the log the details
            words = self._service.fault("fault in reading a message", self.handshake.log_facts())
            return Refusal("server_error", words, closes=True)

    def _handle(self, request: Request | Refusal) -> None:
        if isinstance(request, Refusal):
            self._refuse_request(request)
            return
        self._bad = 0
        if isinstance(request, Heartbeat):
            self._tell("heartbeat_ack", b"{}", self._session.reply_to)
        elif isinstance(request, Disconnect):
            self.close(CloseCode.NORMAL_CLOSURE, "disconnected")
        elif isinstance(request, Connect):
            self.answer(self._sync_handler().connect, request, self._session.reply_to)
        elif isinstance(request, Sync):
            self.answer(self._sync_handler().sync, request, self._session.reply_to)

    def _sync_handler(self) -> SyncHandler:
        """A handler for one request: kept longer, it and the connection would refer to each other."""
        session, subscriber = self._session, self._subscriber
        return SyncHandler(
            self._service, self._socket.remote, session, subscriber, self._tell, self._admit, self.read_live
        )

    def _refuse_request(self, refusal: Refusal) -> None:
        self._bad += refusal.code == "bad_request"
        if refusal.code == "auth_failed":  # the credential is valid, but the client id is another caller's
            self._service.denied(self._socket.remote)
        self.refuse(refusal, self._session.reply_to)
        if self._bad >= MAX_BAD_MESSAGES and not self.is_over:
            self.close(REGISTRY["bad_request"].websocket, "too many malformed messages")

    def refuse(self, refusal: Refusal, reply_to: str | None = None) -> None:
        """Send a refusal, and close the connection if the refusal says so."""
        if self.is_over:
            return
        self._tell_error(refusal, reply_to)
        if refusal.code == "forbidden":
            self._service.denied(self._socket.remote)
        if refusal.closes:
            is_too_large = refusal.status == 413
            self.close(CloseCode.MESSAGE_TOO_BIG if is_too_large else refusal.kind.websocket, refusal.code)

    # Submissions.

    def _submit(self, command: EventSubmit) -> bool:
        """Hand a submission to the engine. False if it waits for room, or if the connection ends with it."""
        self._bad = 0
        try:
            self._pending.hand_over(command, len(self._inbox.first.raw), self._session.reply_to)
        except OverloadedError:
            return self._wait_for_room()
        except EngineError as error:
            self.fail(unanswerable(error))
            return False
        self._room_since = None
        return True

    def _wait_for_room(self) -> bool:
        """The engine's queue is full: pause reading, and refuse the submission only after `ROOM_SECONDS`."""
        now = self._loop.time()
        since = self._room_since
        self._room_since = now if since is None else since
        if since is None or now - since < ROOM_SECONDS or self._pending:
            self._pause(RETRY_SECONDS)
            return False
        self._room_since = None
        dialect, told = self._session.dialect, "Too many writes are waiting; nothing was stored."
        if dialect is not None and not dialect.is_watched:
            self.fail(f"{told} Connect again and repeat it.", CloseCode.TRY_AGAIN_LATER)
            return False
        refusal = Refusal("rate_limited", told, {"retry_after_ms": 1000})
        self._drop_first()
        self.refuse(refusal, self._session.reply_to)
        self._pause(RETRY_SECONDS)
        return False

    def _pause(self, seconds: float) -> None:
        self._is_busy = True
        self._loop.call_later(seconds, self._unpause)

    def _unpause(self) -> None:
        self._is_busy = False
        self.go_on()

    # Requests that read the log.

    def failed(self, error: Exception) -> None:
        """Answer an error of a `connect`, a `sync` or a large message."""
        if isinstance(error, Refused):
            self.refuse(own_refusal(error.refusal), self._session.reply_to)
        elif isinstance(error, EngineError):
            self.fail(unanswerable(error))
        else:
            self.fail(self._service.fault("fault in a connection", self.handshake.log_facts()))

    def _admit(self, principal: Principal, instance: str) -> bool:
        """Admit an authenticated client until its credential expires, and replace older connections of the instance."""
        self._connect_timer.cancel()
        self.end_with(principal)
        if self._context.principals.are_known:
            self.actor = self._pending.principal = principal.actor
            self.join(principal.actor, lambda: {"path": SOCKET_PATH.decode(), "remote_addr": self._socket.remote})
        who, dialect = self._session.who, self._session.dialect
        if self.is_over or who is None or dialect is None:
            return False
        if dialect.is_exclusive:
            self._instance = (who.client_id, instance)
            self._service.claim(self._instance, self)
        return True

    def _tell(self, kind: str, payload: bytes, reply_to: str | None) -> None:
        self._socket.write(self._socket.frame(self._session.message(kind, payload, reply_to, self._now())))

    def _tell_all(self, messages: list[bytes]) -> None:
        if messages and not self.is_over:
            self._socket.write(b"".join(map(self._socket.frame, messages)))

    def _tell_error(self, refusal: Refusal, reply_to: str | None = None) -> None:
        if not self.is_over:
            self._socket.write(self._error_frame(refusal, reply_to))

    def _error_frame(self, refusal: Refusal, reply_to: str | None) -> bytes:
        self._service.metrics.errors[refusal.code] += 1
        text = self._session.error(refusal.code, refusal.message, refusal.facts, self._now(), reply_to)
        return self._socket.frame(text)

    def _now(self) -> int:
        return self._context.world.wall_ms()
