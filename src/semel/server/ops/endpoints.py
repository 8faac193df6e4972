"""The endpoints of operations: health, metrics, live counts, settings, audit lines, a diagnosis, and the OpenAPI
document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256

import orjson

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.http.answer import JSON, NO_STORE, SECURITY, Answer, header_block
from semel.server.http.request import Request
from semel.server.ops.audit_tail import TAIL_BYTES, audit_tail, parse_query
from semel.server.ops.diagnosis import Diagnosis
from semel.server.ops.diagnosis_bundle import SurfaceDiagnosis
from semel.server.ops.health import liveness, readiness, readiness_facts
from semel.server.ops.live_counts import caller_facts, live_facts
from semel.server.ops.metrics import render
from semel.server.setting_lines import setting_facts
from semel.server.surface import HttpSurface
from semel.server.thread_pool import apart

_COMMON = header_block(SECURITY)
MADE_BYTES = 256 * 1024
"""The size of the OpenAPI document, about: it is made once, in a thread."""


class Operations(HttpSurface):
    """The surface of operations; none of its requests uses the write path."""

    surface = "server"
    allow = b"GET, HEAD, OPTIONS"

    def __init__(
        self,
        context: Context,
        diagnoses: Sequence[Callable[[Reading], SurfaceDiagnosis]],
        document: Callable[[], bytes],
    ) -> None:
        """`diagnoses` are the parts of the surfaces in a diagnosis; `document` makes the OpenAPI document."""
        self._context = context
        self._diagnosis = Diagnosis(context, diagnoses)
        self._at_once: dict[bytes, Callable[[], Answer]] = {
            b"/livez": self._livez,
            b"/health": self._livez,
            b"/readyz": self._readyz,
            b"/ready": self._readyz,
        }
        self._later: dict[bytes, Callable[[Request], Awaitable[Answer]]] = {
            b"/metrics": self._metrics,
            b"/v1/live": self._live,
            b"/v1/caller": self._caller,
            b"/v1/settings": self._settings,
            b"/v1/audit": self._audit,
            b"/v1/diagnose": self._diagnose,
            b"/openapi.json": self._openapi,
        }
        self._started_ms = context.world.wall_ms()
        self._document = document
        self._openapi_bytes: bytes | None = None
        self._openapi_etag = b""
        self.paths = frozenset((*self._at_once, *self._later))

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                "METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=((b"allow", b"GET, HEAD"),)
            )
        at_once = self._at_once.get(request.raw_path)
        if at_once is not None:
            return at_once()
        request.later(self._run(request))
        return None

    async def _run(self, request: Request) -> Answer:
        return await self._later[request.raw_path](request)

    def _livez(self) -> Answer:
        return Answer(200, [JSON, NO_STORE], orjson.dumps(liveness(self._context)))

    def _readyz(self) -> Answer:
        status = 200 if readiness(self._context) == "ok" else 503
        return Answer(status, [JSON, NO_STORE], orjson.dumps(readiness_facts(self._context)))

    async def _metrics(self, request: Request) -> Answer:
        principal = admit(self._context, request)  # counts name no caller, so any authenticated one may read them
        await self._context.metrics.measure()
        accepted = (request.fields.get(b"accept") or b"").decode("latin-1")
        content_type, body = render(self._context.metrics, accepted, principal.namespaces)
        return Answer(200, [(b"content-type", content_type), NO_STORE], body)

    async def _openapi(self, request: Request) -> Answer:
        """Open to every caller: the document describes this version of the server, and nothing that it stores."""
        if self._openapi_bytes is None:
            self._openapi_bytes = await apart(MADE_BYTES, self._document)
            self._openapi_etag = b'"%s"' % sha256(self._openapi_bytes).hexdigest()[:32].encode()
        document, etag = self._openapi_bytes, self._openapi_etag
        headers = [(b"etag", etag), (b"cache-control", b"no-cache")]
        if request.fields.get(b"if-none-match") == etag:
            return Answer(304, headers)
        return Answer(200, [JSON, *headers], document)

    async def _live(self, request: Request) -> Answer:
        admit(self._context, request)  # counts name no caller, so any authenticated one may read them
        return Answer(200, [JSON, NO_STORE], orjson.dumps(live_facts(self._context, self._started_ms)))

    async def _caller(self, request: Request) -> Answer:
        principal = admit(self._context, request)
        return Answer(200, [JSON, NO_STORE], orjson.dumps(caller_facts(self._context, principal)))

    async def _settings(self, request: Request) -> Answer:
        self._of_all_namespaces(request, "The list of settings")
        context = self._context
        facts = await apart(MADE_BYTES, setting_facts, context.settings, context.given_settings())
        return Answer(200, [JSON, NO_STORE], orjson.dumps({"settings": facts}))

    async def _audit(self, request: Request) -> Answer:
        self._administrator(request, "The audit log is about all callers; it needs the admin role without scopes.")
        query = parse_query(request.query)
        await self._context.audit.written()  # so that the latest lines are there
        body = await apart(TAIL_BYTES, audit_tail, self._context.settings.logs, query)
        return Answer(200, [JSON, NO_STORE], body)

    def _administrator(self, request: Request, reason: str) -> Principal:
        principal = admit(self._context, request)
        if not principal.has(Role.ADMIN) or principal.scopes is not None:
            raise Refused("FORBIDDEN", reason)
        return principal

    def _of_all_namespaces(self, request: Request, name: str) -> None:
        principal = self._administrator(
            request, f"{name} covers the whole server; it needs the admin role without scopes."
        )
        if principal.namespaces is not None and self._context.has_neighbours:
            raise Refused("FORBIDDEN", f"{name} covers all namespaces; it needs a credential that is known in all.")

    async def _diagnose(self, request: Request) -> Answer:
        self._of_all_namespaces(request, "A diagnosis")
        name, content = await self._diagnosis.bundle()
        disposition = b'attachment; filename="%s"' % name.encode()
        headers = [(b"content-type", b"application/zip"), (b"content-disposition", disposition), NO_STORE]
        return Answer(200, headers, content)
