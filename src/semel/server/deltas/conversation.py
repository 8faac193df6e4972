"""A WebSocket connection of deltas: frames and answers in order, broadcasts between them.

One frame at a time: it is answered before the next one is read. There is no error frame, so a refusal closes the
connection, with its reason. A crash here loses the connection and nothing else: what was answered is on disk, and what
was not can be pushed again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from semel.contracts.deltas.reading import Page
from semel.contracts.deltas.refusals import Refusal, RefusedDeltas
from semel.contracts.deltas.wire.answers import plain_page_body
from semel.contracts.deltas.wire.query import PullQuery
from semel.engine.contract import EngineError, OverloadedError
from semel.server.deltas.access import Asked
from semel.server.deltas.desk import NoRoomError
from semel.server.deltas.faults import engine_refusal
from semel.server.deltas.frames import (
    BROADCAST,
    PUSH,
    FrameError,
    UntellableError,
    pull_of,
    read_frame,
    response,
    response_parts,
    wire_frame,
)
from semel.server.deltas.holdings import Holdings
from semel.server.deltas.live import Live
from semel.server.deltas.plain_frame import PlainFrame
from semel.server.deltas.proto.sync_pb2 import SyncPull
from semel.server.deltas.pushes import FORBIDDEN, read_push_frame
from semel.server.principals import Role
from semel.server.threads import apart

if TYPE_CHECKING:
    from semel.server.deltas.door import Door
    from semel.server.deltas.socket import DeltaSocket

T = TypeVar("T")

GOING_AWAY, UNREADABLE, REFUSED, TOO_BIG, FAILED, TRY_LATER = 1001, 1002, 1008, 1009, 1011, 1013
MAX_MESSAGES = 64
"""Limit of frames of one connection that wait for their turn; above it the connection is not read."""
PING_SECONDS = 30.0
ROOM_SECONDS = 5.0
"""Longest wait of a frame for room in the engine's queue, in seconds."""
RETRY_SECONDS = 0.05
LONGEST_SECONDS = 86_400.0
"""A timer that would run longer is set again."""
_CODES = {"OUTCOME_UNKNOWN": FAILED, "INTERNAL_ERROR": FAILED, "BACKPRESSURE_ERROR": TRY_LATER}


class Word(Enum):
    """Internal events in the inbox, beside the frames of a client."""

    TOO_LARGE = 1
    """Behind it nothing was listened to."""
    ARRIVED = 2
    """The last broadcast has reached the client."""


class Visitor(NamedTuple):
    """An authenticated client: its principal, and its gateway."""

    asked: Asked
    gateway: str


