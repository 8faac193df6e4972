"""A WebSocket connection of events: requests and answers in order, live events between them.

Submissions are sent to the engine as they arrive, several at a time, and decided in that order; everything else waits
until they are answered. Back pressure: when too much is in flight, or the client does not read, the socket is not read
either. A crash here loses the connection and nothing else: what was answered is on disk, and what was not can be sent
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Any

from semel.contracts.events.commands import Submit
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.messages import Connect, Disconnect, Heartbeat, Request, Sync, WireError, bad_request
from semel.contracts.events.wire.session import Session, State
from semel.engine.contract import EngineError, OverloadedError
from semel.kernel.errors import REGISTRY
from semel.server.events.clocks import Clocks
from semel.server.events.hub import Hub, Instance
from semel.server.events.inbox import Inbox, Message
from semel.server.events.looks import Looks
from semel.server.events.submissions import Submissions, unanswerable
from semel.server.events.subscriber import Subscriber
from semel.server.principals import Principal
from semel.server.rates import Bucket
from semel.server.threads import apart, is_small

if TYPE_CHECKING:
    from semel.server.events.socket import EventSocket

NORMAL, GOING_AWAY, TOO_BIG, FAILED, TRY_LATER, REPLACED = 1000, 1001, 1009, 1011, 1013, 4001
PRUNED = "Events that were still to be sent have been pruned; connect again and sync."
ROOM_SECONDS = 5.0
"""Longest wait of a submission for room in the engine's queue, in seconds, before it is refused."""
RETRY_SECONDS = 0.05


