"""Webhooks of subscriptions, for the program that receives them: check the signature, then read the wake.

The header `Webhook-Signature` is `t=<seconds>,kid=<key>,ed25519=<base64url>`: a signature over `<t>.` and the exact
bytes of the body. A request that is older than the tolerance is refused, so that a recorded one cannot be sent again
later. A wake may come twice: its `wake_id` and `generation` tell.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from semel.client.errors import ConfigurationError, SemelError
from semel.client.json_answer import UNREADABLE, Facts, facts_of
from semel.client.streams.subscriptions import SubscribedStream, subscribed_streams

TOLERANCE_SECONDS = 300.0


class WebhookSignatureError(SemelError):
    """A request is not a webhook of this server: refuse it with 401, and do nothing else."""


@dataclass(frozen=True, slots=True)
class WebhookWake:
    """What a webhook tells: the streams with content to process.

    Answer it with 2xx and `{"done": true}` to acknowledge all of them up to `tail_offset`, or call `callback_url`.
    """

    subscription_id: str
    wake_id: str
    generation: int
    streams: tuple[SubscribedStream, ...]
    callback_url: str
    callback_token: str = field(repr=False)


def verify_webhook(
    body: bytes,
    signature_header: str,
    jwks: Mapping[str, Any],
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE_SECONDS,
) -> WebhookWake:
    """The wake in a signed request; raises `WebhookSignatureError` unless a key of `jwks` signed exactly this body.

    `now` is in seconds, by default the clock of this machine; `tolerance` is how far the time of the signature may be
    from it.
    """
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an optional package
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError("Checking webhooks needs a package: pip install cryptography.") from None
    at, kid, signature = _parts(signature_header)
    if abs((time.time() if now is None else now) - int(at)) > tolerance:
        raise WebhookSignatureError(f"The signature is more than {tolerance:g} s old or early; check the clock.")
    try:
        Ed25519PublicKey.from_public_bytes(_public_key(jwks, kid)).verify(signature, f"{at}.".encode() + body)
    except (InvalidSignature, ValueError):
        raise WebhookSignatureError("The signature is not of this body, or was made with another key.") from None
    try:
        return _wake_of(facts_of(body))
    except UNREADABLE:
        raise WebhookSignatureError("The body is signed, but it is not a wake of a subscription.") from None


def _parts(header: str) -> tuple[str, str, bytes]:
    """The time, the name of the key and the signature."""
    named = dict(part.strip().partition("=")[::2] for part in header.split(","))
    at, kid, signature = named.get("t", ""), named.get("kid", ""), named.get("ed25519", "")
    if not (at.isascii() and at.isdigit() and len(at) <= 15 and kid and signature):
        raise WebhookSignatureError("The header Webhook-Signature is missing, or has another form.")
    try:
        return at, kid, _decoded(signature)
    except ValueError:
        raise WebhookSignatureError("The signature is not base64url.") from None


def _public_key(jwks: Mapping[str, Any], kid: str) -> bytes:
    for key in jwks.get("keys", ()):
        if key.get("kid") == kid and (key.get("kty"), key.get("crv")) == ("OKP", "Ed25519"):
            return _decoded(str(key.get("x", "")))
    raise WebhookSignatureError("The key of the signature is not in the key set: get the key set again.")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def _wake_of(facts: Facts) -> WebhookWake:
    return WebhookWake(
        str(facts["subscription_id"]),
        str(facts["wake_id"]),
        int(facts["generation"]),
        subscribed_streams(facts),
        str(facts["callback_url"]),
        str(facts["callback_token"]),
    )
