"""Authentication of callers: one resolver and one `Principal` for every surface.

Without credentials the server is in development mode: it listens on loopback only and every caller is `default`.
Credentials are one configured token (which may be rotating), a token file, tokens in the store, keys for JWTs, or
several of these; then a caller whose token is unknown is refused. A bearer token is compared with the configured token
and its successor, then looked up among the hashed tokens; an unknown token that looks like a JWT is verified. A token
is never written to a log, an error or a URL; the outcome of its check is, for metrics and the audit log.

A request is checked against the tokens that are valid at that moment. A long-lived connection (a WebSocket or an event
stream) is checked when it begins: it watches the `Revocation` of its token and ends when the token is removed from the
file or changed in it, or has ended in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.kernel.namespace import DEFAULT
from semel.server.auth.key_refresh import KeyRefresh
from semel.server.auth.known_tokens import TokenTable
from semel.server.auth.revocation import Revocation, TokenChange
from semel.server.auth.rotation import Rotation, TokenStanding
from semel.server.auth.verifiers import SeveralVerifiers, Verifier
from semel.server.http.answer import Header


class Role(Enum):
    """A role of a principal. `admin` includes all others."""

    READ = "read"
    WRITE = "write"
    WORK = "work"
    ADMIN = "admin"


EVERY_SURFACE = "*"


class AccessScope(NamedTuple):
    """The names on a surface that a principal may access: one name, or all names with a prefix."""

    surface: str
    name: bytes
    is_prefix: bool


class ScopeClaim(NamedTuple):
    """A claim of a JWT that limits its holder to names on one surface."""

    claim: str
    is_prefix: bool = False
    """Whether the values are prefixes."""
    may_be_one: bool = False
    """Whether it may be one string instead of a list."""


class ScopeRules(NamedTuple):
    """What a scope may name; built from the registry of surfaces."""

    surfaces: tuple[str, ...]
    normalized: frozenset[str]
    """Surfaces that compare names in Unicode normal form NFC."""
    claims: tuple[tuple[str, ScopeClaim], ...]
    """Claims of a JWT, each with the surface that it limits."""


class _Reach(NamedTuple):
    """The scopes of one surface, prepared for one look-up however many names there are."""

    names: frozenset[bytes]
    prefixes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. `scopes` None allows everything; otherwise only the named things, which may be none."""

    name: str
    kind: str
    roles: frozenset[Role]
    scopes: tuple[AccessScope, ...] | None = None
    client_id: str = ""
    """The origin that its writes carry: its name, unless the credential names another."""
    expires_at_ms: int | None = None
    """When the credential expires, in milliseconds since 1970; None if it does not."""
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Further claims of the credential, for sync rules; a claim has one value or several."""
    namespaces: frozenset[str] | None = None
    """The namespaces in which the credential is known; None is all."""
    revocation: Revocation | None = field(default=None, repr=False, compare=False)
    """The revocation of the token; None if it cannot be revoked."""
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
        """The name of the caller in stored data."""
        return f"{self.kind}:{self.name}"

    def has_ended(self, now_ms: int) -> bool:
        """Whether the credential has expired or was revoked."""
        return self.seconds_left(now_ms) <= 0

    def seconds_left(self, now_ms: int) -> float:
        """Seconds until the credential expires; 0 if it was revoked, infinity if it does not expire."""
        if self.revocation is not None and self.revocation.has_come:
            return 0.0
        return float("inf") if self.expires_at_ms is None else (self.expires_at_ms - now_ms) / 1_000

    def may(self, role: Role, surface: str, name: bytes) -> bool:
        """Whether the principal may perform an action of this role on a name of this surface."""
        if not self.has(role):
            return False
        if self.scopes is None:
            return True
        names, prefixes = self._on(surface)
        return name in names or name.startswith(prefixes)

    def has(self, role: Role) -> bool:
        """Whether the principal has a role, or the admin role."""
        return role in self.roles or Role.ADMIN in self.roles

    def reach(self, surface: str) -> list[tuple[bytes, bool]]:
        """The names that the principal is limited to on a surface: pairs of name and whether it is a prefix; an empty
        prefix allows all.
        """
        if self.scopes is None:
            return [(b"", True)]
        names, prefixes = self._on(surface)
        return [*((name, False) for name in sorted(names)), *((prefix, True) for prefix in prefixes)]

    def _on(self, surface: str) -> _Reach:
        found = self._by_surface.get(surface)
        return self._by_surface[EVERY_SURFACE] if found is None else found


def _reach(scopes: tuple[AccessScope, ...], surface: str) -> _Reach:
    here = [scope for scope in scopes if scope.surface in (surface, EVERY_SURFACE)]
    return _Reach(
        frozenset(scope.name for scope in here if not scope.is_prefix),
        tuple(sorted({scope.name for scope in here if scope.is_prefix})),
    )


DEVELOPER = Principal("default", "client", frozenset(Role))


class AuthOutcome(Enum):
    """The outcome of the check of a credential."""

    FREE = "free"
    """No credential is needed, and none was checked."""
    ACTIVE = "active"
    NEXT = "next"
    """Valid: the successor of the token that is being rotated out."""
    MISSING = "missing_token"
    BAD = "bad_token"
    RETIRED = "retired_token"
    """The token that was rotated out."""


class KnownCaller(NamedTuple):
    """A principal, and the outcome of the check of its credential."""

    principal: Principal
    outcome: AuthOutcome


class UnauthorizedError(Refused):
    """The refusal of a credential, with the outcome of its check."""

    def __init__(self, detail: str, challenge: bytes, outcome: AuthOutcome) -> None:
        headers: tuple[Header, ...] = ((b"www-authenticate", challenge),)
        super().__init__("UNAUTHORIZED", detail, headers=headers)
        self.outcome = outcome


def unauthorized(detail: str, error: bytes = b"", outcome: AuthOutcome = AuthOutcome.BAD) -> UnauthorizedError:
    """The refusal of a credential; `error` is its name for clients, where there is one."""
    challenge = b'Bearer error="%s", error_description="%s"' % (error, detail.encode()) if error else b"Bearer"
    return UnauthorizedError(detail, challenge, outcome)


_TOKEN_FIELDS = (b"x-semel-token", b"x-sheratan-token")


def presented(fields: HeaderFields, more: tuple[bytes, ...] = ()) -> bytes | None:
    """The token of a request, in any of the three headers or in one of `more`; None without one.

    Two headers with different tokens are refused like a wrong token, because the intended one is unknown.
    """
    authorizations = fields.all(b"authorization")
    found = {token for name in (*_TOKEN_FIELDS, *more) for token in fields.all(name)}
    found.update(token for token in map(_bearer, authorizations) if token is not None)
    if len(found) > 1:
        raise unauthorized("The request carries two different tokens.")
    if authorizations and not found:
        raise unauthorized("The Authorization header must carry a bearer token.")
    return next(iter(found), None)


def _bearer(authorization: bytes) -> bytes | None:
    kind, _, token = authorization.partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else None


class Principals:
    """Authenticates callers. Without configured credentials every caller is the developer."""

    def __init__(
        self,
        tokens: Mapping[bytes, Principal] | None = None,
        verifier: Verifier | None = None,
        rotation: Rotation | None = None,
        is_needed: bool = True,
        namespace: str = DEFAULT,
    ) -> None:
        """Without `is_needed` a caller that sends no credential is the developer; a wrong credential is still
        refused. A credential that is limited to other namespaces than `namespace` is not known here.
        """
        self.namespace = namespace
        self.rotation = rotation
        self.key_refresh: KeyRefresh | None = None
        """None unless keys come from a URL."""
        self.tokens = TokenTable()
        """Shared with the `Principals` of surfaces that accept further credentials."""
        self._verifier = verifier
        self.replace_tokens(tokens or {})
        self._is_needed = is_needed
        # The holders of the active and of the next token are the same principal, but the active one expires: a
        # long-lived connection (a WebSocket or an event stream) ends with its token.
        self._holder = replace(DEVELOPER, expires_at_ms=rotation.until_ms if rotation else None)

    @property
    def are_known(self) -> bool:
        """Whether credentials are configured."""
        tokens = self.tokens
        return bool(tokens) or self._verifier is not None or self.rotation is not None or tokens.is_guarded

    def owner_of(self, name: str) -> str | None:
        """The token that owns a name: the token of that name, or of the part before a slash.

        The longest match wins: `a/b` and all names below it belong to the token `a/b`, and only the others to the token
        `a`.
        """
        while name not in self.tokens.names and (self.rotation is None or name != DEVELOPER.name):
            name, slash, _ = name.rpartition("/")
            if not slash:
                return None
        return name

    def besides(self, verifier: Verifier) -> Principals:
        """As this object, for a surface that also accepts JWTs of its own: there every caller needs a credential."""
        verifiers = [verifier] if self._verifier is None else [verifier, self._verifier]
        both = Principals(None, SeveralVerifiers(verifiers), self.rotation, namespace=self.namespace)
        both.tokens = self.tokens
        return both

    def within(self, namespace: str) -> Principals:
        """The same credentials as another namespace knows them; tokens of a store are known in its namespace alone."""
        same = Principals(None, self._verifier, self.rotation, self._is_needed, namespace)
        same.tokens = self.tokens.within()
        return same

    def replace_tokens(self, tokens: Mapping[bytes, Principal]) -> TokenChange:
        """Replace all tokens; a removed or changed token is revoked."""
        return self.tokens.replace(tokens)

    def reload_keys(self) -> bool:
        """Read the keys of JWTs again; False if there is no key file."""
        reload = getattr(self._verifier, "reload", None)
        if reload is None:
            return False
        reload()
        return True

    def judge(self, token: bytes | None, now_ms: int) -> KnownCaller:
        """The principal of a token and the outcome of the check; `UnauthorizedError` if the token is missing or not
        valid.
        """
        if not self.are_known or (token is None and not self._is_needed):
            return KnownCaller(DEVELOPER, AuthOutcome.FREE)
        if token is None:
            raise unauthorized("Send a bearer token in the Authorization header.", outcome=AuthOutcome.MISSING)
        digest = sha256(token).digest()
        rotating = None if self.rotation is None else self._rotating(self.rotation.standing(digest, now_ms))
        if rotating is not None:
            return rotating
        # The time of a look-up by hash reveals nothing about the token.
        known = self.tokens.get(digest)
        if known is None:
            return self._verified(token, now_ms)
        if known.expires_at_ms is not None and now_ms >= known.expires_at_ms:
            raise unauthorized("This token has expired.", b"invalid_token")
        return self._here(known)

    def _verified(self, token: bytes, now_ms: int) -> KnownCaller:
        """Check a token that is not known by its hash: a JWT."""
        if self._verifier is None or not self._verifier.can_read(token):
            raise unauthorized("This token is not known here.")
        return self._here(self._verifier.verify(token, now_ms))

    def _here(self, known: Principal) -> KnownCaller:
        if known.namespaces is not None and self.namespace not in known.namespaces:
            raise unauthorized("This token is not known in this namespace.")
        return KnownCaller(known, AuthOutcome.ACTIVE)

    def _rotating(self, standing: TokenStanding) -> KnownCaller | None:
        """Check a token against the configured token and its successor."""
        if standing is TokenStanding.RETIRED:
            raise unauthorized("This token is not known here.", outcome=AuthOutcome.RETIRED)
        if standing is TokenStanding.ACTIVE:
            return KnownCaller(self._holder, AuthOutcome.ACTIVE)
        return KnownCaller(DEVELOPER, AuthOutcome.NEXT) if standing is TokenStanding.NEXT else None
