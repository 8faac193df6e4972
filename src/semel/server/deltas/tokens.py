"""JWTs of deltas clients: signed with a secret of this surface alone, each valid for one gateway.

The header is `{"alg": "HS256", "typ": "JWT"}` and nothing else. Two secrets hold while one is replaced by the next. A
token that neither of them has signed is none of ours: the server's other credentials are asked about it.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence

from semel.kernel.json_error import JsonError
from semel.kernel.json_parse import parse
from semel.kernel.json_text import Json
from semel.server.jwt_claims import MAX_IDENTITY_BYTES, MAX_TOKEN_BYTES, told_claims
from semel.server.principals import Principal, Role, Scope, unauthorized

SURFACE = "deltas"
CLIENT, ADMIN = "client", "admin"

_HEADER = {"alg": "HS256", "typ": "JWT"}
_ROLES = {CLIENT: frozenset({Role.READ, Role.WRITE}), ADMIN: frozenset(Role)}
_UNFIT = "This token does not do: sub and gw must be texts and not empty, exp a number, and role, if any, a text."
_FOREVER_S = 253_402_300_799
"""The end of the year 9999: a later expiry counts as none."""


class ClientTokens:
    """Implements `principals.Verifier`."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [secret.encode() for secret in secrets if secret]

    def can_read(self, token: bytes) -> bool:
        """Whether one of the secrets has signed it, under the one header that is taken."""
        if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
            return False
        signed, _, signature = token.rpartition(b".")
        expected = (urlsafe_b64encode(hmac.digest(secret, signed, "sha256")) for secret in self._secrets)
        # All of them are compared, in constant time each: the duration reveals nothing of the secrets.
        held = [hmac.compare_digest(signature, one.rstrip(b"=")) for one in expected]
        return any(held) and _decoded(signed.partition(b".")[0]) == _HEADER

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The caller that a token names, if its claims are whole and it has not expired."""
        claims = _decoded(token.split(b".")[1]) if self.can_read(token) else None
        principal = _principal(claims) if isinstance(claims, dict) else None
        if principal is None:
            # Who has signed it may know what is wrong with it.
            raise unauthorized(_UNFIT, b"invalid_token")
        assert principal.expires_at_ms is not None, "every token has an end"
        if principal.expires_at_ms <= now_ms:
            raise unauthorized("This token has expired.", b"invalid_token")
        return principal


def _decoded(part: bytes) -> Json:
    """The JSON in one part of a token; None if it is invalid."""
    try:
        return parse(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, JsonError):
        return None


def _principal(claims: Mapping[str, Json]) -> Principal | None:
    """The principal of the claims; None when a required claim is missing or invalid."""
    subject, gateway = _name(claims.get("sub")), _name(claims.get("gw"))
    expires_s, role = claims.get("exp"), claims.get("role", CLIENT)
    if subject is None or gateway is None or not isinstance(role, str):
        return None
    if isinstance(expires_s, bool) or not isinstance(expires_s, int | float):
        return None
    return Principal(
        name=subject,
        kind="user",
        roles=_ROLES.get(role, frozenset()),
        scopes=(Scope(SURFACE, gateway.encode(), is_prefix=False),),
        expires_at_ms=int(max(0, min(expires_s, _FOREVER_S)) * 1_000),
        claims=told_claims(claims),
    )


def _name(value: Json) -> str | None:
    """A text that is there, can be encoded and is short enough to be kept."""
    try:
        is_name = isinstance(value, str) and 0 < len(value.encode()) <= MAX_IDENTITY_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return str(value) if is_name else None
