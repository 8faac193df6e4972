"""One WebSocket of a client in a simulated run: questions out, answers back in the order of the questions.

Messages of one connection are handled strictly in arrival order, so the first question without an answer is the one
that the next answer belongs to; an answer of another kind, a malformed message and an unexpected error are faults of
the server. What may happen to any connection, because servers are stopped and killed and clients break off, is
`LineLostError`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from tests.events.model.model import Message, Model
from tests.events.shapes import Dialect, misshape
from tests.harness.server import HOST

PATH = "/v1/events"
OPEN_SECONDS = 25.0
ANSWER_SECONDS = 25.0
DAWDLE_SECONDS = (*[0.0] * 40, *[0.005] * 5, 0.05, 0.3)
SLOW_ANSWER_SECONDS = 60.0
"""A reader that dawdles has much to read before the answer."""
SMALL_BUFFER_BYTES = 4_096
SMALL_SEGMENT_BYTES = 536
"""The system gives a connection with small segments small buffers at both ends."""

_numbers = itertools.count(1)


class LineLostError(Exception):
    """The connection is gone, or can be used no more."""


@dataclass(slots=True)
class Question:
    """A message that waits for its answer; `take` sees the answer before any later message is read."""

    kind: str
    message_id: str
    take: Callable[[Message], None]
    answered: asyncio.Future[None]


class Line:
    """One connection, open from `dial` until it is lost."""

    def __init__(
        self,
        web: ClientConnection,
        dialect: Dialect,
        model: Model,
        where: str,
        push: Callable[[Message], None],
        patience_seconds: float,
    ) -> None:
        self.number = next(_numbers)
        self.where = f"{where}, connection {self.number}"
        self._web = web
        self._dialect = dialect
        self._model = model
        self._push = push
        self._patience_seconds = patience_seconds
        self._questions: deque[Question] = deque()
        self._seen: set[str] = set()

    async def ask(
        self, kind: str, payload: Message, answer: str, take: Callable[[Message], None]
    ) -> asyncio.Future[None]:
        """Send a question; the future is done when its answer was taken."""
        question = Question(answer, f"m{next(_numbers)}", take, asyncio.get_running_loop().create_future())
        question.answered.add_done_callback(_retrieve)
        self._questions.append(question)
        try:
            await self._web.send(json.dumps(self._envelope(kind, payload, question)))
        except ConnectionClosed:
            raise LineLostError from None
        return question.answered

    async def answer(self, question: asyncio.Future[None]) -> None:
        """Wait until a question is answered; silence on an open connection is a fault."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                await question
        except TimeoutError:
            self._model.blame(self.where, f"no answer in {self._patience_seconds} s to {self._questions}")
            raise LineLostError from None

    async def listen(self, chance: random.Random, dawdles: Callable[[], bool]) -> None:
        """Take what comes until the connection ends; a slow reader dawdles over it."""
        try:
            async for raw in self._web:
                self._take(json.loads(raw, parse_constant=_refuse))
                if dawdles():
                    await asyncio.sleep(chance.choice(DAWDLE_SECONDS))
        except (ConnectionClosed, LineLostError, ValueError) as error:
            if isinstance(error, ValueError):
                self._model.blame(self.where, f"no JSON: {error}")
        finally:
            self._lose()

    def cut(self) -> None:
        """Break the connection off, as a machine that vanishes does."""
        self._web.transport.abort()

    async def close(self) -> None:
        """End it, however it is."""
        self.cut()
        await self._web.wait_closed()

    @property
    def is_lost(self) -> bool:
        """Whether nothing can come any more."""
        return self._web.close_code is not None

    def _envelope(self, kind: str, payload: Message, question: Question) -> Message:
        if self._dialect is Dialect.SEED:
            head = {"msg_id": question.message_id, "protocol_version": "1.0"}
        else:
            head = {"msgId": question.message_id, "protocolVersion": "1.0"}
        return {"type": kind, "timestamp": 1_760_000_000_000, "payload": payload} | head

    def _take(self, message: Message) -> None:
        fault = misshape(message, self._dialect)
        if fault:
            self._model.blame(self.where, f"{fault}: {message}")
            raise LineLostError
        if message["type"] == "event_broadcast":
            self._check_fresh(message)
            self._push(message["payload"])
        elif message["type"] == "error" and message["payload"]["code"] == "server_error":
            raise LineLostError  # what a client that should come back is told
        elif not self._questions or message["type"] != self._questions[0].kind:
            self._model.blame(self.where, f"unexpected: {message}, asked: {self._questions}")
            raise LineLostError
        else:
            question = self._questions.popleft()
            self._check_reply(message, question)
            question.take(message["payload"])
            if not question.answered.done():
                question.answered.set_result(None)

    def _check_fresh(self, message: Message) -> None:
        """The server makes the id of a message of its own, and makes it once."""
        number = message["msg_id" if self._dialect is Dialect.SEED else "msgId"]
        self._model.require(number not in self._seen, self.where, f"the message id {number} came twice")
        self._seen.add(number)

    def _check_reply(self, message: Message, question: Question) -> None:
        if self._dialect is Dialect.SEED:
            reply = message.get("reply_to", question.message_id)
            self._check_fresh(message)
        else:
            reply = message.get("msgId")
        self._model.require(reply == question.message_id, self.where, f"{message} replies to {question}")

    def _lose(self) -> None:
        for question in self._questions:
            if not question.answered.done():
                question.answered.set_exception(LineLostError())
        self._questions.clear()


async def dial(
    port: int, dialect: Dialect, model: Model, where: str, push: Callable[[Message], None], *, is_slow: bool = False
) -> Line:
    """Open a connection; LineLostError if nobody is there."""
    raw = socket.socket()
    raw.setblocking(False)
    if is_slow:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await asyncio.get_running_loop().sock_connect(raw, (HOST, port))
            web = await connect(
                f"ws://{HOST}:{port}{PATH}",
                sock=raw,
                compression=None,
                proxy=None,
                ping_interval=None,
                open_timeout=None,
                max_size=None,
                max_queue=2 if is_slow else 64,
            )
    except (OSError, TimeoutError, InvalidHandshake, InvalidMessage) as error:
        raw.close()
        raise LineLostError from error
    return Line(web, dialect, model, where, push, SLOW_ANSWER_SECONDS if is_slow else ANSWER_SECONDS)


def _retrieve(done: asyncio.Future[None]) -> None:
    """An exception that nobody waits for any more is no news."""
    if not done.cancelled():
        done.exception()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
