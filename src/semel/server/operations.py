"""Operations endpoints: health, metrics, diagnosis, and the listing of streams."""

from __future__ import annotations

import orjson

from semel.contracts.fields import Fields
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.server.admission import admit, denied, whence
from semel.server.asgi import SECURITY, Header, Scope, Send, respond
from semel.server.context import Context
from semel.server.diagnosis import Diagnosis
from semel.server.health import liveness, readiness, readiness_facts
from semel.server.metrics import render
from semel.server.principals import Role
from semel.server.problem import engine_problem, problem_body, problem_headers
from semel.server.streams.listing import list_streams

_JSON: Header = (b"content-type", b"application/json")
_NO_STORE: Header = (b"cache-control", b"no-store")


class Operations:
    """The handlers of operations endpoints; none of them is on the write path."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._diagnosis = Diagnosis(context)
        self._answers = {
            b"/livez": self._livez,
            b"/health": self._livez,
            b"/readyz": self._readyz,
            b"/ready": self._readyz,
            b"/metrics": self._metrics,
            b"/v1/diagnose": self._diagnose,
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
            if refused.problem.code == "FORBIDDEN":
                denied(self._context, whence(scope))
            status, headers, body = _refusal(refused.problem)
        except EngineError as error:
            status, headers, body = _refusal(engine_problem(error))
        self._context.metrics.requests["server", method, status] += 1
        headers = [*headers, *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send, status, headers, None if method == "HEAD" else body)
        return True

    async def _livez(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        return 200, [_JSON, _NO_STORE], orjson.dumps(liveness(self._context))

    async def _readyz(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        status = 200 if readiness(self._context) == "ok" else 503
        return status, [_JSON, _NO_STORE], orjson.dumps(readiness_facts(self._context))

    async def _metrics(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        fields = Fields(scope["headers"])
        admit(self._context, scope, fields)  # counts contain no names: any caller with a credential may read them
        await self._context.metrics.look()
        content_type, body = render(self._context.metrics, (fields.get(b"accept") or b"").decode("latin-1"))
        return 200, [(b"content-type", content_type), _NO_STORE], body

    async def _diagnose(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        principal = admit(self._context, scope, Fields(scope["headers"]))
        if not principal.has(Role.ADMIN) or principal.scopes is not None:
            raise Refused("FORBIDDEN", "A diagnosis speaks of the whole server; it is for admins without limits.")
        name, content = await self._diagnosis.bundle()
        disposition = b'attachment; filename="%s"' % name.encode()
        return 200, [(b"content-type", b"application/zip"), (b"content-disposition", disposition), _NO_STORE], content

    async def _streams(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        principal = admit(self._context, scope, Fields(scope["headers"]))
        body = await list_streams(self._context.engine, principal, scope["query_string"])
        return 200, [_JSON, _NO_STORE], body


def _refusal(problem: Problem) -> tuple[int, list[Header], bytes]:
    return problem.kind.status, problem_headers(problem), problem_body(problem)
