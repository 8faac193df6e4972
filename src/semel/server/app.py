"""The ASGI application: routes on the raw path to the owner of its prefix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from semel.kernel.errors import Problem
from semel.server.asgi import SECURITY, Receive, Scope, Send, respond
from semel.server.context import Context
from semel.server.operations import Operations
from semel.server.problem import problem_body, problem_headers
from semel.server.streams import PREFIX as STREAMS
from semel.server.streams import StreamsHost

Host = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    """Everything on one listener."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._streams = StreamsHost(context)
        self._operations = Operations(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        raw_path: bytes = scope["raw_path"]
        if raw_path.startswith(STREAMS):
            await self._streams(scope, receive, send)
        elif not await self._operations(scope, send):
            await self._nothing_here(scope["method"], send)

    async def _nothing_here(self, method: str, send: Send) -> None:
        problem = Problem("NOT_FOUND", "There is nothing at this path; streams are under /v1/stream/.")
        self._context.metrics.requests["none", method, 404] += 1
        headers = [*problem_headers(problem), *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send, 404, headers, None if method == "HEAD" else problem_body(problem))
