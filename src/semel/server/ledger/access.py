"""Authorization for the ledger: roles, places that a credential reaches, client ids and actor."""

from __future__ import annotations

from semel.contracts.ledger.model import Place
from semel.contracts.ledger.refusals import RefusedLedger
from semel.server.principals import Principal, Principals, Role

SURFACE = "ledger"
API_KEY = b"x-api-key"
"""A header that carries a token here, besides those of every surface."""
ANONYMOUS = "client:anonymous"
USER = "user"
"""The kind of callers with a JWT; no token has a name with this prefix."""


def actor_of(principals: Principals, principal: Principal, *, has_token: bool) -> str:
    """The actor that a caller writes as; without a credential it is anonymous, whatever it calls itself."""
    return principal.actor if principals.are_known and has_token else ANONYMOUS


def reaches(principal: Principal, role: Role, place: Place) -> bool:
    """Whether a caller has a role in a place; a scope of the bare slug of an organization reaches all of it."""
    if principal.scopes is None:
        return principal.has(role)
    org = b"%d" % place.org
    name = b"%d/%d" % place if place.vault else org + b"/"
    return principal.may(role, SURFACE, name) or principal.may(role, SURFACE, org)


def needs(principal: Principal, role: Role, place: Place | None) -> None:
    """Refuse a caller without the role, or whose scopes do not reach the place; None is no place in particular."""
    if not principal.has(role):
        raise RefusedLedger("permission_denied", f"This needs the role {role.value}.", {"role": role.value})
    if place is not None and not reaches(principal, role, place):
        where = f"vault {place.vault} of organization {place.org}" if place.vault else f"organization {place.org}"
        raise RefusedLedger("permission_denied", f"This credential does not reach {where}.")


def needs_everything(principal: Principal) -> None:
    """Refuse a caller that is not an administrator of the whole ledger."""
    if not principal.has(Role.ADMIN) or (b"", True) not in principal.reach(SURFACE):
        message = "This needs the role admin over the whole ledger."
        raise RefusedLedger("permission_denied", message, {"role": Role.ADMIN.value})


def needs_client(principal: Principal, client: str, owner: str | None) -> None:
    """Refuse the client id of another caller: using it would use up that caller's sequences.

    `owner` is the name of the token that the id belongs to; None when it belongs to none.
    """
    if principal.has(Role.ADMIN):
        return
    if principal.kind != USER:
        is_own, own = owner == principal.name, f"{principal.name!r} and those that begin with it and /"
    else:
        subject = user_client(principal.name)
        is_own, own = _is_of_user(principal, client, owner, subject), f"{subject!r} and those that begin with it and /"
    if not is_own:
        message = f"This credential may use the client ids {own}, unless another caller has claimed them."
        raise RefusedLedger("permission_denied", message, {"field": "clientId"})


def user_client(subject: str) -> str:
    """The client id that is a user's alone. A slash in the subject is escaped: `a/b` is no part of `a`."""
    return f"{USER}:{subject.replace('%', '%25').replace('/', '%2F')}"


def _is_of_user(principal: Principal, client: str, owner: str | None, subject: str) -> bool:
    if client == subject or client.startswith(f"{subject}/"):
        return True
    # What the claims say is taken as it is, but not for an id that is a token's or another user's.
    is_free = owner is None and not client.startswith(f"{USER}:")
    return is_free and client in (principal.name, principal.client_id)
