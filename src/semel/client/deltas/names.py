"""Validation of client and gateway names, since a replica cannot change its own later."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error

from semel.client.deltas.drafts import MAX_CLIENT_CHARACTERS
from semel.client.errors import ConfigurationError
from semel.kernel.canonical import parse

MAX_GATEWAY_CHARACTERS = 256


def checked_gateway(gateway: str) -> str:
    """A gateway's name; dots alone would be taken for a way through the folders of the URL."""
    if gateway in (".", ".."):
        raise ConfigurationError("A gateway's name is not made of dots.")
    return _checked("A gateway's name", gateway, MAX_GATEWAY_CHARACTERS)


def checked_client(client: str) -> str:
    """A replica's name."""
    return _checked("A client's id", client, MAX_CLIENT_CHARACTERS)


def _checked(what: str, name: str, most: int) -> str:
    if not 1 <= len(name) <= most or any("\ud800" <= one <= "\udfff" for one in name):
        raise ConfigurationError(f"{what} has 1 to {most} characters, and no half of a surrogate pair.")
    return name


def client_of_token(token: str | None) -> str | None:
    """Whom a JWT is for, unverified: the server verifies it, and takes changes from no other name. None without one."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parse(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        subject = claims.get("sub") if isinstance(claims, dict) else None
        return checked_client(subject) if isinstance(subject, str) else None
    except (Base64Error, ValueError, ConfigurationError):
        return None
