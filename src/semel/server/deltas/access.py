"""Authorization for deltas: roles, gateways that a credential reaches, and client ids that it may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semel.contracts.deltas.refusals import RefusedDeltas
from semel.engine.engine import Caller
from semel.kernel.delta_id import json_text
from semel.kernel.world import World
from semel.server.audit import AuditLog
from semel.server.context import Context
from semel.server.deltas.tokens import SURFACE, ClientTokens
from semel.server.meter import Meter
from semel.server.principals import DEVELOPER, Principal, Principals, Role
from semel.server.settings import settings_of
from semel.surfaces.deltas.settings import DeltasSettings

FORBIDDEN = 403


class SurfaceGate(NamedTuple):
    """Implements `admission.Gate`, for this surface alone."""

    principals: Principals
    world: World
    meter: Meter
    audit: AuditLog


class Asked(NamedTuple):
    """A call's principal, its caller that waits for the answer, and its origin for the audit log."""

    principal: Principal
    caller: Caller
    where: Mapping[str, str]
    is_known: bool
    """Whether there are credentials at all."""

    @property
    def is_named(self) -> bool:
        """Whether the caller has a name of its own: not the holder of the shared token, and not development mode."""
        return self.is_known and self.principal.actor != DEVELOPER.actor

    @property
    def counted_as(self) -> tuple[str, str]:
        """Whose limits it is under: its own, or those of its address if it has no name of its own."""
        return self.principal.actor, "" if self.is_named else self.where.get("remote_addr", "")

    @property
    def claims(self) -> Mapping[str, tuple[str, ...]]:
        """The claims of the caller, for sync rules."""
        if self.principal.claims or not self.is_named:
            return self.principal.claims
        return {"sub": (self.principal.name,)}

    @property
    def authors(self) -> tuple[str, ...] | None:
        """Texts of the client ids that it may push with and for; None is any."""
        principal = self.principal
        if not self.is_known or principal.has(Role.ADMIN):
            return None
        return tuple(dict.fromkeys((json_text(principal.name), json_text(principal.client_id))))

    def speaks_for(self, client: str) -> bool:
        """Whether it may push with a client id: only then the progress of that client is stored."""
        return self.authors is None or client in self.authors


def gate_of(context: Context) -> SurfaceGate:
    """The server's credentials, and those of this surface if it has a secret."""
    settings = settings_of(context.settings, DeltasSettings)
    principals = context.principals
    secrets = [secret for secret in (settings.deltas_jwt_secret, settings.deltas_jwt_secret_next) if secret]
    if secrets:
        principals = principals.besides(ClientTokens(secrets))
    return SurfaceGate(principals, context.world, context.meter, context.audit)


def needs(principal: Principal, role: Role, gateway: str | None) -> None:
    """Refuse a caller without the role, or whose scopes do not reach the gateway; None is no gateway in particular."""
    if not principal.has(role):
        raise RefusedDeltas("AUTH_ERROR", f"This needs the role {role.value}.", FORBIDDEN)
    if gateway is not None and not principal.may(role, SURFACE, gateway.encode()):
        raise RefusedDeltas("AUTH_ERROR", "This credential is not for this gateway.", FORBIDDEN)
