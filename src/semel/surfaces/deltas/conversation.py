"""One WebSocket conversation of deltas: frames in order, answers in the same order, broadcasts between them.

It is a `server/websocket/conversation.py` with these additions: a frame is answered before the next one is taken;
there is no error frame, so a refusal closes the connection with its reason; a broadcast counts as delivered when the
pong of the ping that follows it arrives; frames and answers share a memory budget with all connections. Everything
that was answered is on disk, and the rest can be pushed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from websockets.frames import CloseCode

from semel.engine.contract import EngineError, OverloadedError
from semel.kernel.errors import Refusal, Refused
from semel.server.auth.principals import Role
from semel.server.thread_pool import apart
from semel.server.websocket.connection_limits import ConversationLimits, InboxMessage, MessageKind
from semel.server.websocket.conversation import STOPPING, Conversation
from semel.surfaces.deltas.access import SURFACE, DeltaCaller
from semel.surfaces.deltas.exchange import engine_refusal
from semel.surfaces.deltas.memory_budget import ConnectionMemory
from semel.surfaces.deltas.proto.sync_pb2 import SyncPull
from semel.surfaces.deltas.reading import DeltaPage
from semel.surfaces.deltas.service import OverBudgetError
from semel.surfaces.deltas.subscribers import DeltaBroadcasts
from semel.surfaces.deltas.sync_calls import FORBIDDEN, read_push_frame
from semel.surfaces.deltas.wire.answers import plain_page_body
from semel.surfaces.deltas.wire.frames import (
    BROADCAST,
    PUSH,
    FrameError,
    PlainFrame,
    UntellableError,
    pull_of,
    read_frame,
    response,
    response_parts,
    wire_frame,
)
from semel.surfaces.deltas.wire.urls import PullQuery

if TYPE_CHECKING:
    from semel.surfaces.deltas.socket import DeltaConnections, DeltaSocket

T = TypeVar("T")

PING_SECONDS = 30.0
ROOM_SECONDS = 5.0
"""Seconds that a frame waits for room in the engine's queue."""
RETRY_SECONDS = 0.05
_CODES = {
    "OUTCOME_UNKNOWN": CloseCode.INTERNAL_ERROR,
    "INTERNAL_ERROR": CloseCode.INTERNAL_ERROR,
    "BACKPRESSURE_ERROR": CloseCode.TRY_AGAIN_LATER,
    "QUOTA_EXCEEDED": CloseCode.TRY_AGAIN_LATER,
}


class AcceptedClient(NamedTuple):
    """An authenticated client: its principal, and its gateway."""

    asked: DeltaCaller
    gateway: str


