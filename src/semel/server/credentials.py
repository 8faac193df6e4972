"""The credentials that the settings name: the configured token and those in files, put together."""

from __future__ import annotations

from pathlib import Path

from semel.server.jwt_keys import KeyFile
from semel.server.jwt_tokens import JwtVerifier
from semel.server.principals import Principals
from semel.server.rotation import Standing, rotation_of
from semel.server.settings import Settings
from semel.server.token_file import TokenFileError, read_token_file


def read_principals(settings: Settings) -> Principals:
    """Everyone the server can know; `TokenFileError` or `KeyFileError` when a file cannot be used."""
    tokens = read_token_file(Path(settings.tokens)) if settings.tokens else {}
    rotation = rotation_of(settings.token_active, settings.token_next, settings.token_rotation_until)
    for digest, principal in tokens.items():
        if rotation is not None and rotation.standing(digest, 0) is not Standing.UNKNOWN:
            raise TokenFileError(f"{settings.tokens}: {principal.name} has the token of token_active or token_next.")
    verifier = None
    if settings.jwt_keys:
        keys = KeyFile(Path(settings.jwt_keys), settings.jwt_algorithm_names)
        verifier = JwtVerifier(keys, settings.jwt_issuer, settings.jwt_audience)
    return Principals(tokens, verifier, rotation, settings.needs_token)
