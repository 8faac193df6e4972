"""Who may do what in the ledger, and as whom: roles, the places a credential reaches, its client ids, its actor."""

from __future__ import annotations

from semel.contracts.ledger.model import Place
from semel.contracts.ledger.refusals import RefusedLedger
from semel.server.principals import Principal, Principals, Role

SURFACE = "ledger"
API_KEY = b"x-api-key"
"""A header that carries a token here, besides those of every surface."""
ANONYMOUS = "client:anonymous"


def actor_of(principals: Principals, principal: Principal, *, has_token: bool) -> str:
    """As whom a caller writes; one without a credential is nobody, whatever it calls itself."""
    return principal.actor if principals.are_known and has_token else ANONYMOUS


def reaches(principal: Principal, role: Role, place: Place) -> bool:
    """Whether a caller may do that in a place; whoever may reach an organization by its bare slug reaches all of it."""
    if principal.scopes is None:
        return principal.has(role)
    org = b"%d" % place.org
    name = b"%d/%d" % place if place.vault else org + b"/"
    return principal.may(role, SURFACE, name) or principal.may(role, SURFACE, org)


def needs(principal: Principal, role: Role, place: Place | None) -> None:
    """Refuse a caller without the role, or one that does not reach the place; None is no place in particular."""
    if not principal.has(role):
        raise RefusedLedger("permission_denied", f"This needs the role {role.value}.", {"role": role.value})
    if place is not None and not reaches(principal, role, place):
        where = f"vault {place.vault} of organization {place.org}" if place.vault else f"organization {place.org}"
        raise RefusedLedger("permission_denied", f"This credential does not reach {where}.")


def needs_everything(principal: Principal) -> None:
    """Refuse whoever is no administrator of the whole ledger."""
    if not principal.has(Role.ADMIN) or (b"", True) not in principal.reach(SURFACE):
        message = "This needs the role admin over the whole ledger."
        raise RefusedLedger("permission_denied", message, {"role": Role.ADMIN.value})


def needs_client(principal: Principal, client: str) -> None:
    """Refuse a client id that is somebody else's: using it would use up their sequences."""
    if principal.has(Role.ADMIN) or client in (principal.name, principal.client_id):
        return
    if not client.startswith(f"{principal.name}/"):
        message = f"This credential may use the client ids {principal.name!r} and those that begin with its name and /."
        raise RefusedLedger("permission_denied", message, {"field": "clientId"})
