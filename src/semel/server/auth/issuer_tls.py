"""TLS to the host of a key URL: which certificates are trusted, and what a failed handshake means in one sentence.

Trusted are the CA certificates of one file, or without it those of the system, which OpenSSL's own variable
`SSL_CERT_FILE` can replace. The certificate must be valid now and name the host. The file is read for each fetch, so a
new one counts from the next fetch on.
"""

from __future__ import annotations

import ssl

from semel.server.auth.jwt_claims import KeyFileError

_EXPIRED, _TOO_EARLY = 10, 9
_UNKNOWN_CA = frozenset({18, 19, 20, 21})
"""A self-signed certificate, alone or in the chain, and an issuer that is not there."""
_OTHER_NAME = frozenset({62, 64})
"""Codes of OpenSSL for a certificate of another host, and of another IP address."""


def trust_of(ca_file: str) -> ssl.SSLContext:
    """The TLS context of a fetch; without a file it trusts the CA certificates of the system. Raises `KeyFileError`."""
    if not ca_file:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        told = f"jwt_ca_file: {ca_file} has no usable certificate: give the CA certificates as a PEM file."
    except OSError as error:
        told = f"jwt_ca_file: cannot read {ca_file}: {error.strerror}."
    raise KeyFileError(told)


def tls_failure(error: ssl.SSLError, host: str) -> KeyFileError:
    """The failure of a handshake, as a sentence that says what to do; it has no part of the certificate."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.reason or "no reason").replace("_", " ").lower()
        return KeyFileError(f"TLS with {host} failed ({reason}): see that the port speaks TLS 1.2 or later")
    code = error.verify_code
    if code == _EXPIRED:
        return KeyFileError(f"the certificate of {host} has expired: renew it there")
    if code == _TOO_EARLY:
        return KeyFileError(f"the certificate of {host} is not valid yet: compare the clocks of both machines")
    if code in _UNKNOWN_CA:
        return KeyFileError(f"the certificate of {host} is from a CA that is not trusted here: name it in jwt_ca_file")
    if code in _OTHER_NAME:
        return KeyFileError(f"the certificate is not for {host}: give the URL with a name that the certificate has")
    return KeyFileError(f"the certificate of {host} is not accepted: {error.verify_message}")
