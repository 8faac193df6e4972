"""Signatures of webhooks (Ed25519), and the tokens of callbacks and claims (HMAC-SHA256).

Keys and secrets are stored, so that all nodes share them and a restart keeps them; they are in no log and no error. A
token names its subscription, the generation of the wake and its expiry; it is valid on every node.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from semel.kernel.errors import Refused
from semel.surfaces.streams.subscriptions.commands import KeysEnsure
from semel.surfaces.streams.subscriptions.tables import SigningKeyRow

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TOKEN_MS = 3_600_000
RETIRED_MS = 86_400_000
"""A retired key is published for this time: a receiver may check a signature later than it was made."""
SECRET_BYTES = 32
MAX_TOKEN_BYTES = 1_024
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


def base64url(data: bytes) -> str:
    """Base64 in the alphabet for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _private_key(seed: bytes) -> Ed25519PrivateKey:
    # Imported on first use: a server without subscriptions does not load it.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(seed)


def new_keys(seed: bytes, secret: bytes) -> KeysEnsure:
    """The command that stores a signing key made from a random seed, and a secret."""
    public = _private_key(seed).public_key().public_bytes_raw()
    kid = "ds_" + base64url(sha256(public).digest()[:12])
    return KeysEnsure(kid.encode(), seed, public, secret)


def jwk_of(key: SigningKeyRow) -> dict[str, str]:
    """The public part of a key as a JWK."""
    return {
        "kty": "OKP",
        "crv": "Ed25519",
        "use": "sig",
        "alg": "EdDSA",
        "kid": key.kid.decode(),
        "x": base64url(key.public),
    }


def jwks_of(keys: Iterable[SigningKeyRow], now_ms: int) -> bytes:
    """The key set: present keys, and those retired so recently that a signature may still be checked."""
    shown = [key for key in keys if key.retired_at is None or now_ms - key.retired_at < RETIRED_MS]
    return orjson.dumps({"keys": [jwk_of(key) for key in shown]})


def signature_of(key: SigningKeyRow, body: bytes, now_ms: int) -> str:
    """The value of `Webhook-Signature`."""
    seconds = now_ms // 1_000
    signed = _private_key(key.private).sign(b"%d.%b" % (seconds, body))
    return f"t={seconds},kid={key.kid.decode()},ed25519={base64url(signed)}"


class WakeToken(NamedTuple):
    """The contents of a token."""

    name: bytes
    life: bytes
    generation: int
    expires_ms: int


def format_token(secret: bytes, token: WakeToken) -> str:
    """A signed token."""
    claims = {
        "sub": base64url(token.name),
        "life": token.life.hex(),
        "gen": token.generation,
        "exp": token.expires_ms,
    }
    payload = base64url(orjson.dumps(claims))
    return f"{payload}.{base64url(_mac(secret, payload))}"


def parse_token(secret: bytes, text: bytes | None, now_ms: int) -> WakeToken:
    """The contents of a token; `Refused` if it is not one of this server, or has expired."""
    if text is None or len(text) > MAX_TOKEN_BYTES or not text.isascii():
        raise _invalid()
    payload, _, mac = text.decode("ascii").partition(".")
    if not hmac.compare_digest(mac.encode(), base64url(_mac(secret, payload)).encode()):
        raise _invalid()
    claims: dict[str, Any] = orjson.loads(_decoded(payload))
    token = WakeToken(_decoded(claims["sub"]), bytes.fromhex(claims["life"]), claims["gen"], claims["exp"])
    if now_ms >= token.expires_ms:
        raise Refused("TOKEN_EXPIRED", "The token has expired; wait for the next wake.", headers=_CHALLENGE)
    return token


def _mac(secret: bytes, payload: str) -> bytes:
    return hmac.digest(secret, b"subscription-token." + payload.encode(), "sha256")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _invalid() -> Refused:
    detail = "Send the token of the wake as Authorization: Bearer."
    return Refused("TOKEN_INVALID", detail, headers=_CHALLENGE)