class Conversation:
    """A WebSocket connection after its handshake."""

    def __init__(self, hub: Hub, socket: EventSocket) -> None:
        self.origin = hub.origin()
        self._hub = hub
        self._context = hub.context
        self._socket = socket
        self._session = Session(hub.terms, self.origin)
        settings = hub.settings
        self._subscriber = Subscriber(hub.feed, self, settings.events_buffer_bytes)
        self._clocks = Clocks(self, settings)
        self._bucket = Bucket(settings.events_rate_messages)
        self._most_bad = settings.events_bad_messages
        self._inbox = Inbox(hub.terms.limits.message_bytes)
        self._looks = Looks(hub, socket.remote, self._session, self._subscriber, self._tell, self._admit)
        self._pending = Submissions(
            hub, self._session, self._tell_all, self._go_on, self.fail, self._subscriber, socket.remote
        )
        self._bad = 0
        self._instance: Instance | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._read_bytes = 0
        """Bytes of messages parsed on the event loop since other tasks had a turn."""
        self._is_resting = False
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
        """Whether the server itself keeps the client waiting, or does not read from it."""
        return bool(self._pending) or self._is_busy or not self._socket.is_reading

    @property
    def is_stranger(self) -> bool:
        """Whether the client is not authenticated, and no authentication is in progress."""
        return self._session.state is State.AWAITING and not self._is_busy

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

    def pruned(self, pruned_to: int) -> bool:
        """Retention removed unsent events: pages can say so, live events cannot, so the client must sync."""
        self.fail(PRUNED)
        return False

    def under_way(self, name: bytes) -> asyncio.Future[Any] | None:
        """The answer that this event's submitter is still to be given."""
        return self._pending.under_way(name)

    # From the socket.

    def heard(self) -> None:
        """Bytes have arrived: the client is alive."""
        self._clocks.heard()

    def received(self, raw: bytes, is_text: bool) -> None:
        """A whole message has arrived."""
        if not self.is_closed and not self._is_last:
            self._inbox.add(Message(raw, is_text))
            self._pump()

    def too_large(self, most: int) -> None:
        """A message is larger than allowed; the error is sent in its turn, behind the answers to earlier messages."""
        if not self.is_closed and not self._is_last:
            self._inbox.add(Message(b"", True, most))
            self._pump()

    def drained(self) -> None:
        """The client reads again."""
        self._clocks.drained()
        self._subscriber.drained()
        self._pump()

    def filled(self) -> None:
        """Back pressure: the client does not keep up, so its further requests wait."""
        self._clocks.filled(self._socket.unsent)
        self._socket.read_on(False)

    def lost(self) -> None:
        """The connection is lost: cancel the work that is not decided, since no client will receive its answer."""
        self._pending.leave()
        self._end()
        if self._task is not None:
            self._task.cancel()

    # Ends.

    def shut_down(self) -> None:
        """The server stops: what the engine has is answered first."""
        self._is_last = True
        self._inbox.clear()
        if not self._pending and not self._is_busy:
            self.fail("The server is stopping; connect again.", GOING_AWAY)

    def replaced(self) -> None:
        """A newer connection of the same client instance replaces this one; an error would start a reconnect loop."""
        self.close(REPLACED, "replaced by a newer connection")

    def expired(self) -> None:
        """The credential has ended."""
        self.refuse(WireError("auth_failed", "The credential has expired; connect again with a new one.", closes=True))

    def silent(self) -> None:
        """Idle timeout: the client sent nothing for too long."""
        if self.is_watched:
            self.close(GOING_AWAY, "idle for too long")
        else:
            self.fail("No sign of life for too long; connect again.", GOING_AWAY)

    def never_connected(self) -> None:
        """The client did not authenticate in time."""
        self.close(GOING_AWAY, "no connect for too long")

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
        """Close the connection; no live event is sent after this."""
        if not self.is_closed:
            self._end()
            self._socket.close(code, reason)

    def _end(self) -> None:
        self._session.state = State.CLOSED
        self._subscriber.close()
        self._clocks.stop()
        self._inbox.clear()
        self._hub.closed(self, self._instance)

    # Requests, in their order.

    def _pump(self) -> None:
        while self._inbox and not (self._is_busy or self._is_resting or self.is_closed or self.is_full):
            if not self._has_room() or (self._inbox.read is None and not self._read_first()):
                break
            request = self._inbox.read
            assert request is not None
            if self._pending and not isinstance(request, Submit):
                break
            if isinstance(request, Submit) and not self._submit(request):
                break
            self._inbox.drop_first()
            if not isinstance(request, Submit):
                self._handle(request)
        self._socket.read_on(self._inbox.has_room and self._has_room() and not self.is_full)

    def _read_first(self) -> bool:
        """Understand the first message; False when that has to wait, or is done apart because it is large."""
        wait = self._bucket.take(asyncio.get_running_loop().time())
        message = self._inbox.first
        if wait:
            self._pause(wait)
        elif not is_small(len(message.raw)):
            self._start(self._read_apart(message))
        else:
            self._inbox.read = self._read(message)
            self._read_bytes += len(message.raw)
            if not is_small(self._read_bytes):  # others have a turn
                self._read_bytes, self._is_resting = 0, True
                asyncio.get_running_loop().call_soon(self._rested)
        return self._inbox.read is not None

    async def _read_apart(self, message: Message) -> None:
        self._inbox.read = await apart(len(message.raw), self._read, message)

    def _rested(self) -> None:
        self._is_resting = False
        self._go_on()

    def _has_room(self) -> bool:
        return self._pending.items < self._hub.terms.limits.in_flight_items

    def _read(self, message: Message) -> Request | WireError:
        try:
            if message.most:
                details = {"max_message_bytes": message.most}
                words = f"a message may have at most {message.most} bytes here"
                raise WireError("bad_request", words, details, closes=True, close_code=TOO_BIG)
            if not message.is_text:
                raise bad_request("send messages as text frames")
            return self._session.read(message.raw)
        except WireError as error:
            return error
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer and the log the details
            return WireError("server_error", self._hub.fault("fault in reading a message"), closes=True)

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
            self._start(self._looks.connect(request, self._session.reply_to))
        elif isinstance(request, Sync):
            self._start(self._looks.sync(request, self._session.reply_to))

    def _refuse_request(self, error: WireError) -> None:
        self._bad += error.code == "bad_request"
        if error.code == "auth_failed":  # its credential is valid, and it uses the name of another caller
            self._hub.denied(self._socket.remote)
        self.refuse(error, self._session.reply_to)
        if self._bad >= self._most_bad and not self.is_closed:
            self.close(REGISTRY["bad_request"].websocket, "too many malformed messages")

    def refuse(self, error: WireError, reply_to: str | None = None) -> None:
        """Tell of an error, and end the connection where the error does."""
        if self.is_closed:
            return
        self._tell_error(error, reply_to)
        if error.code == "forbidden":
            self._hub.denied(self._socket.remote)
        if error.closes:
            self.close(error.close_code, error.code)

    # Submissions.

    def _submit(self, command: Submit) -> bool:
        """Hand one to the engine; False when it has to wait for room, or was the last."""
        self._bad = 0
        try:
            self._pending.hand_over(command, len(self._inbox.first.raw), self._session.reply_to)
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
        self._inbox.drop_first()
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

    # Requests that read the log.

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
            self.fail(self._hub.fault("fault in a connection"))
        self._is_busy = False
        self._go_on()

    def _admit(self, principal: Principal, instance: str) -> bool:
        """The credential was good: it counts until its end, and it may be the newest connection of this instance."""
        self._clocks.admitted()
        self._clocks.expire(principal.expires_at_ms, self._now)
        self._clocks.end_with(principal.revocation)
        if self._context.principals.are_known:
            self._pending.principal = principal.actor
        who, dialect = self._session.who, self._session.dialect
        if self.is_closed or who is None or dialect is None:
            return False
        if dialect.is_exclusive:
            self._instance = (who.client_id, instance)
            self._hub.claim(self._instance, self)
        return True

    def _tell(self, kind: str, payload: bytes, reply_to: str | None) -> None:
        self._socket.write(self._socket.frame(self._session.message(kind, payload, reply_to, self._now())))

    def _tell_all(self, messages: list[bytes]) -> None:
        if messages and not self.is_closed:
            self._socket.write(b"".join(map(self._socket.frame, messages)))

    def _tell_error(self, error: WireError, reply_to: str | None = None) -> None:
        if not self.is_closed:
            self._socket.write(self._error_frame(error, reply_to))

    def _error_frame(self, error: WireError, reply_to: str | None) -> bytes:
        self._hub.metrics.errors[error.code] += 1
        text = self._session.error(error.code, error.message, error.details, self._now(), reply_to)
        return self._socket.frame(text)

    def _now(self) -> int:
        return self._context.world.wall_ms()