class DeltaConversation(Conversation):
    """A WebSocket connection after its handshake."""

    surface = SURFACE

    def __init__(self, connections: DeltaConnections, accepted: AcceptedClient, socket: DeltaSocket) -> None:
        service = connections.service
        self._most_bytes = service.settings.deltas_max_body_bytes
        stall_seconds = service.context.settings.http_stall_ms / 1_000
        super().__init__(service.context, socket, ConversationLimits(self._most_bytes, PING_SECONDS, stall_seconds))
        self._connections = connections
        self._service = service
        self._asked, self._gateway = accepted
        self._live = DeltaBroadcasts(service, self._asked, service.settings.deltas_live_bytes)
        self._memory = ConnectionMemory(service, self._asked, socket.unsent)
        self._pings = 0
        self._woken = asyncio.Event()
        connections.opened(self, self._gateway)
        if self._asked.is_known:
            self.join(self._asked.principal.actor, lambda: self._asked.where)
            self.read_live()
        self.end_with(self._asked.principal)

    @property
    def is_late(self) -> bool:
        """Whether a frame takes too long to arrive."""
        return self._memory.is_late()

    @property
    def is_owed(self) -> bool:
        """Whether answers are unsent, or a broadcast is not acknowledged."""
        return super().is_owed or self._live.is_waiting

    @property
    def has_room(self) -> bool:
        """Whether the inbox has room, counting the frame that is being answered."""
        return super().has_room and self._memory.waiting < self._most_bytes

    # Calls from the socket and from commits.

    def received(self, raw: bytes, is_text: bool) -> None:
        """Queue a complete message; a text message is of the plain dialect."""
        if not self.is_over and not self._is_last:
            self._memory.arrived(len(raw))
            self.mind_room()
            super().received(raw, is_text)

    def unfinished(self, size: int) -> None:
        """Note the number of received bytes of an incomplete message."""
        self._memory.arriving(size)
        self.mind_room()

    def ponged(self, payload: bytes) -> None:
        """Queue the acknowledgement of the pending broadcast; a pong also covers earlier pings.

        It is queued, because the client sent the frames before the pong without knowledge of the broadcast.
        """
        if not self._live.answers(int.from_bytes(payload[:8])):
            return
        if self.is_over:
            self._live.arrived()
        else:
            self._inbox.add(InboxMessage(MessageKind.PONG))
            self.pump()

    def drained(self) -> None:
        """Continue after the client has read again."""
        self._memory.settle()
        super().drained()

    def stir(self) -> None:
        """Note a commit in the gateway."""
        self._live.stir()
        self.pump()

    # One step at a time.

    def pump(self) -> None:
        """Take the next step; wake a broadcast that waits for memory."""
        self._woken.set()
        super().pump()

    def take(self) -> bool:
        """Start to answer the next frame."""
        message = self._inbox.pop()
        if message.kind is MessageKind.TOO_LARGE:
            self.close(CloseCode.MESSAGE_TOO_BIG, f"A message may have at most {self._most_bytes} bytes.")
        elif message.kind is MessageKind.PONG:
            self._arrived()
        else:
            self.answer(self._answer, PlainFrame(message.raw) if message.kind is MessageKind.TEXT else message.raw)
        return True

    def idle(self) -> None:
        """Broadcast the entries of others."""
        if self._live.is_due:
            self.start(self._broadcast)

    def failed(self, error: Exception) -> None:
        """Close with the reason: there is no error frame."""
        if isinstance(error, Refused):
            self._refuse(error.refusal)
        elif isinstance(error, EngineError):
            self._refuse(engine_refusal(error))
        elif isinstance(error, FrameError):
            self.close(CloseCode.PROTOCOL_ERROR, str(error))
        elif isinstance(error, UntellableError):
            self.close(CloseCode.POLICY_VIOLATION, str(error))
        else:
            self.close(CloseCode.INTERNAL_ERROR, self._connections.fault(self.handshake.log_facts()))

    def _arrived(self) -> None:
        """Record that the client has acknowledged the last broadcast."""
        self._live.arrived()
        self.mind_stall()

    async def _answer(self, raw: bytes) -> None:
        if isinstance(raw, PlainFrame):
            await self._plain_pull(await apart(len(raw), raw.read))
        elif raw.startswith(PUSH):
            await self._push(raw)
        else:
            message = await apart(len(raw), read_frame, raw)
            assert isinstance(message, SyncPull)
            await self._pull(message)
        self._memory.answered(len(raw))

    async def _push(self, raw: bytes) -> None:
        self._service.enter(self._asked, Role.WRITE, self._gateway)
        await self._keep_pace()
        body = await apart(len(raw), read_push_frame, raw, self._service.policy, self._asked.authors)
        pushed = await self._find_room(partial(self._service.push, self._asked, self._gateway, body, len(raw)))
        self._live.pushed(pushed.server_hlc)
        # Clients of this dialect count the entries of an answer, if it has any, as the number of accepted deltas.
        self._write(wire_frame((response((), pushed.server_hlc, has_more=False),)))

    async def _find_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; retry for up to ROOM_SECONDS while the engine's queue is full, since nothing was stored."""
        deadline = self._loop.time() + ROOM_SECONDS
        while True:
            try:
                return await call()
            except OverloadedError:
                if self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _keep_pace(self) -> None:
        """Rate limit: stop reading from a client that pushes too often until it may push again."""
        while True:
            try:
                return self._service.pace(self._asked, self._gateway)
            except Refused as refused:
                await asyncio.sleep((refused.refusal.retry_after_ms or 1_000) / 1_000)

    async def _pull(self, message: SyncPull) -> None:
        wanted = pull_of(message)
        if self._live.is_shown_by(wanted.since):
            self._arrived()
        if self._live.crosses(wanted.since):
            # The client sent this pull before it received the pending broadcast. The same entries again would break
            # clients that apply an INSERT without a check. So the answer has no entries, and the cursor of the request.
            self._write(wire_frame((response((), wanted.since, has_more=False),)))
            return
        room = self._memory.output
        pull = partial(self._service.pull, self._asked, self._gateway, wanted.client, wanted.since, wanted.limit, room)
        page = await self._find_room(pull)
        self._write(await apart(room.size, _frame, page))
        self._live.pulled(self._service.replica(self._asked, self._gateway, wanted.client), wanted.since, page)
        self.mind_stall()

    async def _plain_pull(self, wanted: PullQuery) -> None:
        room = self._memory.output
        page = await self._find_room(partial(self._service.plain_pull, self._asked, self._gateway, wanted, room))
        self._write(self._socket.frame(await apart(room.size, plain_page_body, page)))
        replica = self._service.replica(self._asked, self._gateway, wanted.client)
        self._live.pulled(replica, wanted.since, page, is_plain=True)
        self.mind_stall()

    async def _broadcast(self) -> None:
        self._woken.clear()
        room = self._memory.output
        try:
            news = await self._live.look(room)
        except OverBudgetError:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), ROOM_SECONDS)
            return
        if news is not None:
            # One write for broadcast and ping, so that a client that has read one has most likely read the other.
            if self._live.is_plain:
                frame = self._socket.frame(await apart(room.size, plain_page_body, news.page))
                self._write(frame + self._next_ping())
            else:
                self._write(await apart(room.size, _frame, news.page, BROADCAST, self._next_ping()))
            self._live.sent(news, self._pings)
            self.mind_stall()

    def _write(self, frames: bytes) -> None:
        self._socket.write(frames)
        self._memory.settle()

    def mind_room(self) -> None:
        """Flow control, and the memory limit for the frames of all connections."""
        super().mind_room()
        if not self.is_over and not self._memory.has_room():
            self._refuse(Refusal("deltas:BACKPRESSURE_ERROR", "Too many uploads are under way; try again in a moment."))

    def ping(self) -> None:
        """Send a ping, whose pong also acknowledges a broadcast."""
        self._socket.write(self._next_ping())

    def _next_ping(self) -> bytes:
        self._pings += 1
        return self._socket.ping_frame(self._pings.to_bytes(8))

    # Ends of a connection.

    def abandoned(self) -> None:
        """The connection is lost: cancel a push that is not decided yet."""
        self._memory.close()
        self._asked.caller.leave()

    def stopping(self) -> None:
        """Close: the server stops."""
        self.close(CloseCode.GOING_AWAY, STOPPING)

    def expired(self) -> None:
        """Close: the credential has expired."""
        self._refuse(Refusal("deltas:AUTH_ERROR", "The credential has expired."))

    def revoked(self) -> None:
        """Close: the credential was revoked."""
        self._refuse(Refusal("deltas:AUTH_ERROR", "The credential was revoked."))

    def silent(self) -> None:
        """Close: the client has answered no ping."""
        self.close(CloseCode.TRY_AGAIN_LATER, "Nothing was heard of this client.")

    def stalled(self) -> None:
        """Close: the client has not read for too long, or has not acknowledged a broadcast."""
        self.close(CloseCode.TRY_AGAIN_LATER, "This client does not read what it is sent.")

    def late(self) -> None:
        """Close: a frame took too long to arrive."""
        self.close(CloseCode.TRY_AGAIN_LATER, "A frame took too long to arrive.")

    def ended(self, has_pong: bool) -> None:
        """Record an acknowledgement that is still queued, and remove the connection from the register."""
        if has_pong:
            self._live.arrived()
        self._woken.set()
        self._connections.closed(self, self._gateway)

    def _refuse(self, refusal: Refusal) -> None:
        if not self.is_over:
            self._service.audit_trail.refused(refusal)
            if refusal.code == FORBIDDEN:
                self._service.audit_trail.no_access(self._asked.where)
            self.close(_CODES.get(refusal.name, CloseCode.POLICY_VIOLATION), f"{refusal.name}: {refusal.message}")


def _frame(page: DeltaPage, kind: bytes = b"", behind: bytes = b"") -> bytes:
    parts = response_parts(page.entries, page.cursor, has_more=page.has_more)
    return wire_frame((kind, *parts), behind)
