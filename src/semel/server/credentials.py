"""Credentials from settings: the configured token, token file and JWT keys, reloaded when files change."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from semel.server.jwt_claims import KeyFileError
from semel.server.principals import Principal, Principals, ScopeRules
from semel.server.rotation import Rotation, Standing, rotation_of
from semel.server.settings import ServerSettings
from semel.server.token_file import TokenFileError, read_token_file

_log = logging.getLogger("semel.server")


def read_principals(settings: ServerSettings, rules: ScopeRules) -> Principals:
    """Everyone the server can know; `TokenFileError` or `KeyFileError` when a file cannot be used."""
    rotation = rotation_of(settings.token_active, settings.token_next, settings.token_rotation_until)
    tokens = _read_tokens(settings, rules, rotation) if settings.tokens else {}
    verifier = None
    if settings.jwt_keys:
        # A server without JWTs starts without cryptography, which takes a tenth of its start.
        from semel.server.jwt_keys import KeyFile  # noqa: PLC0415
        from semel.server.jwt_tokens import JwtVerifier  # noqa: PLC0415

        keys = KeyFile(Path(settings.jwt_keys), settings.jwt_algorithm_names)
        verifier = JwtVerifier(keys, rules, settings.jwt_issuer, settings.jwt_audience)
    return Principals(tokens, verifier, rotation, settings.needs_token)


def _read_tokens(settings: ServerSettings, rules: ScopeRules, rotation: Rotation | None) -> dict[bytes, Principal]:
    tokens = read_token_file(Path(settings.tokens), rules)
    for digest, principal in tokens.items():
        if rotation is not None and rotation.standing(digest, 0) is not Standing.UNKNOWN:
            told = f"{settings.tokens}: {principal.name} has the token of token_active or token_next."
            raise TokenFileError(told, "a token is that of token_active or token_next")
    return tokens


async def reload_credentials(settings: ServerSettings, rules: ScopeRules, principals: Principals) -> None:
    """Read the files again and say in the log what came of it; one that cannot be used changes nothing."""
    if settings.tokens:
        try:
            tokens = await asyncio.to_thread(_read_tokens, settings, rules, principals.rotation)
        except TokenFileError as error:
            _log.error(
                "SIGHUP: the token file cannot be used; the tokens of before stay in force",
                extra={"path": settings.tokens, "why": error.flaw},
            )
        else:
            change = principals.replace_tokens(tokens)
            _log.info("SIGHUP: the token file was read again", extra={"path": settings.tokens, **change._asdict()})
    if settings.jwt_keys:
        try:
            principals.reload_keys()
        except KeyFileError as error:
            _log.error(
                "SIGHUP: the key file cannot be used; the keys of before stay in force", extra={"why": str(error)}
            )
        else:
            _log.info("SIGHUP: the key file was read again", extra={"path": settings.jwt_keys})
    if not settings.tokens and not settings.jwt_keys:
        _log.info("SIGHUP: there is no token file and no key file to read again")
