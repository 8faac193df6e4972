"""Access rules of deltas: client tokens (JWT), roles, gateways of a credential, and client ids of a credential.

Client tokens are signed with a secret of this surface alone, and each is valid for one gateway. The header is `{"alg":
"HS256", "typ": "JWT"}` and nothing else. Two secrets are valid during a rotation. A token that was signed with neither
of them is passed on to the other credentials of the server.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from semel.engine.caller import WaitingCaller
from semel.kernel.clock import World
from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.kernel.json.parse import parse
from semel.kernel.json.text import Json, JsonError
from semel.server.auth.jwt_claims import (
    MAX_IDENTITY_BYTES,
    MAX_TOKEN_BYTES,
    ClaimError,
    claimed_namespaces,
    told_claims,
)
from semel.server.auth.principals import DEVELOPER, AccessScope, Principal, Principals, Role, unauthorized
from semel.server.context import Context
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.server.quotas.accounts import Quotas
from semel.server.settings import settings_of
from semel.surfaces.deltas.settings import DeltasSettings

SURFACE = "deltas"
CLIENT, ADMIN = "client", "admin"

_HEADER = {"alg": "HS256", "typ": "JWT"}
_ROLES = {CLIENT: frozenset({Role.READ, Role.WRITE}), ADMIN: frozenset(Role)}
_UNFIT = "This token does not do: sub and gw must be texts and not empty, exp a number, and role, if any, a text."
_FOREVER_S = 253_402_300_799
"""The end of the year 9999, in seconds since 1970: a later expiry counts as no expiry."""


class DeltaClientTokens:
    """Verifies the JWTs of delta clients; implements `principals.Verifier`."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [secret.encode() for secret in secrets if secret]

    def can_read(self, token: bytes) -> bool:
        """Whether a token has the accepted header and the signature of one of the secrets."""
        if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
            return False
        signed, _, signature = token.rpartition(b".")
        expected = (urlsafe_b64encode(hmac.digest(secret, signed, "sha256")) for secret in self._secrets)
        # Compare all secrets, each in constant time, so that the duration reveals nothing about them.
        held = [hmac.compare_digest(signature, one.rstrip(b"=")) for one in expected]
        return any(held) and _decoded(signed.partition(b".")[0]) == _HEADER

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The principal of a token. Raise if its claims are incomplete or it has expired."""
        claims = _decoded(token.split(b".")[1]) if self.can_read(token) else None
        principal = _principal(claims) if isinstance(claims, dict) else None
        if principal is None:
            # The caller knows the secret, so the reason may be told.
            raise unauthorized(_UNFIT, b"invalid_token")
        assert principal.expires_at_ms is not None, "every token has an end"
        if principal.expires_at_ms <= now_ms:
            raise unauthorized("This token has expired.", b"invalid_token")
        return principal


def _decoded(part: bytes) -> Json:
    """The JSON value in one part of a token; None if it is invalid."""
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
    try:
        namespaces = claimed_namespaces(claims)
    except ClaimError:
        return None
    return Principal(
        name=subject,
        kind="user",
        roles=_ROLES.get(role, frozenset()),
        scopes=(AccessScope(SURFACE, gateway.encode(), is_prefix=False),),
        expires_at_ms=int(max(0, min(expires_s, _FOREVER_S)) * 1_000),
        claims=told_claims(claims),
        namespaces=namespaces,
    )


def _name(value: Json) -> str | None:
    """The value if it is a non-empty string that UTF-8 can encode and that is short enough to store; else None."""
    try:
        is_name = isinstance(value, str) and 0 < len(value.encode()) <= MAX_IDENTITY_BYTES
    except UnicodeEncodeError:  # an unpaired surrogate
        return None
    return str(value) if is_name else None


FORBIDDEN = 403


class DeltaGate(NamedTuple):
    """The credentials of this surface; implements `admission.Gate`."""

    principals: Principals
    world: World
    meter: Meter
    audit: AuditLog
    quotas: Quotas


class DeltaCaller(NamedTuple):
    """The principal of a call, the connection that waits for the answer, and the origin for the audit log."""

    principal: Principal
    caller: WaitingCaller
    where: Mapping[str, str]
    is_known: bool
    """Whether the server has credentials configured."""

    @property
    def is_named(self) -> bool:
        """Whether the caller has a name of its own: not the holder of the shared token, and not development mode."""
        return self.is_known and self.principal.actor != DEVELOPER.actor

    @property
    def counted_as(self) -> tuple[str, str]:
        """The key of the caller's limits: its name, or its address if it has no name of its own."""
        return self.principal.actor, "" if self.is_named else self.where.get("remote_addr", "")

    @property
    def claims(self) -> Mapping[str, tuple[str, ...]]:
        """The claims of the caller, for sync rules."""
        if self.principal.claims or not self.is_named:
            return self.principal.claims
        return {"sub": (self.principal.name,)}

    @property
    def authors(self) -> tuple[str, ...] | None:
        """Texts of the client ids that the caller may push as; None is any."""
        principal = self.principal
        if not self.is_known or principal.has(Role.ADMIN):
            return None
        return tuple(dict.fromkeys((json_text(principal.name), json_text(principal.client_id))))

    def speaks_for(self, client: str) -> bool:
        """Whether the caller may push as this client id. Only then is the client's progress stored."""
        return self.authors is None or client in self.authors


def gate_of(context: Context) -> DeltaGate:
    """The server's credentials, and those of this surface if it has a secret."""
    settings = settings_of(context.settings, DeltasSettings)
    principals = context.principals
    secrets = [secret for secret in (settings.deltas_jwt_secret, settings.deltas_jwt_secret_next) if secret]
    if secrets:
        principals = principals.besides(DeltaClientTokens(secrets))
    return DeltaGate(principals, context.world, context.meter, context.audit, context.quotas)


def needs_role(principal: Principal, role: Role, gateway: str | None) -> None:
    """Refuse a caller without the role or without a scope for the gateway. None: the call is not about one gateway."""
    if not principal.has(role):
        raise Refused("deltas:AUTH_ERROR", f"This needs the role {role.value}.", own_status=FORBIDDEN)
    if gateway is not None and not principal.may(role, SURFACE, gateway.encode()):
        raise Refused("deltas:AUTH_ERROR", "This credential is not for this gateway.", own_status=FORBIDDEN)
