"""Name, roles and scopes of a token: the same rules for the token file and for tokens in the store."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import normalize

from semel.kernel.namespace import NamespaceNameError, check_name
from semel.server.auth.principals import EVERY_SURFACE, AccessScope, Principal, Role, ScopeRules

RESERVED = ("client:", "user:", "system:")
"""Prefixes that mark the kind of a caller: a token with such a name could be mistaken for another caller."""
DEFAULT_ROLES = ["read", "write"]


class TokenFieldError(ValueError):
    """A field of a token is invalid. The message says what to correct; `part` names the field without its content."""

    def __init__(self, message: str, part: str) -> None:
        super().__init__(message)
        self.part = part


def read_holder(rules: ScopeRules, name: str, roles: object, scopes: object) -> Principal:
    """The principal of a token; without scopes it reaches everything. Raises `TokenFieldError`."""
    if name.startswith(RESERVED):
        raise TokenFieldError(f"the name {name!r} of a token may not begin with {', '.join(RESERVED)}.", "name")
    if not isinstance(roles, list) or not roles or not (scopes is None or (isinstance(scopes, list) and scopes)):
        what = f"roles and scopes of {name!r} must be non-empty lists; omit scopes to allow all."
        raise TokenFieldError(what, "list of roles or scopes")
    try:
        granted = frozenset(Role(role) for role in roles)
    except (TypeError, ValueError) as error:
        known = ", ".join(one.value for one in Role)
        raise TokenFieldError(f"the roles of {name!r} must be some of {known}.", "role") from error
    reach = None if scopes is None else tuple(one for text in scopes for one in _scopes(rules, name, text))
    return Principal(name, "client", granted, reach)


def read_namespaces(name: str, given: object) -> frozenset[str]:
    """The namespaces that know a token. Raises `TokenFieldError`."""
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        what = f"namespaces of {name!r} must be a non-empty list of names; omit it to allow all."
        raise TokenFieldError(what, "namespace")
    try:
        return frozenset(map(check_name, given))
    except NamespaceNameError as error:
        raise TokenFieldError(f"namespaces of {name!r}: {error}", "namespace") from error


def _scopes(rules: ScopeRules, name: str, text: object) -> Iterator[AccessScope]:
    surface, colon, pattern = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or surface not in (*rules.surfaces, EVERY_SURFACE):
        known = ", ".join(rules.surfaces)
        what = (
            f"the scope {text!r} of {name!r} is not SURFACE:NAME or SURFACE:PREFIX*, "
            f"with a surface of {known}, or * for all."
        )
        raise TokenFieldError(what, "scope")
    stem, is_prefix = pattern.removesuffix("*"), pattern.endswith("*")
    yield AccessScope(surface, stem.encode(), is_prefix)
    # Some surfaces compare names in Unicode normal form, the others by their bytes.
    if normalize("NFC", stem) != stem:
        for normalized in sorted(rules.normalized) if surface == EVERY_SURFACE else rules.normalized & {surface}:
            yield AccessScope(normalized, normalize("NFC", stem).encode(), is_prefix)
