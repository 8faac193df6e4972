"""Claims of a verified JWT: principal, roles, scopes, and the time of validity.

One rule for scopes: if any of `allowed_partitions`, `allowed_partition_prefixes`, `gw` and `org` is present, the token
reaches what they name and nothing else, on every surface; if none is, its roles alone limit it. A claim of the wrong
type never counts as absent: the token is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from unicodedata import normalize

from semel.kernel.json_text import Json
from semel.server.principals import Principal, Role, Scope, ScopeRules

MAX_TOKEN_BYTES = 8_192
"""Length of a JWT."""
MAX_NAMES = 1_000
"""Names in one claim that is a list."""
MAX_IDENTITY_BYTES = 512
"""Length of `sub` and `client_id`."""
LEEWAY_MS = 10_000
"""Allowed clock difference to the issuer, for `nbf` and `iat`."""

_LAST_SECOND = 253_402_300_799  # of the year 9999: more is a mistake, for the most part milliseconds

_ROLES: Mapping[str, frozenset[Role]] = {
    **{role.value: frozenset({role}) for role in Role},
    "client": frozenset({Role.READ, Role.WRITE}),  # as the issuers of clients of deltas call it
}
_NOT_TOLD = frozenset({"gw", "role"})
"""Claims about the rights of a token; the other text claims describe its holder."""


class KeyFileError(ValueError):
    """The key file cannot be used; the message says what to mend."""


class ClaimError(ValueError):
    """A claim is missing, or is not what it should be. The message names the claim and not its value."""


class Claimed(NamedTuple):
    """A principal, and the time before which its token is not valid."""

    principal: Principal
    not_before_ms: int


def read_claims(claims: Mapping[str, Json], rules: ScopeRules) -> Claimed:
    """The caller that the claims describe; whether that is the case now is not judged."""
    subject = _identity(claims, "sub")
    expires_at_ms = _time_ms(claims, "exp")
    early = [_time_ms(claims, name) - LEEWAY_MS for name in ("nbf", "iat") if name in claims]
    principal = Principal(
        name=subject,
        kind="user",
        roles=_roles(claims),
        scopes=_scopes(claims, rules),
        client_id=_identity(claims, "client_id") if "client_id" in claims else subject,
        expires_at_ms=expires_at_ms,
        claims=told_claims(claims),
    )
    return Claimed(principal, max(early, default=0))


def told_claims(claims: Mapping[str, Json]) -> Mapping[str, tuple[str, ...]]:
    """The claims about the holder: each that is text, or a list of texts."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in claims.items():
        values = value if isinstance(value, list) else [value]
        if name not in _NOT_TOLD and all(isinstance(one, str) for one in values):
            found[name] = tuple(one for one in values if isinstance(one, str))
    return found


def is_for(claims: Mapping[str, Json], issuer: str, audience: str) -> bool:
    """Whether issuer and audience match. A token with an audience is refused if none is configured."""
    if issuer and claims.get("iss") != issuer:
        return False
    if not audience:
        return "aud" not in claims
    meant = claims.get("aud")
    return audience in meant if isinstance(meant, list) else meant == audience


def _identity(claims: Mapping[str, Json], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 1 <= len(_encoded(value, name)) <= MAX_IDENTITY_BYTES:
        raise ClaimError(name)
    return value


def _time_ms(claims: Mapping[str, Json], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_SECOND:
        raise ClaimError(name)
    return int(value * 1_000)


def _roles(claims: Mapping[str, Json]) -> frozenset[Role]:
    if "role" not in claims:
        return frozenset({Role.READ, Role.WRITE})
    return frozenset(role for name in _names(claims, "role", may_be_one=True) for role in _ROLES.get(name, ()))


def _scopes(claims: Mapping[str, Json], rules: ScopeRules) -> tuple[Scope, ...] | None:
    scopes: list[Scope] = []
    is_limited = False
    for surface, (claim, is_prefix, may_be_one) in rules.claims:
        if claim not in claims:
            continue
        is_limited = True
        for name in _names(claims, claim, may_be_one=may_be_one):
            compared = normalize("NFC", name) if surface in rules.normalized else name
            scopes.append(Scope(surface, _encoded(compared, claim), is_prefix))
    return tuple(scopes) if is_limited else None


def _names(claims: Mapping[str, Json], claim: str, *, may_be_one: bool) -> list[str]:
    value = claims[claim]
    if may_be_one and isinstance(value, str):
        return [value]
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise ClaimError(claim)
    names = [name for name in value if isinstance(name, str)]
    if len(names) != len(value):
        raise ClaimError(claim)
    return names


def _encoded(text: str, claim: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can bring
        raise ClaimError(claim) from None
