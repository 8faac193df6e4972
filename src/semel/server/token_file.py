"""The token file: bearer tokens as SHA-256 hashes, never themselves, each with a name, roles and scopes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

from semel.server.principals import EVERY_SURFACE, Principal, Role, Scope

RESERVED = ("client:", "user:", "system:")
"""How callers are named by their kind: a token with such a name could be taken for somebody else."""

SURFACES = ("streams", "events", "jobs", "ledger", "deltas")


class TokenFileError(ValueError):
    """The token file cannot be used; the message says what to mend."""


def read_token_file(path: Path) -> dict[bytes, Principal]:
    """Principals by the hash of their token, from a TOML file with a `[[token]]` table each."""
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
    return tokens


def _entry(path: Path, entry: Mapping[str, Any]) -> tuple[bytes, Principal]:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise TokenFileError(f"{path}: every [[token]] needs a name.")
    if name.startswith(RESERVED):
        raise TokenFileError(f"{path}: the name {name!r} of a token may not begin with {', '.join(RESERVED)}.")
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
    except (KeyError, TypeError, ValueError) as error:
        raise TokenFileError(f"{path}: the token {name!r} needs sha256 (64 hex digits) and known roles.") from error
    if len(digest) != 32:
        raise TokenFileError(f"{path}: the sha256 of {name!r} has {len(digest)} bytes instead of 32.")
    scopes = [scope for text in entry.get("scopes", ()) for scope in _scopes(path, name, text)]
    return digest, Principal(name, "client", roles, tuple(scopes) if scopes else None)


def _scopes(path: Path, name: str, text: object) -> Iterator[Scope]:
    surface, colon, pattern = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or surface not in (*SURFACES, EVERY_SURFACE):
        known = ", ".join(SURFACES)
        raise TokenFileError(
            f"{path}: the scope {text!r} of {name!r} is not SURFACE:NAME or SURFACE:PREFIX*, "
            f"with a surface of {known}, or * for all."
        )
    stem, is_prefix = pattern.removesuffix("*"), pattern.endswith("*")
    yield Scope(surface, stem.encode(), is_prefix)
    # Events know their partitions by the normalized name alone, the other surfaces by its bytes as they are.
    if surface in ("events", EVERY_SURFACE) and normalize("NFC", stem) != stem:
        yield Scope("events", normalize("NFC", stem).encode(), is_prefix)
