"""The tokens of the store over HTTP, for administrators: create, list, rotate and revoke.

A client makes its token itself and sends its SHA-256: no request, answer, log or trace of the server has a new token.
A request whose answer was lost is sent again unchanged: the hash makes it the same creation or rotation. The audit line
of a change is written before its answer leaves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from semel.engine.contract import Write
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Principal, Role, ScopeRules
from semel.server.auth.stored_tokens import read_state
from semel.server.auth.token_contract import RevokeToken, TokenChanged, TokenCommand, TokenContract
from semel.server.auth.token_table import TokenRow
from semel.server.auth.token_wire import parse_create, parse_rotate, token_facts
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, JSON, NO_STORE, SECURITY, Answer, header_block
from semel.server.http.request import Request
from semel.server.ops.audit_log import AuditLog
from semel.server.surface import HttpSurface
from semel.server.thread_pool import apart

PATH = b"/v1/tokens"
ROUTES = {
    "": ("GET", "HEAD", "POST"),
    "/{}": ("GET", "HEAD"),
    "/{}/rotate": ("POST",),
    "/{}/revoke": ("POST",),
}
"""The methods of each path below `PATH`; `{}` is the id of a token."""
MAX_BODY_BYTES = 256 * 1024
ROW_BYTES = 512
"""The size of one token in a list, about."""
EVENTS = {"create": "TOKEN_CREATED", "rotate": "TOKEN_ROTATED", "revoke": "TOKEN_REVOKED"}
_COMMON = header_block(SECURITY)
_ID = re.compile(rb"[0-9a-f]{16}")


class TokenCalls(HttpSurface):
    """The HTTP handlers of stored tokens."""

    surface = "tokens"
    allow = b"GET, HEAD, POST, OPTIONS"

    def __init__(self, context: Context, contract: TokenContract, rules: ScopeRules) -> None:
        self._context = context
        self._contract = contract
        self._rules = rules

    def owns(self, raw_path: bytes) -> bool:
        """Whether a path belongs to these calls."""
        return raw_path == PATH or raw_path.startswith(PATH + b"/")

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request, in a task."""
        request.later(self._run(request))
        return None

    async def _run(self, request: Request) -> Answer:
        _, *parts = request.raw_path[len(PATH) :].split(b"/")
        call = "/".join(("", *("{}" if place == 0 else part.decode("latin-1") for place, part in enumerate(parts))))
        allowed = ROUTES.get(call)
        if allowed is None:
            raise Refused("NOT_FOUND", "There is nothing at this path of tokens.")
        if request.method not in allowed:
            headers = ((b"allow", ", ".join(allowed).encode()),)
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=headers)
        principal = self._administrator(request)
        if request.method != "POST":
            return await self._show(_token_id(parts[0]) if parts else None)
        if not parts:
            return await self._create(request, principal)
        token_id = _token_id(parts[0])
        return await (self._rotate if call == "/{}/rotate" else self._revoke)(request, principal, token_id)

    def _administrator(self, request: Request) -> Principal:
        principal = admit(self._context, request)
        if not principal.has(Role.ADMIN) or principal.scopes is not None:
            raise Refused("FORBIDDEN", "Tokens count on the whole server; they need the admin role without scopes.")
        return principal

    async def _show(self, token_id: bytes | None) -> Answer:
        rows = await self._context.engine.read(_rows)
        now_ms = self._context.world.wall_ms()
        if token_id is None:
            body = await apart(ROW_BYTES * len(rows), _listed, rows, now_ms)
            return Answer(200, [JSON, NO_STORE], body)
        found = next((row for row in rows if row.id == token_id), None)
        if found is None:
            raise Refused("TOKEN_NOT_FOUND", f"There is no token {token_id.decode()}.")
        return Answer(200, [JSON, NO_STORE], orjson.dumps(token_facts(found, now_ms)))

    async def _create(self, request: Request, principal: Principal) -> Answer:
        body = await self._body(request)
        draft = await apart(len(body), parse_create, body, self._rules)
        self._refuse_known(draft.digest)
        command = draft.command(new_token_id(self._context.world.random_bytes(8)))
        return await self._change(request, principal, "create", command)

    async def _rotate(self, request: Request, principal: Principal, token_id: bytes) -> Answer:
        body = await self._body(request)
        draft = await apart(len(body), parse_rotate, body)
        self._refuse_known(draft.digest)
        command = draft.command(token_id, new_token_id(self._context.world.random_bytes(8)))
        return await self._change(request, principal, "rotate", command)

    async def _revoke(self, request: Request, principal: Principal, token_id: bytes) -> Answer:
        return await self._change(request, principal, "revoke", RevokeToken(token_id))

    async def _change(self, request: Request, principal: Principal, call: str, command: TokenCommand) -> Answer:
        context = self._context
        changed: TokenChanged | Refusal = await context.engine.submit(
            Write(self._contract, command), caller_of(request)
        )
        if isinstance(changed, Refusal):
            raise Refused.of(changed)
        context.stored_tokens.take(changed)
        if changed.is_change:
            note_change(context.audit, call, changed, principal.actor, request.remote)
            await context.audit.written()
        status = 201 if changed.is_change and call != "revoke" else 200
        return Answer(status, [JSON, NO_STORE], orjson.dumps(change_facts(changed, context.world.wall_ms())))

    def _refuse_known(self, digest: bytes) -> None:
        if self._context.stored_tokens.holds(digest):
            raise Refused("TOKEN_EXISTS", "This token is configured on the server already: make a new one.")

    async def _body(self, request: Request) -> bytes:
        bodies = self._context.bodies
        body = await bodies.read(request)
        if body is None or len(body) > MAX_BODY_BYTES:
            detail = f"The body has more than {MAX_BODY_BYTES} bytes; send a smaller one."
            raise Refused("PAYLOAD_TOO_LARGE", detail, headers=(CLOSE,))
        return body


def new_token_id(chance: bytes) -> bytes:
    """An id from eight random bytes."""
    return chance.hex().encode()


def change_facts(changed: TokenChanged, now_ms: int) -> dict[str, Any]:
    """The answer to a change: the token, whether anything changed, and after a rotation the token that it replaces."""
    token, *others = changed.rows
    facts = token_facts(token, now_ms) | {"changed": changed.is_change}
    return facts | {"replaces": token_facts(others[0], now_ms)} if others else facts


def note_change(audit: AuditLog, call: str, changed: TokenChanged, actor: str, remote: str) -> None:
    """Write the audit line of a change: ids and names."""
    token, *others = changed.rows
    details = {"token_id": token.id.decode(), "name": token.name.decode(), "by": actor, "remote_addr": remote}
    if others:
        details["replaces"] = others[0].id.decode()
    audit.note(EVENTS[call], details)


def _rows(reading: Reading) -> Sequence[TokenRow]:
    state = read_state(reading)
    assert state is not None, "no version is -1"
    return sorted(state.rows.values(), key=lambda row: (row.created_at, row.id))


def _listed(rows: Sequence[TokenRow], now_ms: int) -> bytes:
    return orjson.dumps({"tokens": [token_facts(row, now_ms) for row in rows]})


def _token_id(raw: bytes) -> bytes:
    if not _ID.fullmatch(raw):
        raise Refused("TOKEN_NOT_FOUND", "There is no such token: the id of a token has 16 hex digits.")
    return raw
