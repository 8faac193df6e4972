"""An issuer of JWTs for tests: one key of each kind, the JWK set of their public halves, and tokens good and bad.

Tokens are put together by hand from a header, claims and a signature, so that a test can make what no library would.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = bytes(range(32))


def base64url(raw: bytes) -> str:
    """As JWTs write bytes."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


@cache
def rsa_key(bits: int = 2_048, number: int = 0) -> rsa.RSAPrivateKey:
    """A key; another number is another key."""
    return rsa.generate_private_key(65_537, bits)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """A key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def wide_ec_key() -> ec.EllipticCurvePrivateKey:
    """A key on P-384, which is not ours."""
    return ec.generate_private_key(ec.SECP384R1())


@cache
def ed_key(number: int = 0) -> ed25519.Ed25519PrivateKey:
    """A key for Ed25519."""
    return ed25519.Ed25519PrivateKey.generate()


def oct_jwk(secret: bytes = SECRET) -> dict[str, Any]:
    """A shared secret as a JWK."""
    return {"kty": "oct", "k": base64url(secret)}


def rsa_jwk(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    """The public half."""
    jwk: dict[str, Any] = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return jwk


def ec_jwk(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    """The public half."""
    jwk: dict[str, Any] = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return jwk


def ed_jwk(key: ed25519.Ed25519PrivateKey) -> dict[str, Any]:
    """The public half."""
    jwk: dict[str, Any] = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return jwk


def all_jwks() -> list[dict[str, Any]]:
    """One key of each kind; the kid is the algorithm's name in small letters."""
    return [
        oct_jwk() | {"kid": "hs256"},
        rsa_jwk(rsa_key()) | {"kid": "rs256"},
        ec_jwk(ec_key()) | {"kid": "es256"},
        ed_jwk(ed_key()) | {"kid": "eddsa"},
    ]


def write_keys(file: Path, *jwks: Mapping[str, Any]) -> Path:
    """A JWK set in a file; without keys, all of them."""
    file.write_text(json.dumps({"keys": jwks or all_jwks()}))
    return file


def signature(algorithm: str, text: bytes, key: Any) -> bytes:
    """What a key of any kind makes of a text."""
    if algorithm == "HS256":
        return hmac.digest(key, text, "sha256")  # the library would refuse the keys that an attacker would use
    if algorithm == "RS256":
        return RSAAlgorithm(RSAAlgorithm.SHA256).sign(text, key)
    if algorithm == "ES256":
        return ECAlgorithm(ECAlgorithm.SHA256).sign(text, key)
    return OKPAlgorithm().sign(text, key)


def private_key(algorithm: str) -> Any:
    """The key behind `all_jwks` for an algorithm."""
    makers: dict[str, Callable[[], Any]] = {"RS256": rsa_key, "ES256": ec_key, "EdDSA": ed_key}
    return SECRET if algorithm == "HS256" else makers[algorithm]()


def token(claims: object, header: Mapping[str, object], key: Any, algorithm: str) -> bytes:
    """A token with exactly this header and these claims (bytes as they are), signed so."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims, separators=(",", ":")).encode()
    text = f"{base64url(json.dumps(header).encode())}.{base64url(payload)}".encode()
    return text + b"." + base64url(signature(algorithm, text, key)).encode()


def good_token(claims: object, algorithm: str = "HS256") -> bytes:
    """A token that an honest issuer would make."""
    header = {"typ": "JWT", "alg": algorithm, "kid": algorithm.lower()}
    return token(claims, header, private_key(algorithm), algorithm)
