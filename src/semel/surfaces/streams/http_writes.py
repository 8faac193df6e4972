"""PUT, POST and DELETE: parse, submit, render."""

from __future__ import annotations

from functools import partial
from typing import NoReturn, TypeVar

from semel.engine.contract import Write
from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import time_ordered_id
from semel.server.auth.principals import Role, UnauthorizedError, presented
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, Answer
from semel.server.http.host_field import is_own
from semel.server.http.request import Request
from semel.server.settings import settings_of
from semel.server.thread_pool import COPIED_BYTES, apart, is_small
from semel.surfaces.streams.commands import UNREAD, Append, Appended, Create, Created, Delete, ProducerClaim
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.find import SURFACE, append_retries, producer_retries
from semel.surfaces.streams.fork_plan import ForkPlan, ForkRequest, plan_fork
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import find
from semel.surfaces.streams.rules.append import is_decided_without_content
from semel.surfaces.streams.rules.forks import SOURCE_CHANGED
from semel.surfaces.streams.rules.plain_append import PlainAppend, is_plain_append
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.shaped_append import VARYING, AppendShape
from semel.surfaces.streams.wire.headers import stored_name
from semel.surfaces.streams.wire.requests import (
    TOO_LARGE,
    named_type,
    parse_append,
    parse_content,
    parse_create,
    parse_fork,
)
from semel.surfaces.streams.wire.responses import appended, created

C = TypeVar("C", Append, Create)

FORK_PLANS = 3
"""How often a fork is planned again because its source was deleted and created again meanwhile."""


class StreamWrites:
    """The HTTP handlers of writes."""

    def __init__(self, context: Context, streams: Streams, metrics: StreamsMetrics) -> None:
        self._context = context
        self._engine = context.engine
        self.streams = streams
        self._bodies = context.bodies
        self._metrics = metrics
        self._outcomes = metrics.outcomes
        self._most_messages = settings_of(context.settings, StreamsSettings).streams_max_messages

    def is_plain(self, request: Request) -> bool:
        """Whether an append can be parsed on the event loop: its body is complete and small."""
        return request.is_whole and is_small(len(request.body), COPIED_BYTES)

    def append_plain(self, name: bytes, request: Request) -> None:
        """POST of a small body: it is in the engine's queue when this returns, and the reply follows the commit."""
        body = self._bodies.whole(request)
        command = parse_append(name, request.fields, body, self._most_messages)
        if is_plain_append(command):
            size = len(body or b"")
            request.exchange.learn(partial(self._shape, name, command, request, size), size)
            self._engine.admit_plain(_PlainReply(self, command, request))
            return
        request.proceed(self._submit(command, request, is_unread=body is None))

    async def _submit(self, command: Append, request: Request, *, is_unread: bool) -> Answer:
        answer = await self._engine.submit(Write(self.streams, command, len(command.content.data)), caller_of(request))
        self._note_retry(command.scope, command.key, command.producer, answer, request)
        return self._outcome(answer, is_unread)

    def reply(self, request: Request, answer: Appended | Refusal, append: PlainAppend) -> None:
        """Send the outcome of an append."""
        self._note_retry(append.scope, append.key, None, answer, request)
        try:
            request.exchange.reply(self._outcome(answer, is_unread=False))
        except Exception as error:  # noqa: BLE001 - the application renders any error
            self.refuse(request, error)

    def refuse(self, request: Request, error: BaseException) -> None:
        """Send the refusal that an error means."""
        request.proceed(_raise(error))

    def _shape(self, name: bytes, command: Append, request: Request, length: int, key: bytes) -> AppendShape | None:
        """The shape of an append from which this key was cut out; None if the head must be parsed each time."""
        fields = request.fields
        if any(field in fields.one for field in VARYING) or request.version != "1.1" or request.query:
            return None
        sent = fields.all(b"idempotency-key")
        if sent != ([key] if key else []):
            return None
        try:
            token = presented(fields)
        except UnauthorizedError:  # in development mode any credential is accepted
            return None
        return AppendShape(
            self._context,
            self.streams,
            self,
            self._metrics,
            name,
            command,
            request,
            token,
            self._most_messages,
            length,
        )

    async def append(self, name: bytes, request: Request) -> Answer:
        """POST of a body that is large or still arriving."""
        body = await self._bodies.read(request)
        command = await self._append_command(name, request, body)
        is_unread = body is None
        if command.content is not UNREAD:
            body = None  # the command holds the content
        caller = caller_of(request)
        answer = await self._engine.submit(Write(self.streams, command, len(command.content.data)), caller)
        if answer is UNREAD.flaw:  # the stream has changed since it was read
            command = await self._with_content(command, command.content_type, body)
            answer = await self._engine.submit(Write(self.streams, command, len(command.content.data)), caller)
        self._note_retry(command.scope, command.key, command.producer, answer, request)
        return self._outcome(answer, is_unread)

    def _note_retry(
        self,
        scope: bytes,
        key: bytes | None,
        producer: ProducerClaim | None,
        answer: Appended | Refusal,
        request: Request,
    ) -> None:
        """Note an append that had taken effect before."""
        if not isinstance(answer, Appended) or answer.is_new:
            return
        if answer.replayed and key is not None:
            place = append_retries(scope, key)
        elif producer is not None:
            place = producer_retries(scope, producer.packed)
        else:
            return
        self._context.retries.note(SURFACE, place, request.began_at, request.principal, request.remote)

    def _outcome(self, answer: Appended | Refusal, is_unread: bool) -> Answer:
        if isinstance(answer, Appended):
            self._outcomes["stored" if answer.is_new else "replay" if answer.replayed else "duplicate"] += 1
            return appended(answer)
        self._outcomes["refused"] += 1
        raise _refused(answer, is_unread=is_unread)

    async def create(self, name: bytes, request: Request) -> Answer:
        """PUT; with `Stream-Forked-From`, of a fork."""
        body = await self._bodies.read(request)
        if body is None:
            raise _refused(TOO_LARGE, is_unread=True)
        wanted = self._fork_request(request)
        world = self._context.world
        life = time_ordered_id(world.wall_ms(), world.random_bytes(10))
        answer: Created | Refusal = SOURCE_CHANGED
        for _ in range(FORK_PLANS):
            answer = await self._create(name, life, wanted, request, body)
            if answer is not SOURCE_CHANGED:
                break
        if isinstance(answer, Created):
            return created(answer, _location(request, self._context.prefix + request.raw_path))
        raise _refused(answer)

    async def _create(
        self, name: bytes, life: bytes, wanted: ForkRequest | None, request: Request, body: bytes
    ) -> Created | Refusal:
        """Submit a PUT. Large content is parsed only if the stream does not exist."""
        plan = None
        if wanted is not None:
            inherits_type = named_type(request.fields) is None
            plan = await self._engine.read(partial(plan_fork, wanted=wanted, inherits_type=inherits_type))
        command = await self._create_command(name, life, request, body, plan)
        caller, copied = caller_of(request), 0 if plan is None else len(plan.fork.prefix.data)
        size = len(body) + copied
        answer: Created | Refusal = await self._engine.submit(Write(self.streams, command, size), caller)
        if answer is UNREAD.flaw:  # the stream was deleted since it was read
            command = await self._with_content(command, command.content_type, body)
            answer = await self._engine.submit(Write(self.streams, command, size), caller)
        return answer

    def _fork_request(self, request: Request) -> ForkRequest | None:
        """The fork that a PUT asks for; the caller must be allowed to read its source."""
        wanted, credential = parse_fork(request.fields), request.credential
        if wanted is None or credential is None:
            return wanted
        if not credential.may(Role.READ, self.streams.name, wanted.source_path):
            raise Refused("FORBIDDEN", "This credential may not read the stream at Stream-Forked-From.")
        return wanted

    async def delete(self, name: bytes, request: Request) -> Answer:
        """DELETE."""
        answer = await self._engine.submit(Write(self.streams, Delete(stored_name(name))), caller_of(request))
        if isinstance(answer, Refusal):
            raise _refused(answer)
        return Answer(204, [])

    async def _append_command(self, name: bytes, request: Request, body: bytes | None) -> Append:
        """The command of an append. Large JSON is split in a thread, and only if nothing known before decides the
        append.
        """
        size = len(body or b"")
        most = self._most_messages if is_small(size, COPIED_BYTES) else None
        command = await apart(size, parse_append, name, request.fields, body, most, most=COPIED_BYTES)
        if command.content is UNREAD and not await self._engine.read(
            lambda reading: is_decided_without_content(reading, command, reading.now)
        ):
            return await self._with_content(command, command.content_type, body)
        return command

    async def _create_command(
        self, name: bytes, life: bytes, request: Request, body: bytes, plan: ForkPlan | None
    ) -> Create:
        most = self._most_messages if is_small(len(body), COPIED_BYTES) else None
        command = await apart(len(body), parse_create, name, life, request.fields, body, most, plan, most=COPIED_BYTES)
        if command.content is UNREAD and not await self._engine.read(lambda reading: find(reading, command.scope)):
            return await self._with_content(command, command.content_type, body)
        return command

    async def _with_content(self, command: C, content_type: bytes | None, body: bytes | None) -> C:
        assert content_type is not None
        assert body is not None
        is_create = isinstance(command, Create)
        split = partial(parse_content, content_type, body, self._most_messages, allow_empty_array=is_create)
        return command._replace(content=await apart(len(body), split, most=COPIED_BYTES))


