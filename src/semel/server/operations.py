"""What the server says of itself: `/livez`, `/readyz`, `/metrics`, and the way to the listing of streams."""

from __future__ import annotations

import orjson

from semel import __version__
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.server.asgi import SECURITY, Header, Scope, Send, respond
from semel.server.context import Context
from semel.server.metrics import render
from semel.server.principals import Role
from semel.server.problem import engine_problem, problem_body, problem_headers
from semel.server.streams.listing import list_streams

_JSON: Header = (b"content-type", b"application/json")
_NO_STORE: Header = (b"cache-control", b"no-store")


class Operations:
    """Small answers, none of them on the write path."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._answers = {
            b"/livez": self._livez,
            b"/health": self._livez,
            b"/readyz": self._readyz,
            b"/ready": self._readyz,
            b"/metrics": self._metrics,
            b"/v1/streams": self._streams,
        }

    async def __call__(self, scope: Scope, send: Send) -> bool:
        """Answer one request; False when the path is not ours."""
        answer = self._answers.get(scope["raw_path"])
        if answer is None:
            return False
        method: str = scope["method"]
        try:
            if method not in ("GET", "HEAD"):
                raise Refused("METHOD_NOT_ALLOWED", f"{method} is not used here.", ((b"allow", b"GET, HEAD"),))
            status, headers, body = await answer(scope)
        except Refused as refused:
            status, headers, body = _refusal(refused.problem)
        except EngineError as error:
            status, headers, body = _refusal(engine_problem(error))
        self._context.metrics.requests["server", method, status] += 1
        headers = [*headers, *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send, status, headers, None if method == "HEAD" else body)
        return True

    async def _livez(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        return 200, [_JSON, _NO_STORE], orjson.dumps({"status": "ok", "version": __version__})

    async def _readyz(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """Ready means that a write sent now would be taken."""
        engine = self._context.engine
        state = "ok"
        if self._context.is_stopping or engine.failure is not None:
            state = "stopping"
        elif engine.is_away:
            state = "store away"
        return (200 if state == "ok" else 503), [_JSON, _NO_STORE], orjson.dumps({"status": state})

    async def _metrics(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        fields = dict(scope["headers"])
        principal = self._context.principals.resolve(fields.get(b"authorization"), self._context.world.wall_ms())
        if principal.scopes is not None and not principal.has(Role.ADMIN):
            raise Refused("FORBIDDEN", "Metrics speak of the whole server; a credential with limits may not read them.")
        content_type, body = render(self._context.metrics.registry, fields.get(b"accept", b"").decode("latin-1"))
        return 200, [(b"content-type", content_type), _NO_STORE], body

    async def _streams(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        authorization = dict(scope["headers"]).get(b"authorization")
        principal = self._context.principals.resolve(authorization, self._context.world.wall_ms())
        body = await list_streams(self._context.engine, principal, scope["query_string"])
        return 200, [_JSON, _NO_STORE], body


def _refusal(problem: Problem) -> tuple[int, list[Header], bytes]:
    return problem.kind.status, problem_headers(problem), problem_body(problem)
