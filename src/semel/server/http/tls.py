"""TLS by certificate files, which are reloaded on SIGHUP.

The files are PEM: the certificate with its chain, and the key without a password. A new pair is used for later
connections; open connections keep theirs. An invalid pair changes nothing.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

HTTP, HTTP2 = "http/1.1", "h2"
"""Protocol names for ALPN."""

_log = logging.getLogger("semel.server")


class TlsFileError(Exception):
    """The certificate or its key is invalid; the message says which and why."""


class Tls:
    """The certificate of this server."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read the files; `TlsFileError` if they are invalid."""
        self._certificate = certificate
        self._key = key
        self._current = self._read_all()

    def context(self, spoken: str) -> ssl.SSLContext:
        """The TLS context of a listener for `HTTP` or `HTTP2`; each handshake uses the certificate that was
        read last.
        """
        context = _read(self._certificate, self._key, spoken)

        def choose(connection: ssl.SSLObject, name: str | None, asked: ssl.SSLContext) -> None:
            connection.context = self._current[spoken]

        context.sni_callback = choose
        return context

    def reload(self) -> None:
        """Read the files again and log the result."""
        try:
            self._current = self._read_all()
        except TlsFileError as error:
            _log.error(
                "SIGHUP: the TLS certificate is invalid; the loaded certificate stays in use",
                extra={"why": str(error)},
            )
        else:
            _log.info("SIGHUP: the TLS certificate was read again", extra={"path": self._certificate})

    def _read_all(self) -> dict[str, ssl.SSLContext]:
        return {spoken: _read(self._certificate, self._key, spoken) for spoken in (HTTP, HTTP2)}


def _read(certificate: str, key: str, spoken: str) -> ssl.SSLContext:
    for setting, path in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise TlsFileError(f"{setting}: cannot read {path}: {error.strerror}.") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([spoken])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            told = f"tls_key: {key} is not the key of the certificate in {certificate}."
        else:
            told = (
                f"tls_certificate and tls_key: {certificate} and {key} cannot be used ({reason}): give the certificate "
                "and its key as PEM files, the key without a password."
            )
        raise TlsFileError(told) from None
    return context


def _no_password() -> str:
    """Refuse a key with a password: without this, OpenSSL would ask for the password on the terminal."""
    raise ValueError("the key has a password")