class Conversation:
    """A WebSocket connection after its handshake."""

    def __init__(self, door: Door, visitor: Visitor, socket: DeltaSocket) -> None:
        self._door = door
        self._desk = door.desk
        self._asked, self._gateway = visitor
        self._socket = socket
        settings = door.desk.settings
        self._most_bytes = settings.deltas_max_body_bytes
        self.patience_seconds = door.desk.context.settings.http_stall_ms / 1_000
        """How long a client may take nothing of what it is sent."""
        self._live = Live(door.desk, self._asked, settings.deltas_live_bytes)
        self._holdings = Holdings(door.desk, self._asked, socket.unsent)
        self._inbox: deque[bytes | Word] = deque()
        self._pings = 0
        self._is_last = False
        """Whether it ends once nothing is under way."""
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._heard_at = self._loop.time()
        self._heartbeat = self._loop.call_later(PING_SECONDS, self._pulse)
        self._stall: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        door.opened(self, self._gateway)
        self._task = self._loop.create_task(self._run())
        self._expire(self._asked.principal.expires_at_ms)
        if self._asked.principal.revocation is not None:
            self._asked.principal.revocation.watch(self._revoked)

    @property
    def is_stranger(self) -> bool:
        """Always false: a client without a credential is refused in the handshake."""
        return False

    # From the socket and from commits.

    def heard(self) -> None:
        """Bytes have arrived: the client is alive."""
        self._heard_at = self._loop.time()

    def received(self, raw: bytes, is_text: bool) -> None:
        """A whole message has arrived; text is of the plain dialect."""
        if not self._is_over and not self._is_last:
            self._inbox.append(PlainFrame(raw) if is_text else raw)
            self._holdings.arrived(len(raw))
            self._mind_room()
            self._woken.set()

    def unfinished(self, size: int) -> None:
        """Note how many bytes of an incomplete message have arrived."""
        self._holdings.arriving(size)
        self._mind_room()

    def too_large(self, most: int) -> None:
        """A message is larger than allowed; the error is sent in its turn, behind the answers to earlier messages."""
        self._inbox.append(Word.TOO_LARGE)
        self._woken.set()

    def ponged(self, payload: bytes) -> None:
        """The client has what was sent before a ping; it may have left out the pongs of earlier ones.

        That has its turn too: what the client sent before it, it sent without knowing.
        """
        if self._live.answers(int.from_bytes(payload[:8])):
            self._inbox.append(Word.ARRIVED)
            self._woken.set()
            if self._is_over:
                self._remember_last()

    def filled(self) -> None:
        """Back pressure: the client does not keep up, so its further requests wait."""
        self._mind_room()
        self._mind_stall()

    def drained(self) -> None:
        """The client reads again."""
        self._holdings.settle()
        self._mind_room()
        self._mind_stall()
        self._woken.set()

    def stir(self) -> None:
        """Something was committed in the gateway."""
        self._live.stir()
        self._woken.set()

    def lost(self) -> None:
        """The connection is lost: cancel the work that is not decided, since no client will receive its answer."""
        self._end()
        self._holdings.close()
        self._asked.caller.leave()
        self._task.cancel()

    def shut_down(self) -> None:
        """The server stops: running work is answered first."""
        self._is_last = True
        self._inbox = deque(one for one in self._inbox if one is Word.ARRIVED)
        self._woken.set()

    # One thing after the other.

    async def _run(self) -> None:
        try:
            while not self._is_over:
                await self._step()
        except RefusedDeltas as refused:
            self._refuse(refused.refusal)
        except EngineError as error:
            self._refuse(engine_refusal(error))
        except FrameError as error:
            self._close(UNREADABLE, str(error))
        except UntellableError as error:
            self._close(REFUSED, str(error))
        except Exception:  # noqa: BLE001 - whatever it is, the client is told and the log has the details
            self._close(FAILED, self._door.fault())

    async def _step(self) -> None:
        self._woken.clear()
        if self._inbox and (self._is_last or not self._socket.is_full):
            await self._take(self._inbox.popleft())
        elif self._is_last:
            self._close(GOING_AWAY, "The server is stopping; connect again.")
        elif self._live.is_due and not self._socket.is_full:
            await self._broadcast()
        else:
            await self._woken.wait()

    async def _take(self, message: bytes | Word) -> None:
        if message is Word.TOO_LARGE:
            self._close(TOO_BIG, f"A message may have at most {self._most_bytes} bytes.")
        elif message is Word.ARRIVED:
            self._arrived()
        else:
            await self._answer(message)
            self._holdings.answered(len(message))
            self._mind_room()

    def _arrived(self) -> None:
        """The client has acknowledged the last broadcast."""
        self._live.arrived()
        self._mind_stall()

    async def _answer(self, raw: bytes) -> None:
        if isinstance(raw, PlainFrame):
            await self._plain_pull(await apart(len(raw), raw.read))
        elif raw.startswith(PUSH):
            await self._push(raw)
        else:
            message = await apart(len(raw), read_frame, raw)
            assert isinstance(message, SyncPull)
            await self._pull(message)

    async def _push(self, raw: bytes) -> None:
        self._desk.enter(self._asked, Role.WRITE, self._gateway)
        await self._keep_pace()
        body = await apart(len(raw), read_push_frame, raw, self._desk.policy, self._asked.authors)
        pushed = await self._find_room(partial(self._desk.push, self._asked, self._gateway, body, len(raw)))
        self._live.pushed(pushed.server_hlc)
        # Clients of this dialect count the entries of an answer, if there are any, as all that was accepted.
        self._write(wire_frame((response((), pushed.server_hlc, has_more=False),)))

    async def _find_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; a full engine is retried for a moment, since nothing was stored."""
        deadline = self._loop.time() + ROOM_SECONDS
        while True:
            try:
                return await call()
            except OverloadedError:
                if self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _keep_pace(self) -> None:
        """Rate limit: a client that pushes too often is not read until it may push again."""
        while True:
            try:
                return self._desk.pace(self._asked, self._gateway)
            except RefusedDeltas as refused:
                await asyncio.sleep(refused.refusal.retry_after or 1)

    async def _pull(self, message: SyncPull) -> None:
        wanted = pull_of(message)
        if self._live.is_shown_by(wanted.since):
            self._arrived()
        if self._live.crosses(wanted.since):
            # The client asked before it had the broadcast that is on its way: giving it the same entries again would
            # break clients that take an INSERT at its word. It is given nothing, and its cursor stays where it is.
            self._write(wire_frame((response((), wanted.since, has_more=False),)))
            return
        room = self._holdings.output
        pull = partial(self._desk.pull, self._asked, self._gateway, wanted.client, wanted.since, wanted.limit, room)
        page = await self._find_room(pull)
        self._write(await apart(room.size, _frame, page))
        self._live.pulled(self._desk.replica(self._asked, self._gateway, wanted.client), wanted.since, page)

    async def _plain_pull(self, wanted: PullQuery) -> None:
        room = self._holdings.output
        page = await self._find_room(partial(self._desk.plain_pull, self._asked, self._gateway, wanted, room))
        self._write(self._socket.frame(await apart(room.size, plain_page_body, page)))
        replica = self._desk.replica(self._asked, self._gateway, wanted.client)
        self._live.pulled(replica, wanted.since, page, is_plain=True)

    async def _broadcast(self) -> None:
        room = self._holdings.output
        try:
            news = await self._live.look(room)
        except NoRoomError:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), ROOM_SECONDS)
            return
        if news is not None:
            # In one write, so that a client that has read the one has most likely read the other.
            if self._live.is_plain:
                frame = self._socket.frame(await apart(room.size, plain_page_body, news.page))
                self._write(frame + self._ping())
            else:
                self._write(await apart(room.size, _frame, news.page, BROADCAST, self._ping()))
            self._live.sent(news, self._pings)
            self._mind_stall()

    def _write(self, frames: bytes) -> None:
        self._socket.write(frames)
        self._holdings.settle()

    def _mind_room(self) -> None:
        """Flow control: read from the client while there is room, and while it reads its answers."""
        has_room = len(self._inbox) < MAX_MESSAGES and self._holdings.waiting < self._most_bytes
        self._socket.read_on(has_room and not self._socket.is_full)
        if not self._is_over and not self._holdings.has_room():
            self._refuse(Refusal("BACKPRESSURE_ERROR", "Too many uploads are under way; try again in a moment."))

    # Timers.

    def _ping(self) -> bytes:
        self._pings += 1
        return self._socket.ping_frame(self._pings.to_bytes(8))

    def _mind_stall(self) -> None:
        """While answers are unsent, check that the client reads."""
        is_owed = not self._is_over and (self._socket.is_full or self._live.is_waiting)
        if is_owed and self._stall is None:
            self._stall = self._loop.call_later(self.patience_seconds, self._check_stall, self._socket.unsent())
        elif not is_owed and self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_stall(self, before: int) -> None:
        """One that reads slowly but steadily is left alone."""
        self._stall = None
        if self._socket.unsent() >= before:
            self._close(TRY_LATER, "This client does not read what it is sent.")
        else:
            self._mind_stall()

    def _pulse(self) -> None:
        """Ping a silent client; close the connection without a pong."""
        if self._holdings.is_late():
            self._close(TRY_LATER, "A frame took too long to arrive.")
            return
        quiet = self._loop.time() - self._heard_at
        if quiet >= 2 * PING_SECONDS and self._socket.is_reading:
            self._close(TRY_LATER, "Nothing was heard of this client.")
            return
        if quiet >= PING_SECONDS / 2:
            self._socket.write(self._ping())
        self._heartbeat = self._loop.call_later(PING_SECONDS, self._pulse)

    def _expire(self, at_ms: int | None) -> None:
        """End the conversation with its credential, by the wall clock."""
        if at_ms is None:
            return
        left = (at_ms - self._desk.context.world.wall_ms()) / 1_000
        if left <= 0:
            self._refuse(Refusal("AUTH_ERROR", "The credential has expired."))
        else:
            self._expiry = self._loop.call_later(min(left, LONGEST_SECONDS), self._expire, at_ms)

    def _revoked(self) -> None:
        self._refuse(Refusal("AUTH_ERROR", "The credential was revoked."))

    # Ends.

    def _refuse(self, refusal: Refusal) -> None:
        if not self._is_over:
            self._desk.journal.refused(refusal)
            if refusal.code == FORBIDDEN:
                self._desk.journal.no_access(self._asked.where)
            self._close(_CODES.get(refusal.code, REFUSED), f"{refusal.code}: {refusal.message}")

    def _close(self, code: int, reason: str) -> None:
        if not self._is_over:
            self._end()
            self._socket.close(code, reason)

    def _end(self) -> None:
        """Nothing more is done for it."""
        if self._is_over:
            return
        self._is_over = True
        if self._asked.principal.revocation is not None:
            self._asked.principal.revocation.unwatch(self._revoked)
        for timer in (self._heartbeat, self._stall, self._expiry):
            if timer is not None:
                timer.cancel()
        self._remember_last()
        self._woken.set()
        self._door.closed(self, self._gateway)

    def _remember_last(self) -> None:
        """Record what has reached the client, although no task waits for it any more."""
        if Word.ARRIVED in self._inbox:
            self._live.arrived()
        self._inbox.clear()


def _frame(page: Page, kind: bytes = b"", behind: bytes = b"") -> bytes:
    parts = response_parts(page.entries, page.cursor, has_more=page.has_more)
    return wire_frame((kind, *parts), behind)
