"""The credentials that the settings name: the configured token, the token file and the keys of JWTs.

The token file holds bearer tokens as SHA-256 hashes, never the tokens themselves, each with a name, roles and scopes.
Files are read at the start and again on SIGHUP; if a file is invalid then, the loaded credentials stay in force.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from semel.server.auth.jwt_claims import KeyFileError
from semel.server.auth.key_refresh import KeyRefresh
from semel.server.auth.principals import Principal, Principals, ScopeRules
from semel.server.auth.rotation import Rotation, TokenStanding, rotation_of
from semel.server.auth.token_fields import DEFAULT_ROLES, TokenFieldError, read_holder, read_namespaces
from semel.server.auth.verifiers import Verifier
from semel.server.settings import ServerSettings

_PLACE = re.compile(r"\(at (line [0-9]+, column [0-9]+)\)")


class TokenFileError(ValueError):
    """The token file is invalid; the message says what to correct.

    `flaw` says the same without quoting the file, for a log that other people read.
    """

    def __init__(self, message: str, flaw: str) -> None:
        super().__init__(message)
        self.flaw = flaw


def read_token_file(path: Path, rules: ScopeRules) -> dict[bytes, Principal]:
    """Principals by the hash of their token, from a TOML file with a `[[token]]` table each."""
    try:
        entries = tomllib.loads(path.read_text("utf-8")).get("token", [])
    except OSError as error:
        told = f"The token file {path} cannot be read: {error.strerror}."
        raise TokenFileError(told, error.strerror or "it cannot be read") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        where = _PLACE.search(str(error))
        flaw = f"it is not valid TOML{'' if where is None else f' at {where[1]}'}"
        raise TokenFileError(f"The token file {path} cannot be read, it is not valid TOML: {error}.", flaw) from error
    tokens: dict[bytes, Principal] = {}
    for number, entry in enumerate(entries, start=1):
        digest, principal = _entry(path, rules, number, entry)
        if digest in tokens:
            told = f"{path}: {principal.name} and {tokens[digest].name} have the same token."
            raise TokenFileError(told, f"token {number} occurs twice")
        tokens[digest] = principal
    if not tokens:
        told = f"{path} has no [[token]]: add one, or start without a token file."
        raise TokenFileError(told, "it has no token")
    return tokens


def _entry(path: Path, rules: ScopeRules, number: int, entry: Mapping[str, Any]) -> tuple[bytes, Principal]:
    """Read one `[[token]]`; logs name it by its number only."""

    def refused(what: str, part: str) -> TokenFileError:
        return TokenFileError(f"{path}: {what}", f"token {number} has an unusable {part}")

    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise refused("every [[token]] needs a name.", "name")
    unknown = sorted(set(entry) - {"name", "sha256", "roles", "scopes", "namespaces"})
    if unknown:
        raise refused(f"the token {name!r} has the unknown field {unknown[0]!r}.", "field")
    try:
        holder = read_holder(rules, name, entry.get("roles", DEFAULT_ROLES), entry.get("scopes"))
        namespaces = read_namespaces(name, entry["namespaces"]) if "namespaces" in entry else None
    except TokenFieldError as error:
        raise refused(str(error), error.part) from error
    try:
        digest = bytes.fromhex(entry["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise refused(f"the token {name!r} needs sha256, the 64 hex digits of its SHA-256.", "sha256") from error
    if len(digest) != 32:
        raise refused(f"the sha256 of {name!r} has {len(digest)} bytes instead of 32.", "sha256")
    return digest, replace(holder, namespaces=namespaces)


_log = logging.getLogger("semel.server")


def read_principals(settings: ServerSettings, rules: ScopeRules) -> Principals:
    """All principals that the settings name; `TokenFileError` or `KeyFileError` if a file is invalid."""
    rotation = rotation_of(settings.token_active, settings.token_next, settings.token_rotation_until)
    tokens = _read_tokens(settings, rules, rotation) if settings.tokens else {}
    verifier: Verifier | None = None
    refresh: KeyRefresh | None = None
    if settings.jwt_keys:
        # Without JWTs cryptography is not imported, which would take a tenth of the start-up time.
        from semel.server.auth.issuer_tls import trust_of  # noqa: PLC0415
        from semel.server.auth.jwks_url import KeyUrl, fetch_keys  # noqa: PLC0415
        from semel.server.auth.jwt_keys import KeyFile, KeySource  # noqa: PLC0415
        from semel.server.auth.jwt_tokens import JwtVerifier  # noqa: PLC0415

        keys: KeySource
        if settings.has_key_url:
            trust_of(settings.jwt_ca_file)  # a mistake in the file is told at the start
            fetch = partial(fetch_keys, ca_file=settings.jwt_ca_file)
            keys = refresh = KeyUrl(settings.jwt_keys, settings.jwt_algorithm_names, fetch)
        else:
            keys = KeyFile(Path(settings.jwt_keys), settings.jwt_algorithm_names)
        verifier = JwtVerifier(keys, rules, settings.jwt_issuer, settings.jwt_audience)
    principals = Principals(tokens, verifier, rotation, is_needed=not settings.lets_anyone)
    principals.key_refresh = refresh
    return principals


def _read_tokens(settings: ServerSettings, rules: ScopeRules, rotation: Rotation | None) -> dict[bytes, Principal]:
    tokens = read_token_file(Path(settings.tokens), rules)
    for digest, principal in tokens.items():
        if rotation is not None and rotation.standing(digest, 0) is not TokenStanding.UNKNOWN:
            told = f"{settings.tokens}: {principal.name} has the same token as token_active or token_next."
            raise TokenFileError(told, "a token equals token_active or token_next")
    return tokens


async def reload_credentials(settings: ServerSettings, rules: ScopeRules, principals: Principals) -> None:
    """Read the files again and log the result; an invalid file changes nothing."""
    if settings.tokens:
        try:
            tokens = await asyncio.to_thread(_read_tokens, settings, rules, principals.rotation)
        except TokenFileError as error:
            _log.error(
                "SIGHUP: the token file is invalid; the loaded tokens stay in force",
                extra={"path": settings.tokens, "why": error.flaw},
            )
        else:
            change = principals.replace_tokens(tokens)
            _log.info("SIGHUP: the token file was read again", extra={"path": settings.tokens, **change._asdict()})
    if settings.jwt_keys:
        try:
            principals.reload_keys()
        except KeyFileError as error:
            _log.error("SIGHUP: the key file is invalid; the loaded keys stay in force", extra={"why": str(error)})
        else:
            done = "the keys are fetched again" if settings.has_key_url else "the key file was read again"
            _log.info("SIGHUP: %s", done, extra={"path": settings.jwt_keys})
    if not settings.tokens and not settings.jwt_keys:
        _log.info("SIGHUP: there is no token file and no key file to read again")
