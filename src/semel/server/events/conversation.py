"""One WebSocket connection: requests in their order, answers in the same order, live events between them.

Submissions are handed to the engine as they come, several at a time, and decided in that order; everything else waits
until they are answered. When too much is under way, or the client does not read, the socket is not read either. A crash
here loses the connection and nothing else: what was answered is on disk, and what was not can be sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Any

from semel.contracts.events.commands import Submit
from semel.contracts.events.reading import Page, head_of, history, last_in
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.dialect import Welcome
from semel.contracts.events.wire.messages import Connect, Disconnect, Heartbeat, Request, Sync, WireError, bad_request
from semel.contracts.events.wire.session import Session, State
from semel.engine.contract import EngineError, OverloadedError
from semel.engine.reading import Reading
from semel.kernel.errors import REGISTRY
from semel.server.events.clocks import Bucket, Clocks
from semel.server.events.hub import Hub
from semel.server.events.submissions import Submissions, unanswerable
from semel.server.events.subscriber import Subscriber

if TYPE_CHECKING:
    from semel.server.events.socket import EventSocket

_log = logging.getLogger("semel.events")

MAX_INBOX = 64
NORMAL, GOING_AWAY, TOO_BIG, FAILED, TRY_LATER, REPLACED = 1000, 1001, 1009, 1011, 1013, 4001
ROOM_SECONDS = 5.0
"""How long a submission waits for room in the engine before its client is told."""
RETRY_SECONDS = 0.05


class Conversation:
    """The life of a connection after its handshake."""

    def __init__(self, hub: Hub, socket: EventSocket) -> None:
        self.origin = hub.origin()
        self._hub = hub
        self._context = hub.context
        self._engine = hub.context.engine
        self._socket = socket
        self._session = Session(hub.terms, self.origin)
        settings = hub.context.settings
        self._subscriber = Subscriber(hub.feed, self, settings.events_buffer_bytes)
        self._clocks = Clocks(self, settings)
        self._bucket = Bucket(settings.events_rate_messages)
        self._most_bad = settings.events_bad_messages
        self._inbox: deque[tuple[bytes, bool]] = deque()
        self._inbox_bytes = 0
        self._next: Request | WireError | None = None
        """The first message of the inbox, read and waiting for its turn."""
        self._pending = Submissions(hub, self._session, self._tell_all, self._go_on, self.fail)
        self._bad = 0
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_last = False
        """Whether this connection ends once its submissions are answered."""
        hub.opened(self)

    @property
    def audience(self) -> Hashable:
        """Whose frames it shares."""
        assert self._session.dialect is not None
        return self._session.dialect.audience

    @property
    def is_full(self) -> bool:
        """Whether enough is waiting to be sent."""
        return self._socket.is_full

    @property
    def is_watched(self) -> bool:
        """Whether silence means that the client is gone."""
        return self._session.dialect is None or self._session.dialect.is_watched

    @property
    def is_occupied(self) -> bool:
        """Whether it is we who keep the client waiting, or do not listen to it."""
        return bool(self._pending) or self._is_busy or not self._socket.is_reading

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._session.state is State.CLOSED

    def frame(self, row: EventRow) -> bytes:
        """An event as this audience is sent it."""
        dialect = self._session.dialect
        assert dialect is not None
        text = dialect.message("event_broadcast", dialect.event(row), f"e-{row.committed_id}", None, row.committed_at)
        return self._socket.frame(text)

    def push(self, frame: bytes) -> None:
        """Send a live event."""
        self._socket.write(frame)

    def under_way(self, name: bytes) -> asyncio.Future[Any] | None:
        """The answer that this event's submitter is still to be given."""
        return self._pending.under_way(name)

    # From the socket.

    def heard(self) -> None:
        """The client is there."""
        self._clocks.heard()

    def received(self, raw: bytes, is_text: bool) -> None:
        """A whole message has arrived."""
        if not self.is_closed and not self._is_last:
            self._inbox.append((raw, is_text))
            self._inbox_bytes += len(raw)
            self._pump()

    def too_large(self) -> bytes:
        """A message is larger than allowed, and the connection is closing: its last words."""
        most = self._hub.terms.limits.message_bytes
        error = WireError("bad_request", f"a message may have {most} bytes", {"max_message_bytes": most})
        words = b"" if self.is_closed else self._error_frame(error, None)
        self._end()
        return words

    def drained(self) -> None:
        """The client reads again."""
        self._clocks.drained()
        self._subscriber.drained()
        self._pump()

    def filled(self) -> None:
        """The client does not keep up: what it is owed does not grow by what it asks."""
        self._clocks.filled(self._socket.unsent)
        self._socket.read_on(False)

    def lost(self) -> None:
        """The connection is gone; what nobody will hear of and is not decided need not be."""
        self._pending.leave()
        self._end()
        if self._task is not None:
            self._task.cancel()

    # Ends.

    def shut_down(self) -> None:
        """The server stops: what the engine has is answered first."""
        self._is_last = True
        self._forget_inbox()
        if not self._pending and not self._is_busy:
            self.fail("The server is stopping; connect again.", GOING_AWAY)

    def replaced(self) -> None:
        """A newer connection of the same client has come; an error would only start a fight."""
        self.close(REPLACED, "replaced by a newer connection")

    def expired(self) -> None:
        """The credential has ended."""
        self.refuse(WireError("auth_failed", "The credential has expired; connect again with a new one.", closes=True))

    def silent(self) -> None:
        """Nothing was heard for too long."""
        if self.is_watched:
            self.close(GOING_AWAY, "idle for too long")
        else:
            self.fail("No sign of life for too long; connect again.", GOING_AWAY)

    def stalled(self) -> None:
        """The client has read nothing for too long."""
        self._hub.counts["slow_readers"] += 1
        self.fail("Too slow in reading; connect again and sync from your cursor.", TRY_LATER)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._socket.ping()

    def fail(self, message: str, close_code: int = FAILED) -> None:
        """End with the one error that every client recovers from."""
        self._tell_error(WireError("server_error", message))
        self.close(close_code, message)

    def close(self, code: int, reason: str) -> None:
        """End the connection; no live event goes out behind this."""
        if not self.is_closed:
            self._end()
            self._socket.close(code, reason)

    def _end(self) -> None:
        who = self._session.who
        self._session.state = State.CLOSED
        self._subscriber.close()
        self._clocks.stop()
        self._forget_inbox()
        self._hub.closed(self, None if who is None else who.client_id)

    def _forget_inbox(self) -> None:
        self._inbox.clear()
        self._inbox_bytes = 0
        self._next = None

    # Requests, in their order.

    def _pump(self) -> None:
        while self._inbox and not self._is_busy and not self.is_closed and self._has_room():
            if self._next is None:
                wait = self._bucket.take(asyncio.get_running_loop().time())
                if wait:
                    self._pause(wait)
                    break
                self._next = self._read(*self._inbox[0])
            request = self._next
            if self._pending and not isinstance(request, Submit):
                break
            if isinstance(request, Submit) and not self._submit(request):
                break
            self._done_with_first()
            if not isinstance(request, Submit):
                self._handle(request)
        is_short = len(self._inbox) < MAX_INBOX and self._inbox_bytes < self._hub.terms.limits.message_bytes
        self._socket.read_on(is_short and self._has_room() and not self.is_full)

    def _has_room(self) -> bool:
        return self._pending.items < self._hub.terms.limits.in_flight_items

    def _read(self, raw: bytes, is_text: bool) -> Request | WireError:
        try:
            if not is_text:
                raise bad_request("send messages as text frames")
            return self._session.read(raw)
        except WireError as error:
            return error

    def _done_with_first(self) -> None:
        self._next = None
        if self._inbox:
            self._inbox_bytes -= len(self._inbox.popleft()[0])

    def _handle(self, request: Request | WireError) -> None:
        if isinstance(request, WireError):
            self._refuse_request(request)
            return
        self._bad = 0
        if isinstance(request, Heartbeat):
            self._tell("heartbeat_ack", b"{}", self._session.reply_to)
        elif isinstance(request, Disconnect):
            self.close(NORMAL, "disconnected")
        elif isinstance(request, Connect):
            self._start(self._connect(request, self._session.reply_to))
        elif isinstance(request, Sync):
            self._start(self._sync(request, self._session.reply_to))

    def _refuse_request(self, error: WireError) -> None:
        self._bad += error.code == "bad_request"
        self.refuse(error, self._session.reply_to)
        if self._bad >= self._most_bad and not self.is_closed:
            self.close(REGISTRY["bad_request"].websocket, "too many malformed messages")

    def refuse(self, error: WireError, reply_to: str | None = None) -> None:
        """Tell of an error, and end the connection where the error does."""
        if self.is_closed:
            return
        self._tell_error(error, reply_to)
        if error.closes:
            self.close(REGISTRY[error.code].websocket, error.code)

    # Submissions.

    def _submit(self, command: Submit) -> bool:
        """Hand one to the engine; False when it has to wait for room, or was the last."""
        self._bad = 0
        try:
            self._pending.hand_over(command, len(self._inbox[0][0]), self._session.reply_to)
        except OverloadedError:
            return self._wait_for_room()
        except EngineError as error:
            self.fail(unanswerable(error))
            return False
        self._clocks.room_since = None
        return True

    def _wait_for_room(self) -> bool:
        """The engine is full: listen less, and say so only when that does not help."""
        now = asyncio.get_running_loop().time()
        since = self._clocks.room_since
        self._clocks.room_since = now if since is None else since
        if since is None or now - since < ROOM_SECONDS or self._pending:
            self._pause(RETRY_SECONDS)
            return False
        self._clocks.room_since = None
        dialect = self._session.dialect
        if dialect is not None and not dialect.is_watched:
            self.fail("Too many writes are waiting; nothing was stored. Connect again and repeat it.", TRY_LATER)
            return False
        error = WireError("rate_limited", "Too many writes are waiting; nothing was stored.", {"retry_after_ms": 1000})
        self._done_with_first()
        self.refuse(error, self._session.reply_to)
        self._pause(RETRY_SECONDS)
        return False

    def _pause(self, seconds: float) -> None:
        self._is_busy = True
        asyncio.get_running_loop().call_later(seconds, self._unpause)

    def _unpause(self) -> None:
        self._is_busy = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_last and not self._pending and not self._is_busy:
            self.fail("The server is stopping; connect again.", GOING_AWAY)
        else:
            self._pump()

    # What needs a look at the log.

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._task = asyncio.get_running_loop().create_task(self._carry_out(work))

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except WireError as error:
            self.refuse(error, self._session.reply_to)
        except EngineError as error:
            self.fail(unanswerable(error))
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer and the log the details
            error_id = self._context.world.random_bytes(8).hex()
            _log.exception("fault in a connection", extra={"error_id": error_id})
            self.fail(f"Something went wrong here. Error id {error_id}.")
        self._is_busy = False
        self._go_on()

    async def _connect(self, asked: Connect, reply_to: str | None) -> None:
        principal = self._hub.principal(asked.token.encode())
        who = self._hub.identity(principal, asked.client_id)
        project = asked.project
        if project is not None and not (who.may_read(project) or who.may_write(project)):
            raise WireError("forbidden", "This credential may not use that project.", closes=True)
        last, project_last = await self._engine.read(lambda reading: _watermarks(reading, project))
        dialect = self._session.dialect
        if self.is_closed or dialect is None:
            return
        self._session.activate(who)
        self._clocks.expire(principal.expires_at_ms, self._now)
        if dialect.is_exclusive:
            self._hub.claim(who.client_id, self)
        welcome = Welcome(who.client_id, self._now(), last, project_last)
        self._tell("connected", dialect.connected(welcome, self._hub.terms), reply_to)

    async def _sync(self, asked: Sync, reply_to: str | None) -> None:
        dialect = self._session.dialect
        assert dialect is not None
        bound = self._session.bound_of(asked)
        if dialect.holds_while_paging or asked.subscription is not None:
            self._subscriber.hold()
        budget = self._hub.terms.limits.message_bytes
        page: Page = await self._engine.read(
            lambda reading: history(reading, asked.names, asked.since, bound, asked.limit, budget)
        )
        if self.is_closed:
            return
        self._session.paged(asked, page)
        if asked.subscription is not None:
            self._subscriber.subscribe(page.sync_to, frozenset(asked.subscription))
        subscribed = sorted(self._subscriber.names)
        self._tell("sync_response", dialect.page(asked, page, subscribed, self._hub.terms), reply_to)
        if not (dialect.holds_while_paging and page.has_more):
            self._subscriber.release()

    def _tell(self, kind: str, payload: bytes, reply_to: str | None) -> None:
        self._socket.write(self._socket.frame(self._session.message(kind, payload, reply_to, self._now())))

    def _tell_all(self, messages: list[bytes]) -> None:
        if messages and not self.is_closed:
            self._socket.write(b"".join(map(self._socket.frame, messages)))

    def _tell_error(self, error: WireError, reply_to: str | None = None) -> None:
        if not self.is_closed:
            self._socket.write(self._error_frame(error, reply_to))

    def _error_frame(self, error: WireError, reply_to: str | None) -> bytes:
        self._context.metrics.event_errors[error.code] += 1
        text = self._session.error(error.code, error.message, error.details, self._now(), reply_to)
        return self._socket.frame(text)

    def _now(self) -> int:
        return self._context.world.wall_ms()


def _watermarks(reading: Reading, project: str | None) -> tuple[int, int]:
    return head_of(reading).last_id, 0 if project is None else last_in(reading, project)
