"""The conversation over one WebSocket: messages are queued, and answered in order.

All surfaces share this structure. Messages go to a bounded inbox and are handled one after the other; work that waits
runs in a task, and the next message is handled when it is done. Flow control: when the inbox is full, or the client
does not read its output, the socket is not read either. The connection ends when the client is silent or stalled for
too long, when its credential expires or is revoked, when the server stops (running work is answered first), or when the
surface closes it. A crash here loses only the connection.

A surface derives a class that handles a message, answers an error, and words the reason of a close. Each surface also
defines how it waits for a full engine: events pause between two messages, because submissions are passed on without a
task; deltas wait in the task that answers the frame.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from semel.engine.caller import RequestOrigin
from semel.server.auth.principals import Principal
from semel.server.context import Context
from semel.server.ops.log_facts import KnownOrigin
from semel.server.ops.request_times import WEBSOCKET
from semel.server.quotas.accounts import NO_SEAT, QuotaAccount, leave_account
from semel.server.websocket.connection_limits import (
    ConnectionTimers,
    ConversationLimits,
    Inbox,
    InboxMessage,
    MessageKind,
)

if TYPE_CHECKING:
    from semel.server.websocket.transport import WebSocket

STOPPING = "The server is stopping; connect again."


class MessageTimes(Protocol):
    """Counts durations."""

    def observe(self, value: float, /) -> None:
        """A message was answered after this number of seconds."""


class Conversation(ABC):
    """A WebSocket connection after its handshake. Used on the event loop only."""

    surface: ClassVar[str]
    """The name of the surface in metrics."""

    def __init__(self, context: Context, socket: WebSocket, limits: ConversationLimits) -> None:
        self._context = context
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(limits.inbox_bytes)
        self._timers = ConnectionTimers(self, limits)
        self._times: MessageTimes | None = None
        self.actor = ""
        """The actor of the client, for logs; empty if it is that of the handshake, or not known."""
        self.handshake: RequestOrigin = KnownOrigin({})
        """The request of the handshake, which all messages of the connection belong to in logs."""
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        """Whether the next message has to wait."""
        self._is_last = False
        """Whether the connection ends after the running work."""
        self.is_over = False
        self.account: QuotaAccount | None = None
        """The account of the client's principal; None without a credential or without quotas."""
        self._charged: InboxMessage | None = None
        """The first message of the inbox, once it was charged."""
        self._is_paced = False
        """Whether the next message waits until the quota of the principal allows it."""
        self._seat = NO_SEAT

    def time_messages(self, times: MessageTimes) -> None:
        """Count the durations of messages here from now on."""
        self._times = times

    # ---- Implemented by a surface ----

    @abstractmethod
    def take(self) -> bool:
        """Take the first message from the inbox and handle it, or start to; False if it has to wait."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Work for the client has raised an error: answer it, and close the connection if the error requires it."""

    @abstractmethod
    def ended(self, has_pong: bool) -> None:
        """Called once when the conversation has ended; `has_pong`: a pong of the client was not handled yet."""

    @abstractmethod
    def abandoned(self) -> None:
        """The connection is lost: cancel undecided work, because no client will receive its answer."""

    @abstractmethod
    def stopping(self) -> None:
        """The server is stopping, and no work is running: close."""

    @abstractmethod
    def expired(self) -> None:
        """The credential has expired: close."""

    def revoked(self) -> None:
        """The credential was revoked: close."""
        self.expired()

    @abstractmethod
    def silent(self) -> None:
        """Nothing has arrived from the client for too long: close."""

    @abstractmethod
    def stalled(self) -> None:
        """The client has read nothing for too long: close."""

    def late(self) -> None:
        """A message takes too long to arrive: close."""
        self.silent()

    def idle(self) -> None:  # noqa: B027 - not every surface sends live data from here
        """No message waits, and the client keeps up: live data can be sent."""

    def ping(self) -> None:
        """Send a ping to check that the client is alive."""
        self._socket.ping()

    def ponged(self, payload: bytes) -> None:  # noqa: B027 - not every surface acts on a pong
        """The client has answered a ping: it has received everything that was sent before."""

    def unfinished(self, size: int) -> None:  # noqa: B027 - not every surface has a memory budget
        """Called with the number of bytes in memory of an incomplete message."""

    @property
    def is_stranger(self) -> bool:
        """Whether the client is not authenticated, so that lower limits apply."""
        return False

    @property
    def is_watched(self) -> bool:
        """Whether the client sends heartbeats, so that it is not pinged."""
        return False

    @property
    def is_late(self) -> bool:
        """Whether a message takes too long to arrive."""
        return False

    @property
    def is_answering(self) -> bool:
        """Whether work for the client is running."""
        return self._is_busy

    @property
    def is_occupied(self) -> bool:
        """Whether silence is not the client's fault: the server is not reading, or the client waits for the server."""
        return not self._socket.is_reading

    @property
    def is_owed(self) -> bool:
        """Whether the client has to read, or to acknowledge, its output."""
        return self._socket.is_full

    @property
    def has_room(self) -> bool:
        """Whether further messages may arrive."""
        return self._inbox.has_room

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The latest work that waits; None if there was none."""
        return self._task

    # ---- Called by the socket ----

    def heard(self) -> None:
        """Bytes have arrived: the client is alive."""
        self._timers.heard()

    def received(self, raw: bytes, is_text: bool) -> None:
        """A complete message has arrived."""
        self._arrive(InboxMessage(MessageKind.TEXT if is_text else MessageKind.BINARY, raw))

    def too_large(self, most: int) -> None:
        """A message is larger than allowed; the error is sent in order, after the answers to earlier messages."""
        self._arrive(InboxMessage(MessageKind.TOO_LARGE, limit=most))

    def filled(self) -> None:
        """Back pressure: the client does not keep up, so its further requests wait."""
        self.mind_stall()
        self.mind_room()

    def drained(self) -> None:
        """The client reads again, which also shows that it is alive."""
        self._timers.heard()
        self.mind_stall()
        self.pump()

    def lost(self) -> None:
        """The connection is lost."""
        self._end()
        self.abandoned()
        if self._task is not None:
            self._task.cancel()

    def shut_down(self) -> None:
        """The server is stopping: running work is answered first, and waiting messages are not started."""
        self._is_last = True
        if self._inbox.clear():
            self._inbox.add(InboxMessage(MessageKind.PONG))
        self.go_on()

    def _arrive(self, message: InboxMessage) -> None:
        if not self.is_over and not self._is_last:
            self._inbox.add(message)
            self.pump()

    # ---- Messages, in order ----

    def pump(self) -> None:
        """Handle messages until one has to wait, then pause or resume reading."""
        is_going = True
        while is_going and self._inbox and self._is_free:
            is_going = (self.account is None or self._charge(self.account)) and self.take()
        if not self._inbox and self._is_free:
            self.idle()
        self.mind_room()

    @property
    def _is_free(self) -> bool:
        return not (self._is_busy or self._is_paced or self.is_over or self._socket.is_full)

    def _charge(self, account: QuotaAccount) -> bool:
        """Charge the first message to the principal; false if it has to wait for the quota, and is not looked at."""
        message = self._inbox.first
        if message is self._charged or message.kind is MessageKind.PONG:
            return True
        wait = account.wait(self._context.quotas.now())
        if wait:
            self._is_paced = True
            self._loop.call_later(wait, self._go_on_paced)
            return False
        account.spend(len(message.raw))
        self._charged = message
        return True

    def _go_on_paced(self) -> None:
        self._is_paced = False
        if not self.is_over:
            self.pump()

    def go_on(self) -> None:
        """Work is done: handle the next message, or close the connection if this was the last."""
        if self._is_last and not self.is_answering:
            self.stopping()
        else:
            self.pump()

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run work that waits in a task; further messages wait until it is done."""
        self._is_busy = True
        self._task = self._loop.create_task(self._carry_out(work, *arguments))

    def answer(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """As `start`, for the answer to a message: its duration is counted."""
        self.start(self._timed, work, *arguments)

    async def _timed(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        began = monotonic()
        try:
            await work(*arguments)
        finally:
            times = self._times or self._context.metrics.times.of(self.surface, WEBSOCKET)
            times.observe(monotonic() - began)

    async def _carry_out(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self.is_over:
            return
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - any error becomes an answer and is logged
            self.failed(error)
        self._is_busy = False
        self.go_on()

    def mind_room(self) -> None:
        """Flow control: read from the client while there is room, and while it reads its answers."""
        self._socket.read_on(self.has_room and not self._socket.is_full)

    def mind_stall(self) -> None:
        """While output is unsent or not acknowledged, check that the client reads."""
        if self.is_owed and not self.is_over:
            self._timers.filled(self._socket.unsent)
        else:
            self._timers.drained()

    # ---- Quotas ----

    def join(self, actor: str, where: Callable[[], Mapping[str, str]]) -> None:
        """Count the connection for its principal; raises if the principal has too many."""
        quotas = self._context.quotas
        if quotas.is_on:
            quotas.join(self, quotas.account(actor), where)

    def read_live(self) -> None:
        """Count the connection as a live reader, once; raises if the principal has too many."""
        if self._seat is NO_SEAT and self.account is not None:
            self._seat = self._context.live_reader(self.account.actor)

    # ---- Ends ----

    def end_with(self, principal: Principal) -> None:
        """End the conversation when this credential ends."""
        self._timers.end_with(principal.revocation)
        if not self.is_over:
            self._timers.expire(principal.expires_at_ms, self._context.world.wall_ms)

    def close(self, code: int, reason: str) -> None:
        """Close the connection; nothing is sent after this."""
        if not self.is_over:
            self._end()
            self._socket.close(code, reason)

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._timers.stop()
            self._seat.close()
            leave_account(self)
            self.ended(self._inbox.clear())
