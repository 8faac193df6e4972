"""Server URL and token of a client: from arguments, else from SEMEL_URL, SEMEL_TOKEN and their aliases.

Secrets are kept out of representations, so that no log of an object shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from semel.client.errors import ConfigurationError

DEFAULT_URL = "http://127.0.0.1:8788"
URL, TOKEN, HMAC_KEY = "SEMEL_URL", "SEMEL_TOKEN", "SEMEL_JOBS_RESULT_HMAC_KEY"


@dataclass(frozen=True, slots=True)
class Access:
    """A server and a credential for it."""

    url: str
    token: str | None = field(default=None, repr=False)
    hmac_key: bytes | None = field(default=None, repr=False)
    """The key that results are signed with; None when they are only hashed."""


def find_access(url: str | None, token: str | None, hmac_key: str | bytes | None, environ: Mapping[str, str]) -> Access:
    """The given values, completed from the environment."""
    key = environ.get(HMAC_KEY, "") if hmac_key is None else hmac_key
    return Access(
        _checked_url(environ.get(URL) or DEFAULT_URL if url is None else url),
        _checked_token(environ.get(TOKEN, "").strip() if token is None else token) or None,
        (key.encode() if isinstance(key, str) else key) or None,
    )


def _checked_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isascii() or not text.isprintable():
        raise ConfigurationError("A server's URL looks like http://127.0.0.1:8788.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError("A server's URL has no user, query or fragment; the token goes into SEMEL_TOKEN.")
    return text.rstrip("/")


def _checked_token(token: str) -> str:
    """Refuses what no header can carry, here, because the error of the HTTP library would show it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("The token has spaces, line ends or special characters.")
    return token
