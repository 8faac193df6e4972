"""PUT, POST and DELETE: parse, submit, render."""

from __future__ import annotations

from semel.contracts.fields import Fields
from semel.contracts.streams.commands import Appended, Created, Delete
from semel.contracts.streams.wire.names import stored_name
from semel.contracts.streams.wire.requests import TOO_LARGE, parse_append, parse_create
from semel.contracts.streams.wire.responses import Response, appended, created
from semel.engine.contract import Write
from semel.kernel.errors import Problem, Refused
from semel.kernel.keys import time_ordered_id
from semel.server.asgi import Receive, Scope
from semel.server.body import CLOSE
from semel.server.context import Context, caller_of
from semel.server.host_field import is_own


class Writes:
    """The writing half of the host."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._streams = context.streams
        self._bodies = context.bodies
        self._outcomes = context.metrics.outcomes

    async def append(self, name: bytes, fields: Fields, scope: Scope, receive: Receive) -> Response:
        """POST."""
        body = await self._bodies.read(receive, scope)
        command = parse_append(name, fields, body)
        write = Write(self._streams, command, len(command.content.data))
        answer = await self._engine.submit(write, caller_of(scope))
        if isinstance(answer, Appended):
            self._outcomes["stored" if answer.is_new else "replay" if answer.replayed else "duplicate"] += 1
            return appended(answer)
        self._outcomes["refused"] += 1
        raise _refused(answer, is_unread=body is None)

    async def create(self, name: bytes, fields: Fields, scope: Scope, receive: Receive) -> Response:
        """PUT."""
        body = await self._bodies.read(receive, scope)
        if body is None:
            raise _refused(TOO_LARGE, is_unread=True)
        world = self._context.world
        life = time_ordered_id(world.wall_ms(), world.random_bytes(10))
        command = parse_create(name, life, fields, body)
        answer = await self._engine.submit(Write(self._streams, command, len(body)), caller_of(scope))
        if isinstance(answer, Created):
            return created(answer, _location(scope, fields))
        raise _refused(answer)

    async def delete(self, name: bytes, scope: Scope) -> Response:
        """DELETE."""
        answer = await self._engine.submit(Write(self._streams, Delete(stored_name(name))), caller_of(scope))
        if isinstance(answer, Problem):
            raise _refused(answer)
        return Response(204, [])


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