class _PlainReply(PlainAppend):
    """A plain append that is answered on its connection."""

    __slots__ = ("_request", "_writes")

    def __init__(self, writes: StreamWrites, command: Append, request: Request) -> None:
        scope, content_type = command.scope, command.content_type
        assert content_type is not None
        lock = b"stream:" + scope
        super().__init__(
            writes.streams,
            lock,
            scope,
            command.key,
            command.fingerprint,
            content_type,
            command.content,
            request.principal,
        )
        self._writes = writes
        self._request = request
        request.on_gone = self.leave
        self.gone = request.gone
        self.origin = request

    def settle(self, answer: Appended | Refusal) -> None:
        """Send the answer."""
        self._writes.reply(self._request, answer, self)

    def fail(self, error: BaseException) -> None:
        """Send the refusal that the error means."""
        self._writes.refuse(self._request, error)


async def _raise(error: BaseException) -> NoReturn:
    raise error


def _refused(refusal: Refusal, *, is_unread: bool = False) -> Refused:
    return Refused.of(refusal._replace(headers=(*refusal.headers, CLOSE)) if is_unread else refusal)


def _location(request: Request, path: bytes) -> bytes:
    """The URL of the stream at this path; absolute only if the Host names this machine.

    Any other Host is sent by the client, or is the name of a proxy whose scheme is not known here: the path alone is
    correct for every URL.
    """
    address, port = request.server or ("127.0.0.1", 0)
    host = (request.fields.get(b"host") or b"").strip()
    if not host:
        host = f"[{address}]:{port}".encode() if ":" in address else f"{address}:{port}".encode()
    elif not is_own(host, address):
        return path
    return b"%s://%s%s" % (request.scheme.encode(), host, path)
