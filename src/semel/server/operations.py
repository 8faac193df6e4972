"""What the server says of itself: `/livez`, `/readyz`, `/metrics`, and the listing of streams for operators."""

from __future__ import annotations

from urllib.parse import parse_qs

import orjson

from semel import __version__
from semel.contracts.streams.offsets import format_offset
from semel.contracts.streams.reading import Span, listing, span_behind, span_of_prefix
from semel.contracts.streams.tables import StreamRow
from semel.kernel.errors import Problem, Refused
from semel.server.asgi import SECURITY, Header, Scope, Send, respond
from semel.server.context import Context
from semel.server.metrics import render
from semel.server.principals import Principal, Role
from semel.server.problem import problem_body, problem_headers

_JSON: Header = (b"content-type", b"application/json")
_NO_STORE: Header = (b"cache-control", b"no-store")
MAX_LISTED = 1_000


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
        self._context.metrics.requests["server", method, status] += 1
        headers = [*headers, *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send, status, headers, None if method == "HEAD" else body)
        return True

    async def _livez(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        return 200, [_JSON, _NO_STORE], orjson.dumps({"status": "ok", "version": __version__})

    async def _readyz(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """Ready means that a write sent now would be taken."""
        ready = not self._context.is_stopping and self._context.engine.failure is None
        state = "ok" if ready else "stopping"
        return (200 if ready else 503), [_JSON, _NO_STORE], orjson.dumps({"status": state})

    async def _metrics(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        fields = dict(scope["headers"])
        self._context.principals.resolve(fields.get(b"authorization"))
        content_type, body = render(self._context.metrics.registry, fields.get(b"accept", b"").decode("latin-1"))
        return 200, [(b"content-type", content_type), _NO_STORE], body

    async def _streams(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """`GET /v1/streams?prefix=&after=&limit=`: the streams this caller may read."""
        principal = self._context.principals.resolve(dict(scope["headers"]).get(b"authorization"))
        asked = parse_qs(scope["query_string"].decode("latin-1"), encoding="utf-8", errors="surrogateescape")
        prefix, after = (asked.get(name, [""])[0].encode("utf-8", "surrogateescape") for name in ("prefix", "after"))
        limit = _limit(asked.get("limit", ["100"])[0])
        if Role.READ not in principal.roles and Role.ADMIN not in principal.roles:
            raise Refused("FORBIDDEN", "This credential may not read streams.")
        spans = _spans(principal, prefix, after)
        rows, last = await self._context.engine.read(lambda reading: listing(reading, spans, limit))
        seen = [_described(row) for row in rows]
        more = None if last is None else last.decode("utf-8", "replace")
        return 200, [_JSON, _NO_STORE], orjson.dumps({"streams": seen, "after": more})


def _spans(principal: Principal, prefix: bytes, after: bytes) -> list[Span]:
    asked = span_of_prefix(prefix).meet(span_behind(after))
    if asked is None:
        return []
    allowed = [
        span_of_prefix(name) if is_prefix else Span(name, name + b"\x00")
        for name, is_prefix in principal.reach("streams")
    ]
    return [both for span in allowed if (both := span.meet(asked)) is not None]


def _described(row: StreamRow) -> dict[str, object]:
    return {
        "name": row.path.decode("utf-8", "replace"),
        "content_type": row.content_type.decode("latin-1"),
        "next_offset": format_offset(row.tail).decode(),
        "closed": bool(row.closed),
        "ttl_seconds": row.ttl_seconds,
        "expires_at": None if row.expires_text is None else row.expires_text.decode("latin-1"),
        "created_ms": row.created_at,
        "updated_ms": row.updated_at,
    }


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LISTED:
        raise Refused("INVALID_REQUEST", f"limit is a whole number from 1 to {MAX_LISTED}.")
    return int(text)


def _refusal(problem: Problem) -> tuple[int, list[Header], bytes]:
    return problem.kind.status, problem_headers(problem), problem_body(problem)
