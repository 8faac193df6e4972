"""The credentials that the settings name, read from their files and put together."""

from __future__ import annotations

from pathlib import Path

from semel.server.jwt_keys import KeyFile
from semel.server.jwt_tokens import JwtVerifier
from semel.server.principals import Principals
from semel.server.settings import Settings
from semel.server.token_file import read_token_file


def read_principals(settings: Settings) -> Principals:
    """Everyone the server can know; `TokenFileError` or `KeyFileError` when a file cannot be used."""
    tokens = read_token_file(Path(settings.tokens)) if settings.tokens else {}
    verifier = None
    if settings.jwt_keys:
        keys = KeyFile(Path(settings.jwt_keys), settings.jwt_algorithm_names)
        verifier = JwtVerifier(keys, settings.jwt_issuer, settings.jwt_audience)
    return Principals(tokens, verifier)
