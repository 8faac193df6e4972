"""Who is asking: one resolver, one `Principal`, for every surface.

Without credentials the server is for development: it listens on loopback only and everyone is `default`. With a token
file, a key file for JWTs or both, a caller without a token that one of them vouches for is refused. A bearer string is
looked up among the hashed tokens first; what is not there and looks like a JWT is verified. A token reaches no log, no
error and no URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import NamedTuple, Protocol

from semel.kernel.errors import Refused


class Role(Enum):
    """What a principal may do. `admin` may do everything."""

    READ = "read"
    WRITE = "write"
    WORK = "work"
    ADMIN = "admin"


EVERY_SURFACE = "*"


class Scope(NamedTuple):
    """Names on a surface that a principal may reach: one name, or all that begin so."""

    surface: str
    name: bytes
    is_prefix: bool


class _Reach(NamedTuple):
    """The scopes of one surface, ready to be asked: a thousand names cost one look-up."""

    names: frozenset[bytes]
    prefixes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Principal:
    """A known caller. `scopes` of None is everything; else it is limited to what they name, which may be nothing."""

    name: str
    kind: str
    roles: frozenset[Role]
    scopes: tuple[Scope, ...] | None = None
    client_id: str = ""
    """The origin that its writes carry; its name, unless its credential says otherwise."""
    expires_at_ms: int | None = None
    """From this time on its credential is void; None for one without an end."""
    _by_surface: Mapping[str, _Reach] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort the scopes by surface, once."""
        if not self.client_id:
            object.__setattr__(self, "client_id", self.name)
        scopes = self.scopes or ()
        surfaces = {EVERY_SURFACE, *(scope.surface for scope in scopes)}
        object.__setattr__(self, "_by_surface", {surface: _reach(scopes, surface) for surface in surfaces})

    @property
    def actor(self) -> str:
        """How the caller is named in what it leaves behind."""
        return f"{self.kind}:{self.name}"

    def may(self, role: Role, surface: str, name: bytes) -> bool:
        """Whether it may do that to a thing of this name."""
        if not self.has(role):
            return False
        if self.scopes is None:
            return True
        names, prefixes = self._on(surface)
        return name in names or name.startswith(prefixes)

    def has(self, role: Role) -> bool:
        """Whether it has a role, or the one that has them all."""
        return role in self.roles or Role.ADMIN in self.roles

    def reach(self, surface: str) -> list[tuple[bytes, bool]]:
        """The names it is limited to on a surface: each a prefix (True) or one name; the empty prefix is everything."""
        if self.scopes is None:
            return [(b"", True)]
        names, prefixes = self._on(surface)
        return [*((name, False) for name in sorted(names)), *((prefix, True) for prefix in prefixes)]

    def _on(self, surface: str) -> _Reach:
        found = self._by_surface.get(surface)
        return self._by_surface[EVERY_SURFACE] if found is None else found


def _reach(scopes: tuple[Scope, ...], surface: str) -> _Reach:
    here = [scope for scope in scopes if scope.surface in (surface, EVERY_SURFACE)]
    return _Reach(
        frozenset(scope.name for scope in here if not scope.is_prefix),
        tuple(sorted({scope.name for scope in here if scope.is_prefix})),
    )


DEVELOPER = Principal("default", "client", frozenset(Role))


class Verifier(Protocol):
    """Judges tokens that carry their own claims."""

    def can_read(self, token: bytes) -> bool:
        """Whether a token has the shape of one; nothing is said of its truth."""

    def verify(self, token: bytes, now_ms: int) -> Principal:
        """The caller that a token names; `Refused` for one that is not accepted at this time."""


class Principals:
    """Resolves the credential of a caller. With no way to know anyone, everyone is the developer."""

    def __init__(self, tokens: Mapping[bytes, Principal] | None = None, verifier: Verifier | None = None) -> None:
        self._tokens = dict(tokens or {})
        self._verifier = verifier

    @property
    def are_known(self) -> bool:
        """Whether credentials are needed."""
        return bool(self._tokens) or self._verifier is not None

    def resolve(self, authorization: bytes | None, now_ms: int) -> Principal:
        """The caller behind an Authorization header."""
        if not self.are_known:
            return DEVELOPER
        if authorization is None:
            raise unauthorized("Send a bearer token in the Authorization header.")
        kind, _, token = authorization.partition(b" ")
        if kind.lower() != b"bearer":
            raise unauthorized("The Authorization header must carry a bearer token.")
        return self.resolve_token(token.strip(), now_ms)

    def resolve_token(self, token: bytes, now_ms: int) -> Principal:
        """The caller behind a token, however it came here."""
        if not self.are_known:
            return DEVELOPER
        # Looking up a hash leaks nothing about the token by its timing.
        known = self._tokens.get(sha256(token).digest())
        if known is not None:
            return known
        if self._verifier is not None and self._verifier.can_read(token):
            return self._verifier.verify(token, now_ms)
        raise unauthorized("This token is not known here.")


def unauthorized(detail: str, error: bytes = b"") -> Refused:
    """The refusal of a credential; `error` is its name for clients, where there is one."""
    challenge = b'Bearer error="%s", error_description="%s"' % (error, detail.encode()) if error else b"Bearer"
    return Refused("UNAUTHORIZED", detail, ((b"www-authenticate", challenge),))
