"""Stored tokens as JSON: bodies of requests to commands, rows to answers. Pure; no answer has a hash or a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from semel.kernel.clock import utc_ms, utc_text
from semel.kernel.errors import Refused
from semel.kernel.json.members import MemberReader, is_utf8
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError
from semel.server.auth.principals import Principal, Role, ScopeRules
from semel.server.auth.token_contract import CreateToken, RotateToken, has_ended
from semel.server.auth.token_fields import DEFAULT_ROLES, TokenFieldError, read_holder
from semel.server.auth.token_table import NEVER, TokenRow

MAX_NAME = 256
MAX_SCOPES = 100
MAX_SCOPE = 1_024
MAX_OVERLAP_MS = 365 * 86_400_000
DEFAULT_OVERLAP_MS = 86_400_000
LAST_MS = 253_402_300_799_999  # of the year 9999

_DIGEST_RULE = "must be the SHA-256 of the token, 64 hex digits"
_TIME_RULE = "must be a time with its offset, such as 2030-01-31T12:00:00Z"
_LIST_RULE = "must be a list of strings"


class TokenDraft(NamedTuple):
    """A token to create, as it was asked for."""

    digest: bytes
    name: str
    roles: list[str]
    scopes: list[str] | None
    expires_at: int | None

    def command(self, token_id: bytes) -> CreateToken:
        """The command, under this id."""
        roles = ",".join(role.value for role in Role if role.value in self.roles).encode()
        scopes = None if self.scopes is None else orjson.dumps(self.scopes)
        return CreateToken(token_id, self.digest, self.name.encode(), roles, scopes, self.expires_at)


class RotationDraft(NamedTuple):
    """A rotation, as it was asked for."""

    digest: bytes
    overlap_ms: int
    expires_at: int | None

    def command(self, token_id: bytes, successor: bytes) -> RotateToken:
        """The command for a token, with the id of its successor."""
        return RotateToken(token_id, successor, self.digest, self.overlap_ms, self.expires_at)


def parse_create(body: bytes, rules: ScopeRules) -> TokenDraft:
    """The token that a body asks for. Raises `Refused`."""
    members = _members(body, {"name", "sha256", "roles", "scopes", "expires_at"})
    digest = members.required("sha256", _digest, _DIGEST_RULE)
    name = members.string("name", 1, MAX_NAME) or ""
    if not name or not name.isprintable():
        raise members.refuse("name", f"must be a string of 1 to {MAX_NAME} printable characters")
    roles = members.optional("roles", _texts(len(Role)), _LIST_RULE)
    scopes = members.optional("scopes", _texts(MAX_SCOPES), f"{_LIST_RULE}, {MAX_SCOPES} at most")
    draft = TokenDraft(digest, name, DEFAULT_ROLES if roles is None else roles, scopes, _expiry(members))
    try:
        read_holder(rules, draft.name, draft.roles, draft.scopes)
    except TokenFieldError as error:
        message = str(error)
        raise _invalid(message[:1].upper() + message[1:]) from None
    return draft


def parse_rotate(body: bytes) -> RotationDraft:
    """The rotation that a body asks for. Raises `Refused`."""
    members = _members(body, {"sha256", "overlap_ms", "expires_at"})
    digest = members.required("sha256", _digest, _DIGEST_RULE)
    overlap = members.integer("overlap_ms", 0, MAX_OVERLAP_MS)
    return RotationDraft(digest, DEFAULT_OVERLAP_MS if overlap is None else overlap, _expiry(members))


def holder_of(row: TokenRow, rules: ScopeRules) -> Principal:
    """The principal of a stored token. Raises `TokenFieldError` for a scope that this version does not know."""
    scopes = None if row.scopes is None else orjson.loads(row.scopes)
    holder = read_holder(rules, row.name.decode(), row.roles.decode().split(","), scopes)
    ends_at = None if row.ends_at == NEVER else row.ends_at
    return Principal(holder.name, holder.kind, holder.roles, holder.scopes, expires_at_ms=ends_at)


def token_facts(row: TokenRow, now_ms: int) -> dict[str, Any]:
    """What an administrator is told of a token."""
    return {
        "id": row.id.decode(),
        "name": row.name.decode(),
        "roles": row.roles.decode().split(","),
        "scopes": None if row.scopes is None else orjson.loads(row.scopes),
        "state": _state(row, now_ms),
        "created_at": utc_text(row.created_at),
        "expires_at": None if row.expires_at is None else utc_text(row.expires_at),
        "ends_at": None if row.ends_at == NEVER else utc_text(row.ends_at),
        "revoked_at": None if row.revoked_at is None else utc_text(row.revoked_at),
        "successor": None if row.successor is None else row.successor.decode(),
    }


def _state(row: TokenRow, now_ms: int) -> str:
    if row.revoked_at is not None:
        return "revoked"
    if has_ended(row, now_ms):
        return "expired"
    return "active" if row.successor is None else "rotated"


def _members(body: bytes, names: set[str]) -> MemberReader[Refused]:
    try:
        value = parse(body)
    except JsonError as error:
        raise _invalid(str(error)) from None
    if not isinstance(value, dict):
        raise _invalid("The body must be a JSON object.")
    unknown = sorted(value.keys() - names)
    if unknown:
        raise _invalid(f"The body has an unknown member; it may have {', '.join(sorted(names))}.")
    return MemberReader(value, lambda path, rule: _invalid(f"{path} {rule}."))


def _invalid(detail: str) -> Refused:
    return Refused("INVALID_REQUEST", detail)


def _digest(value: object) -> bytes | None:
    if not isinstance(value, str) or len(value) != 64:
        return None
    try:
        return bytes.fromhex(value)
    except ValueError:
        return None


def _texts(most: int) -> Callable[[object], list[str] | None]:
    def read(value: object) -> list[str] | None:
        if not isinstance(value, list) or not len(value) <= most:
            return None
        fits = all(isinstance(one, str) and len(one) <= MAX_SCOPE and is_utf8(one) for one in value)
        return value if fits else None

    return read


def _expiry(members: MemberReader[Refused]) -> int | None:
    return members.optional("expires_at", _time, _TIME_RULE)


def _time(value: object) -> int | None:
    try:
        ms = utc_ms(value) if isinstance(value, str) else -1
    except (ValueError, OverflowError):
        return None
    return ms if 0 <= ms <= LAST_MS else None
