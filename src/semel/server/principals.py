"""Who is asking: one resolver, one `Principal`, for every surface.

Without credentials the server is for development: it listens on loopback only and everyone is `default`. With a token
file, a request without a known bearer token is refused. The file keeps SHA-256 hashes, never tokens, and a token
reaches no log, error or URL.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from semel.kernel.errors import Refused


class Role(Enum):
    """What a principal may do. `admin` may do everything."""

    READ = "read"
    WRITE = "write"
    WORK = "work"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """A known caller. `scopes` are patterns such as `streams:orders/*`; none means everything."""

    name: str
    kind: str
    roles: frozenset[Role]
    scopes: tuple[str, ...] = ()

    @property
    def actor(self) -> str:
        """How the caller is named in what it leaves behind."""
        return f"{self.kind}:{self.name}"

    def may(self, role: Role, surface: str, name: bytes) -> bool:
        """Whether it may do that to a thing of this name."""
        if not self.has(role):
            return False
        if not self.scopes:
            return True
        return any(name.startswith(one) if is_prefix else name == one for one, is_prefix in self.reach(surface))

    def has(self, role: Role) -> bool:
        """Whether it has a role, or the one that has them all."""
        return role in self.roles or Role.ADMIN in self.roles

    def reach(self, surface: str) -> list[tuple[bytes, bool]]:
        """The names it is limited to on a surface: each a prefix (True) or one name; the empty prefix is everything."""
        if not self.scopes:
            return [(b"", True)]
        patterns = [
            pattern for kind, _, pattern in (scope.partition(":") for scope in self.scopes) if kind in (surface, "*")
        ]
        return [(pattern.removesuffix("*").encode(), pattern.endswith("*")) for pattern in patterns]


DEVELOPER = Principal("default", "client", frozenset(Role))


class Principals:
    """Resolves the credential of a request. With no tokens at all, everyone is the developer."""

    def __init__(self, tokens: Mapping[bytes, Principal] | None = None) -> None:
        self._tokens = dict(tokens or {})

    @property
    def are_known(self) -> bool:
        """Whether credentials are needed."""
        return bool(self._tokens)

    def resolve(self, authorization: bytes | None) -> Principal:
        """The caller behind an Authorization header."""
        if not self._tokens:
            return DEVELOPER
        if authorization is None:
            raise _unauthorized("Send a bearer token in the Authorization header.")
        kind, _, token = authorization.partition(b" ")
        if kind.lower() != b"bearer":
            raise _unauthorized("The Authorization header must carry a bearer token.")
        # Looking up a hash leaks nothing about the token by its timing.
        known = self._tokens.get(sha256(token.strip()).digest())
        if known is None:
            raise _unauthorized("This token is not known here.")
        return known


def _unauthorized(detail: str) -> Refused:
    return Refused("UNAUTHORIZED", detail, ((b"www-authenticate", b"Bearer"),))


class TokenFileError(ValueError):
    """The token file cannot be used; the message says what to mend."""


def read_token_file(path: Path) -> Principals:
    """Principals from a TOML file with a `[[token]]` table each: name, sha256, roles, and scopes if it is limited."""
    try:
        entries = tomllib.loads(path.read_text("utf-8")).get("token", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TokenFileError(f"The token file {path} cannot be read: {error}") from error
    tokens: dict[bytes, Principal] = {}
    for entry in entries:
        digest, principal = _entry(path, entry)
        if digest in tokens:
            raise TokenFileError(f"{path}: {principal.name} has the token of {tokens[digest].name}.")
        tokens[digest] = principal
    if not tokens:
        raise TokenFileError(f"{path} names no [[token]]: add one, or start without a token file.")
    return Principals(tokens)


def _entry(path: Path, entry: Mapping[str, Any]) -> tuple[bytes, Principal]:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise TokenFileError(f"{path}: every [[token]] needs a name.")
    unknown = sorted(set(entry) - {"name", "sha256", "roles", "scopes"})
    if unknown:
        raise TokenFileError(f"{path}: the token {name!r} has the unknown field {unknown[0]!r}.")
    if not all(isinstance(entry.get(field, ["-"]), list) and entry.get(field, ["-"]) for field in ("roles", "scopes")):
        raise TokenFileError(
            f"{path}: roles and scopes of {name!r} are lists with something in them; leave out scopes for all."
        )
    try:
        digest = bytes.fromhex(entry["sha256"])
        roles = frozenset(Role(role) for role in entry.get("roles", ["read", "write"]))
        scopes = tuple(str(scope) for scope in entry.get("scopes", []))
    except (KeyError, TypeError, ValueError) as error:
        raise TokenFileError(f"{path}: the token {name!r} needs sha256 (64 hex digits) and known roles.") from error
    if len(digest) != 32:
        raise TokenFileError(f"{path}: the sha256 of {name!r} has {len(digest)} bytes instead of 32.")
    return digest, Principal(name, "client", roles, scopes)
