"""HTTP routes of streams: credential first, then the method, then the request.

Every refusal is a problem document with the common headers.
"""

from __future__ import annotations

from semel.contracts.fields import Fields
from semel.contracts.streams.wire.names import parse_name
from semel.contracts.streams.wire.responses import Response
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.server.admission import admit, denied, whence
from semel.server.asgi import Receive, Scope, Send, respond
from semel.server.context import Context
from semel.server.principals import Role
from semel.server.problem import engine_problem, problem_body, problem_headers
from semel.server.streams.headers import ALLOW, STATIC
from semel.server.streams.reads import Reads
from semel.server.streams.writes import Writes

PREFIX = b"/v1/stream/"
SURFACE = "streams"

_ROLES = {"PUT": Role.WRITE, "POST": Role.WRITE, "DELETE": Role.WRITE, "GET": Role.READ, "HEAD": Role.READ}


class StreamsHost:
    """The HTTP interface of streams under `/v1/stream/`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writes = Writes(context)
        self._reads = Reads(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]
        try:
            if method == "OPTIONS":
                response: Response | None = Response(204, [ALLOW])
            else:
                name, fields = self._admit(method, scope)
                if method == "POST":
                    response = await self._writes.append(name, fields, scope, receive)
                else:
                    response = await self._route(method, name, fields, scope, receive, send)
        except Refused as refused:
            response = refusal(refused.problem)
        except EngineError as error:
            response = refusal(engine_problem(error))
        if response is not None:
            await self._send(response, method, send)

    async def reject(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Answer a request that may not reach this surface."""
        await self._send(refusal(problem), scope["method"], send)

    async def _send(self, response: Response, method: str, send: Send) -> None:
        status, headers, body = response
        self._context.metrics.requests[SURFACE, method, status] += 1
        headers += STATIC
        headers.append((b"x-request-id", self._context.request_id()))
        await respond(send, status, headers, None if method == "HEAD" else body)

    def _admit(self, method: str, scope: Scope) -> tuple[bytes, Fields]:
        """Credential, name and method, in this order; then whether this caller may do that to this stream."""
        fields = Fields(scope["headers"])
        principal = admit(self._context, scope, fields)
        name = parse_name(scope["raw_path"][len(PREFIX) :])
        role = _ROLES.get(method)
        if role is None:
            raise Refused("METHOD_NOT_ALLOWED", f"{method} is not used on streams.", (ALLOW,))
        if not principal.may(role, SURFACE, name):
            denied(self._context, whence(scope))
            raise Refused("FORBIDDEN", f"This credential may not {role.value} this stream.")
        return name, fields

    async def _route(
        self, method: str, name: bytes, fields: Fields, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        if method == "GET":
            return await self._reads.get(name, fields, scope, send)
        if method == "HEAD":
            return await self._reads.head(name)
        if method == "PUT":
            return await self._writes.create(name, fields, scope, receive)
        return await self._writes.delete(name, scope)


def refusal(problem: Problem) -> Response:
    """A problem as an answer."""
    return Response(problem.kind.status, problem_headers(problem), problem_body(problem))
