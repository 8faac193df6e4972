"""The calls behind `semel console`: make a one-time link, exchange its code for a session, sign out.

1. `POST /console/links`, with a credential: a code of 192 random bits, which counts for `SessionLimits.link_ms`. The
   command puts it into the fragment of the console's URL, which browsers send to no server, proxy or other page.
2. `POST /console/sessions`, with the code in the body: the token of a session. The page has taken the code out of the
   address bar before. The first exchange of a code gets the session; all others, and codes that are over, are refused
   like a wrong credential.
3. `DELETE /console/sessions`, with the token of a session: the session ends.

The rules of the console's calls hold: no CORS header, no cookie, and a request that a browser marks as coming from
another page is refused. A code or a token is in no URL path or query, log, audit line or error. The audit line of a
link, of a session and of its end is written before the answer leaves; the id in it is of no other use. After a crash a
code was exchanged or it was not; one whose answer was lost is used up, and its session ends at its time.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256

import orjson

from semel.engine.contract import Write
from semel.engine.reading import Reading
from semel.kernel.clock import utc_text
from semel.kernel.errors import Refusal, Refused
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError
from semel.server.auth.authentication import admit, failed
from semel.server.auth.principals import AuthOutcome, UnauthorizedError, presented, unauthorized
from semel.server.auth.verifiers import SESSION_PREFIX
from semel.server.console.calls import page_refusal
from semel.server.console.session_contract import (
    CreateLink,
    EndSession,
    OpenSession,
    SessionChanged,
    SessionCommand,
    SessionContract,
    SessionLimits,
    is_link,
)
from semel.server.console.session_table import ConsoleSessionRow, of_digest
from semel.server.console.sessions import ConsoleSessions, rights_of
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, JSON, NO_STORE, Answer
from semel.server.http.body import Bodies
from semel.server.http.cors import provenance_in
from semel.server.http.request import Request
from semel.server.ops.token_calls import new_token_id
from semel.server.refusal import origin_refusal
from semel.server.surface import HttpSurface

LINKS = b"/console/links"
SESSIONS = b"/console/sessions"
ROUTES = {LINKS: ("POST",), SESSIONS: ("POST", "DELETE")}
"""The methods of each path."""
MAX_BODY_BYTES = 1_024
CODE_BYTES, TOKEN_BYTES = 24, 32
UPLOADS_BYTES = 64 * MAX_BODY_BYTES
"""Bodies that arrive in pieces, together: their senders have shown no credential."""
_CODE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LINK_OVER = "This link was used before, or its {seconds} seconds are over: run `semel console` for a new one."


class SessionCalls:
    """The handlers of links and sessions. Used on the event loop only."""

    def __init__(self, context: Context, limits: SessionLimits | None = None) -> None:
        self._context = context
        self._limits = SessionLimits() if limits is None else limits
        self._bodies = Bodies(MAX_BODY_BYTES, UPLOADS_BYTES)
        self.contract = SessionContract(self._limits)
        self.sessions = ConsoleSessions(context.engine, context.principals, context.world, self.contract)

    def lacks(self, request: Request) -> bool:
        """Whether the request has the token of a session that another node may have begun a moment ago."""
        try:
            token = presented(request.fields) or b""
        except UnauthorizedError:
            return False
        return token.startswith(SESSION_PREFIX) and self.sessions.lacks(sha256(token).digest())

    def handle(self, surface: HttpSurface, request: Request) -> Answer | None:
        """Answer one request, in a task; a foreign page is refused at once."""
        provenance = provenance_in(request.headers)
        foreign = page_refusal(request.fields, provenance)
        if foreign is not None:
            return origin_refusal(self._context, surface, request, provenance, foreign)
        if request.method not in ROUTES[request.raw_path]:
            headers = ((b"allow", ", ".join(ROUTES[request.raw_path]).encode()),)
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=headers)
        if request.raw_path == LINKS:
            request.later(self._link(request))
        else:
            request.later(self._exchange(request) if request.method == "POST" else self._sign_out(request))
        return None

    async def _link(self, request: Request) -> Answer:
        context = self._context
        principal = admit(context, request)
        token = presented(request.fields)
        if token is None or not context.principals.are_known:
            return Answer(200, [JSON, NO_STORE], orjson.dumps({"code": None, "expires_at": None}))
        if token.startswith(SESSION_PREFIX):
            raise Refused("FORBIDDEN", "A console session makes no links: ask with the credential itself.")
        code = _random_text(context.world.random_bytes(CODE_BYTES))
        kept = context.principals.keep(token)
        changed = await self._change(
            request,
            CreateLink(
                new_token_id(context.world.random_bytes(8)),
                sha256(code).digest(),
                principal.actor.encode(),
                sha256(token).digest(),
                rights_of(principal),
                None if kept is None else kept.claims,
                None if kept is None else kept.key,
                principal.expires_at_ms,
            ),
        )
        if changed.gone is not None:
            self.sessions.end(changed.gone, changed.version)
        row = changed.row
        assert row is not None, "a link that is not refused is stored"
        await self._note("CONSOLE_LINK_CREATED", row, request)
        facts = {"code": code.decode(), "expires_at": utc_text(row.ends_at)}
        return Answer(201, [JSON, NO_STORE], orjson.dumps(facts))

    async def _exchange(self, request: Request) -> Answer:
        context = self._context
        code = sha256(await self._code(request)).digest()
        # Wrong codes cost a read and no write: a caller without a credential cannot fill the queue with them.
        row = await context.engine.read(lambda reading: _row_of(reading, code))
        now_ms = context.world.wall_ms()
        if row is None or not is_link(row, now_ms):
            raise self._refused(request)
        try:
            principal = self.sessions.behind(row, now_ms).principal
        except UnauthorizedError as over:
            failed(context, over.outcome, request.where)
            raise
        request.principal, request.credential = principal.actor, principal
        token = SESSION_PREFIX + _random_text(context.world.random_bytes(TOKEN_BYTES))
        changed = await self._change(request, OpenSession(code, sha256(token).digest()))
        if changed.row is None:
            raise self._refused(request)
        self.sessions.begin(changed)
        await self._note("CONSOLE_SIGNED_IN", changed.row, request)
        facts = {"token": token.decode(), "name": principal.name, "expires_at": utc_text(changed.row.ends_at)}
        return Answer(201, [JSON, NO_STORE], orjson.dumps(facts))

    async def _sign_out(self, request: Request) -> Answer:
        """End the session of the token; another token is left as it is, because it belongs to more than this page."""
        token = presented(request.fields) or b""
        digest = sha256(token).digest()
        if token.startswith(SESSION_PREFIX):
            if self.sessions.lacks(digest):
                await self.sessions.refresh()
            row = self.sessions.session(digest)
            if row is not None:
                changed = await self._change(request, EndSession(row.id))
                if changed.row is not None:
                    self.sessions.end(changed.row, changed.version)
                    await self._note("CONSOLE_SIGNED_OUT", changed.row, request)
        return Answer(204, [NO_STORE])

    async def _change(self, request: Request, command: SessionCommand) -> SessionChanged:
        written = Write(self.contract, command)
        changed: SessionChanged | Refusal = await self._context.engine.submit(written, caller_of(request))
        if isinstance(changed, Refusal):
            raise Refused.of(changed)
        return changed

    async def _note(self, event: str, row: ConsoleSessionRow, request: Request) -> None:
        audit = self._context.audit
        details = {"session_id": row.id.decode(), "by": row.actor.decode(), "remote_addr": request.remote}
        audit.note(event, details)
        await audit.written()

    def _refused(self, request: Request) -> Refused:
        """Count a code that cannot be exchanged as a wrong credential; returns the refusal."""
        failed(self._context, AuthOutcome.LINK, request.where)
        said = _LINK_OVER.format(seconds=self._limits.link_ms // 1_000)
        return unauthorized(said, b"invalid_token", AuthOutcome.LINK)

    async def _code(self, request: Request) -> bytes:
        body = await self._bodies.read(request)
        if body is None:
            detail = f"The body has more than {MAX_BODY_BYTES} bytes; send the code of a link alone."
            raise Refused("PAYLOAD_TOO_LARGE", detail, headers=(CLOSE,))
        try:
            value = parse(body)
        except JsonError as error:
            raise Refused("INVALID_REQUEST", str(error)) from None
        code = value.get("code") if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(code, str):
            raise Refused("INVALID_REQUEST", "The body must be an object with the code of a link, and nothing else.")
        if not _CODE.fullmatch(code):
            raise self._refused(request)
        return code.encode()


def _row_of(reading: Reading, digest: bytes) -> ConsoleSessionRow | None:
    found = reading.range(of_digest(digest))
    return ConsoleSessionRow(*found[0]) if found else None


def _random_text(chance: bytes) -> bytes:
    return base64.urlsafe_b64encode(chance).rstrip(b"=")
