"""Which server a client calls, and with which credential: arguments, with defaults from environment variables.

| argument | variable | |
|---|---|---|
| `url` | `SEMEL_URL` | `http://127.0.0.1:8788` by default; may have a path prefix, such as that of a proxy |
| `token` | `SEMEL_TOKEN` | the bearer token |
| `tenant` | `SEMEL_TENANT` | the organization of the ledger and the gateway of deltas, where a call names none |
| `tls` | `SEMEL_CA_FILE`, `SEMEL_CLIENT_CERT`, `SEMEL_CLIENT_KEY` | certificates for `https` |
| `result_hmac_key` | `SEMEL_JOBS_RESULT_HMAC_KEY` | signs results of jobs |

Secrets are not in `repr`, so that no log shows them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from semel.client.errors import ConfigurationError

DEFAULT_URL = "http://127.0.0.1:8788"
DEFAULT_PORTS = {"http": 80, "https": 443}
URL, TOKEN, TENANT, HMAC_KEY = "SEMEL_URL", "SEMEL_TOKEN", "SEMEL_TENANT", "SEMEL_JOBS_RESULT_HMAC_KEY"
CA_FILE, CLIENT_CERT, CLIENT_KEY = "SEMEL_CA_FILE", "SEMEL_CLIENT_CERT", "SEMEL_CLIENT_KEY"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates for `https`. Without a file the trusted certificates of this machine are used."""

    ca_file: str | None = None
    """File with the certificates that are trusted instead of those of this machine."""
    client_cert: str | None = None
    """File with the client's certificate."""
    client_key: str | None = None
    """File with the key of the client's certificate, if that is apart."""

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises ConfigurationError if a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"The TLS certificates cannot be loaded ({error}).") from None
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """A server and a credential for it."""

    url: str
    token: str | None = field(default=None, repr=False)
    hmac_key: bytes | None = field(default=None, repr=False)
    """The key that signs results; None if they have only checksums."""
    tenant: str | None = None
    tls: TlsFiles | ssl.SSLContext | None = None

    @property
    def address(self) -> Address:
        """The parts of the URL."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        return Address(host, port, parts.scheme == "https", parts.netloc, parts.path)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a server's URL."""

    host: str
    port: int
    is_secure: bool
    authority: str
    """Host and port, as in the `Host` header."""
    base: str
    """The path prefix of a proxy, without a trailing slash."""

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def find_access(
    environ: Mapping[str, str],
    url: str | None = None,
    token: str | None = None,
    hmac_key: str | bytes | None = None,
    tenant: str | None = None,
    tls: TlsFiles | ssl.SSLContext | None = None,
) -> Access:
    """The arguments, with defaults from the environment."""
    key = environ.get(HMAC_KEY, "") if hmac_key is None else hmac_key
    return Access(
        checked_url(environ.get(URL) or DEFAULT_URL if url is None else url),
        checked_token(environ.get(TOKEN, "").strip() if token is None else token) or None,
        (key.encode() if isinstance(key, str) else key) or None,
        (environ.get(TENANT, "") if tenant is None else tenant) or None,
        _found_tls(environ) if tls is None else tls,
    )


def _found_tls(environ: Mapping[str, str]) -> TlsFiles:
    ca_file, cert, key = (environ.get(name) or None for name in (CA_FILE, CLIENT_CERT, CLIENT_KEY))
    return TlsFiles(ca_file, cert, key)


def checked_url(text: str) -> str:
    """A server's URL without a trailing slash. Raises ConfigurationError."""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or not text.isascii() or not text.isprintable():
        raise ConfigurationError("The server's URL is not valid: write it as http://127.0.0.1:8788.")
    if "@" in parts.netloc or any(sign in text for sign in "?# "):
        raise ConfigurationError(
            "The server's URL must not have a user, query or fragment: put the token into SEMEL_TOKEN."
        )
    try:
        _ = parts.port
    except ValueError:
        raise ConfigurationError("The port of the server's URL is not a number from 0 to 65535.") from None
    return text.rstrip("/")


def find_token(environ: Mapping[str, str], file: Path | None) -> str | None:
    """The token of a file, else of the environment, or None. Raises ConfigurationError, which names the place."""
    place = TOKEN if file is None else f"The token file {file}"
    try:
        token = (environ.get(TOKEN, "") if file is None else file.read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{place} cannot be read: {reason}.") from None
    if file is not None and not token:
        raise ConfigurationError(f"{place} is empty.")
    if not _is_token(token):
        raise ConfigurationError(f"{place} must hold one token: remove spaces, line breaks and non-ASCII characters.")
    return token or None


def _is_token(token: str) -> bool:
    """Whether a header can contain it."""
    return token.isascii() and token.isprintable() and " " not in token


def checked_token(token: str) -> str:
    """Refuse a token that a header cannot contain. No error shows the token."""
    if not _is_token(token):
        raise ConfigurationError("The token has spaces, line breaks or special characters: remove them.")
    return token
