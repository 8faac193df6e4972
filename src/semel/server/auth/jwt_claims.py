"""Claims of a verified JWT: principal, roles, scopes, and the time of validity.

Scopes follow one rule: if any of `allowed_partitions`, `allowed_partition_prefixes`, `gw` and `org` is present, the
token reaches only what they name, on every surface; if none is present, only its roles limit it. A claim of the wrong
type never counts as absent: the token is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from unicodedata import normalize

from semel.kernel.json.text import Json
from semel.server.auth.principals import AccessScope, Principal, Role, ScopeRules

MAX_TOKEN_BYTES = 8_192
"""Maximum size of a JWT in bytes."""
MAX_NAMES = 1_000
"""Maximum number of names in one claim that is a list."""
MAX_IDENTITY_BYTES = 512
"""Maximum size of `sub` and `client_id` in bytes."""
LEEWAY_MS = 10_000
"""Allowed clock difference to the issuer in milliseconds, for `nbf` and `iat`."""

_LAST_SECOND = 253_402_300_799  # of the year 9999: a greater number is a mistake, mostly milliseconds

_ROLES: Mapping[str, frozenset[Role]] = {
    **{role.value: frozenset({role}) for role in Role},
    "client": frozenset({Role.READ, Role.WRITE}),  # the name that issuers use for clients of deltas
}
NAMESPACES = "namespaces"
_NOT_TOLD = frozenset({"gw", "role", NAMESPACES})
"""Claims about the rights of a token; the other text claims describe its holder."""


class KeyFileError(ValueError):
    """The key file is invalid; the message says what to correct."""


class ClaimError(ValueError):
    """A claim is missing or invalid. The message names the claim but not its value."""


class ClaimedIdentity(NamedTuple):
    """A principal, and the time before which its token is not valid."""

    principal: Principal
    not_before_ms: int


def read_claims(claims: Mapping[str, Json], rules: ScopeRules) -> ClaimedIdentity:
    """The principal that the claims describe; whether the token is valid now is checked elsewhere."""
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
        namespaces=claimed_namespaces(claims),
    )
    return ClaimedIdentity(principal, max(early, default=0))


def claimed_namespaces(claims: Mapping[str, Json]) -> frozenset[str] | None:
    """The namespaces in which a token is known; None without the claim. Raises `ClaimError`."""
    return frozenset(_names(claims, NAMESPACES, may_be_one=True)) if NAMESPACES in claims else None


def told_claims(claims: Mapping[str, Json]) -> Mapping[str, tuple[str, ...]]:
    """The claims about the holder: every claim that is a string or a list of strings."""
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


def _scopes(claims: Mapping[str, Json], rules: ScopeRules) -> tuple[AccessScope, ...] | None:
    scopes: list[AccessScope] = []
    is_limited = False
    for surface, (claim, is_prefix, may_be_one) in rules.claims:
        if claim not in claims:
            continue
        is_limited = True
        for name in _names(claims, claim, may_be_one=may_be_one):
            compared = normalize("NFC", name) if surface in rules.normalized else name
            scopes.append(AccessScope(surface, _encoded(compared, claim), is_prefix))
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
    except UnicodeEncodeError:  # a lone surrogate, which can only arrive as an escape
        raise ClaimError(claim) from None
