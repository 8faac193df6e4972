"""Plain transactions whose heads have known shapes: from the bytes of a request to the bytes of its answer.

The shape holds everything that is the same in each of these requests: the place, the credential and the constant
headers of the answer. Functions of the full path parse and validate the rest, and the credential is checked again for
each request. If anything in the request or in the verdict is unusual, the full path takes over, with the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from semel.engine.contract import EngineError
from semel.kernel.errors import Refused
from semel.server.auth.authentication import admitted_again, judge_again
from semel.server.auth.principals import DEVELOPER, Principal, Role, UnauthorizedError, presented
from semel.server.context import caller_of
from semel.server.http.answer import JSON, NO_STORE, Answer, header_block, nothing_held
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.exchange import HttpExchange
from semel.server.http.head_shapes import VARYING
from semel.server.http.request import Request
from semel.server.ops.log_facts import drawn_origin
from semel.server.ops.request_times import HTTP
from semel.surfaces.ledger.access import API_KEY, SURFACE, actor_of, check_client_id, check_role
from semel.surfaces.ledger.commands import WriteCommand, WriteCommitted, WriteDeclined, WriteReplayed
from semel.surfaces.ledger.exchange import LedgerRequest
from semel.surfaces.ledger.service import SLUGS_LIMIT, LedgerCaller, LedgerService
from semel.surfaces.ledger.validation import write_command
from semel.surfaces.ledger.wire.answers import plain_success
from semel.surfaces.ledger.wire.plain_bodies import plain_write

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol

_ACTED_ON = (*VARYING, b"idempotency-key")
"""Headers that rule out a shape: their values change, or the full path acts on them."""
COUNTED = (SURFACE, "POST", 200)
_HEADERS = header_block((JSON, NO_STORE))


class WriteAnswers(Protocol):
    """The interface of the full path for answers."""

    def answer_of(self, answer: WriteCommitted | WriteReplayed | WriteDeclined, wants_proof: bool) -> Answer:
        """The answer for the verdict on one transaction."""


def learn_write(service: LedgerService, answers: WriteAnswers, request: LedgerRequest) -> None:
    """Recognize transactions with a plain body, like this one, by their heads."""
    http = request.http

    def make(key: bytes) -> WriteShape | None:
        fields = http.fields
        if key or http.version != "1.1" or http.query or any(name in fields.one for name in _ACTED_ON):
            return None
        try:
            token = presented(fields, (API_KEY,))
        except UnauthorizedError:  # in development mode any credential is accepted
            return None
        return WriteShape(service, answers, request, token)

    if request.place.org < SLUGS_LIMIT and request.place.vault < SLUGS_LIMIT:
        http.exchange.learn(make, request.body.size)


class WriteShape:
    """The shape of one client's plain transactions in one place."""

    is_pipelined = False
    counted = COUNTED

    def __init__(
        self, service: LedgerService, answers: WriteAnswers, request: LedgerRequest, token: bytes | None
    ) -> None:
        self.service = service
        self.context = service.context
        self.answers = answers
        self.times = self.context.metrics.times.of(SURFACE, HTTP)
        self.length = request.body.size
        self.place = request.place
        self.common = request.http.common
        self._headers = request.http.headers
        self.raw_path = request.http.raw_path
        self._token = token
        self._leader = service.node.encode()

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start a transaction; False leaves the request to the full path."""
        context, service = self.context, self.service
        prepared = plain_write(body, self.place, service.limits)
        if prepared is None:
            return False
        are_known = context.principals.are_known
        principal = judge_again(context, self._token, connection) if are_known else DEVELOPER
        if principal is None or (are_known and not self._is_permitted(principal, prepared.client.decode())):
            return False
        actor = actor_of(context.principals, principal, has_token=are_known and self._token is not None)
        try:
            command = write_command(service.limits, prepared, actor.encode(), self._leader, service.chances.draw())
        except Refused:
            return False
        write = ShapedWrite(self, connection, principal, actor, command)
        service.queue.add(command, write.principal, write, origin=write)
        if are_known:
            admitted_again(context, connection, self.length)
        connection.begin(write)
        return True

    def _is_permitted(self, principal: Principal, client: str) -> bool:
        """Whether a caller may write to this place with this client id."""
        try:
            check_role(principal, Role.WRITE, self.place)
            check_client_id(principal, client, self.context.principals.owner_of(client))
        except Refused:
            return False
        return True

    def request_of(self, write: ShapedWrite) -> Request:
        """The request as the full path represents it; if its client is there, its exchange takes over."""
        connection = write.connection
        exchange = HttpExchange(connection, keep_alive=True)
        request = exchange.shaped(self.raw_path, self._headers, write.request_id(), write.admitted_at)
        request.namespace = self.context.namespace
        request.common, request.surface, request.principal = self.common, SURFACE, write.principal
        request.gone = write.gone
        if write.is_here:
            exchange.request = request
            connection.running = exchange
        return request


class ShapedWrite:
    """A plain transaction that runs on a connection in place of an exchange, and gets its verdict from the queue."""

    __slots__ = ("actor", "admitted_at", "command", "connection", "credential", "drawn", "gone", "principal", "shape")

    keep_alive = True
    is_pipelined = False

    def __init__(
        self, shape: WriteShape, connection: HttpProtocol, credential: Principal, actor: str, command: WriteCommand
    ) -> None:
        self.shape = shape
        self.connection = connection
        self.credential = credential
        self.principal = credential.actor if shape.context.principals.are_known else ""
        """The principal whose share of the queue the transaction takes."""
        self.actor = actor
        self.command = command
        self.gone = False
        self.drawn = b""
        """Its request id; empty until it is answered or fails."""
        self.admitted_at = monotonic()

    def lose(self) -> None:
        """The client has disconnected. The transaction is decided all the same."""
        self.gone = True

    def request_id(self) -> bytes:
        """Its request id, in the answer and in log lines."""
        if not self.drawn:
            self.drawn = self.shape.context.request_id()
        return self.drawn

    def log_facts(self) -> Mapping[str, str]:
        """What the line of a failure has."""
        return drawn_origin(self.request_id(), self.shape.context.namespace).facts

    def start(self) -> None:
        """The answer to this request is next. It never waits for earlier ones."""

    @property
    def is_here(self) -> bool:
        """Whether the client still waits on its connection."""
        connection = self.connection
        return not self.gone and connection.running is self and not connection.transport.is_closing()

    def settle(self, number: int, answer: Any) -> None:
        """Send the answer; a verdict that is not plain takes the full path."""
        connection, shape = self.connection, self.shape
        is_quick = not (connection.is_stopping or connection.flow.write_paused)
        if answer.__class__ is not WriteCommitted or not is_quick or not self.is_here:
            self._hand_over(lambda asked: self._answer(asked, answer))
            return
        shape.service.count_committed(self.command, answer)
        body = b'{"success":%b}' % plain_success(answer.committed)
        context = shape.context
        context.metrics.requests[COUNTED] += 1
        shape.times.observe(monotonic() - self.admitted_at)
        connection.transport.write(
            b"%b%b%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n%b"
            % (STATUS_LINES[200], connection.host.date, _HEADERS, self.request_id(), shape.common, len(body), body)
        )
        connection.answered(self)

    def fail(self, number: int, error: BaseException) -> None:
        """Send the refusal for the error."""
        self._hand_over(lambda asked: self._refuse(asked, error))

    async def _answer(self, asked: LedgerCaller, answer: Any) -> Answer:
        shape = self.shape
        return shape.answers.answer_of(await shape.service.noted(asked, self.command, answer), wants_proof=False)

    async def _refuse(self, asked: LedgerCaller, error: BaseException) -> Answer:
        await self.shape.service.refuse(asked, self.command, error)
        raise error

    def _hand_over(self, answer: Callable[[LedgerCaller], Coroutine[Any, Any, Answer]]) -> None:
        """Answer by the full path; if the client has gone, only to count and note the verdict."""
        is_here = self.is_here
        request = self.shape.request_of(self)
        work = answer(LedgerCaller(self.credential, self.actor, caller_of(request), request.where))
        if is_here:
            request.proceed(work)
        else:
            self.connection.spawn(_without_answer(work), nothing_held)


async def _without_answer(work: Coroutine[Any, Any, Answer]) -> None:
    with suppress(Refused, EngineError):
        await work
