"""PUT, POST and DELETE: parse, submit, render."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from semel.contracts.fields import Fields
from semel.contracts.streams.commands import UNREAD, Append, Appended, Create, Created, Delete
from semel.contracts.streams.reading import find
from semel.contracts.streams.rules.append import is_decided_without_content
from semel.contracts.streams.wire.names import stored_name
from semel.contracts.streams.wire.requests import TOO_LARGE, parse_append, parse_content, parse_create
from semel.contracts.streams.wire.responses import Response, appended, created
from semel.engine.contract import Write
from semel.kernel.errors import Problem, Refused
from semel.kernel.keys import time_ordered_id
from semel.server.asgi import Receive, Scope
from semel.server.body import CLOSE
from semel.server.context import Context, caller_of
from semel.server.host_field import is_own
from semel.server.threads import COPIED_BYTES, apart, is_small

C = TypeVar("C", Append, Create)


class Writes:
    """The HTTP handlers of writes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._streams = context.streams
        self._bodies = context.bodies
        self._outcomes = context.metrics.outcomes
        self._most_messages = context.settings.streams_max_messages

    async def append(self, name: bytes, fields: Fields, scope: Scope, receive: Receive) -> Response:
        """POST."""
        body = await self._bodies.read(receive, scope)
        command = await self._append_command(name, fields, body)
        is_unread = body is None
        if command.content is not UNREAD:
            body = None  # what is to be stored is in the command
        caller = caller_of(scope)
        answer = await self._engine.submit(Write(self._streams, command, len(command.content.data)), caller)
        if answer is UNREAD.flaw:  # the stream is another one than when it was looked at
            command = await self._with_content(command, command.content_type, body)
            answer = await self._engine.submit(Write(self._streams, command, len(command.content.data)), caller)
        if isinstance(answer, Appended):
            self._outcomes["stored" if answer.is_new else "replay" if answer.replayed else "duplicate"] += 1
            return appended(answer)
        self._outcomes["refused"] += 1
        raise _refused(answer, is_unread=is_unread)

    async def create(self, name: bytes, fields: Fields, scope: Scope, receive: Receive) -> Response:
        """PUT."""
        body = await self._bodies.read(receive, scope)
        if body is None:
            raise _refused(TOO_LARGE, is_unread=True)
        world = self._context.world
        life = time_ordered_id(world.wall_ms(), world.random_bytes(10))
        command = await self._create_command(name, life, fields, body)
        caller = caller_of(scope)
        if command.content is not UNREAD:
            body = None
        answer = await self._engine.submit(Write(self._streams, command, len(command.content.data)), caller)
        if answer is UNREAD.flaw:  # the stream has gone since it was looked at
            command = await self._with_content(command, command.content_type, body)
            answer = await self._engine.submit(Write(self._streams, command, len(command.content.data)), caller)
        if isinstance(answer, Created):
            return created(answer, _location(scope, fields))
        raise _refused(answer)

    async def delete(self, name: bytes, scope: Scope) -> Response:
        """DELETE."""
        answer = await self._engine.submit(Write(self._streams, Delete(stored_name(name))), caller_of(scope))
        if isinstance(answer, Problem):
            raise _refused(answer)
        return Response(204, [])

    async def _append_command(self, name: bytes, fields: Fields, body: bytes | None) -> Append:
        """Large JSON is split in a thread, and only when nothing that is known already decides."""
        size = len(body or b"")
        most = self._most_messages if is_small(size, COPIED_BYTES) else None
        command = await apart(size, parse_append, name, fields, body, most, most=COPIED_BYTES)
        if command.content is UNREAD and not await self._engine.read(
            lambda reading: is_decided_without_content(reading, command, reading.now)
        ):
            return await self._with_content(command, command.content_type, body)
        return command

    async def _create_command(self, name: bytes, life: bytes, fields: Fields, body: bytes) -> Create:
        most = self._most_messages if is_small(len(body), COPIED_BYTES) else None
        command = await apart(len(body), parse_create, name, life, fields, body, most, most=COPIED_BYTES)
        if command.content is UNREAD and not await self._engine.read(lambda reading: find(reading, command.scope)):
            return await self._with_content(command, command.content_type, body)
        return command

    async def _with_content(self, command: C, content_type: bytes | None, body: bytes | None) -> C:
        assert content_type is not None
        assert body is not None
        is_create = isinstance(command, Create)
        split = partial(parse_content, content_type, body, self._most_messages, allow_empty_array=is_create)
        return command._replace(content=await apart(len(body), split, most=COPIED_BYTES))


def _refused(problem: Problem, *, is_unread: bool = False) -> Refused:
    return Refused(problem.code, problem.detail, (*problem.headers, CLOSE) if is_unread else problem.headers)


def _location(scope: Scope, fields: Fields) -> bytes:
    """The stream's URL, absolute where the Host names this machine.

    Another Host is the client's own claim, or a proxy's name behind a scheme that is not known here: the path alone
    is right for whatever URL the request was sent to.
    """
    path: bytes = scope["raw_path"]
    address, port = scope.get("server") or ("127.0.0.1", 0)
    host = (fields.get(b"host") or b"").strip()
    if not host:
        host = f"[{address}]:{port}".encode() if ":" in address else f"{address}:{port}".encode()
    elif not is_own(host, address):
        return path
    return b"%s://%s%s" % (scope["scheme"].encode(), host, path)
