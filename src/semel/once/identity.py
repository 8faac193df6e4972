"""The identity of a call: a scope, a key in it, and the fingerprint of the arguments.

While a middleware handles a request, `once.transaction` without a key uses the request's key. The request's receipt is
marked before the transaction begins. After a crash the retry runs the handler again, whatever `on_crash` says: its
transaction replays if it was committed, and runs if it was not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from semel.once.codec import canonical
from semel.once.errors import InvalidKey

MAX_KEY = 256
"""Maximum characters of a key and of a scope."""


class OnceIdentity(NamedTuple):
    """A key in its scope."""

    scope: str
    key: str


def identity(scope: object, key: object) -> OnceIdentity:
    """The identity of a call. Raises `InvalidKey` for a key that is empty, too long or not printable.

    A scope separates the keys of tenants: it is any value with a text form, or None for one scope of all callers.
    """
    return OnceIdentity("" if scope is None else _text("scope", scope), _text("key", key))


def _text(what: str, value: object) -> str:
    if value is None or isinstance(value, bool | bytes):
        raise InvalidKey(f"The {what} must be a text, not {value!r}.")
    text = str(value)
    if not 1 <= len(text) <= MAX_KEY:
        raise InvalidKey(f"The {what} must have 1 to {MAX_KEY} characters, not {len(text)}.")
    if not text.isprintable():
        raise InvalidKey(f"The {what} must have only printable characters: {text!r}.")
    return text


def fingerprint(arguments: Any) -> bytes:
    """SHA-256 of the canonical text of the arguments; equal arguments have equal fingerprints."""
    if isinstance(arguments, bytes | bytearray | memoryview):
        return hashlib.sha256(b"\x00" + bytes(arguments)).digest()
    return hashlib.sha256(canonical(arguments)).digest()


class JoinedRequest(NamedTuple):
    """A request with a key."""

    who: OnceIdentity
    fingerprint: bytes
    mark: Callable[[], object]
    """Marks in the receipt that the handler's effect is in a transaction with the request's key; blocks."""


request: ContextVar[JoinedRequest | None] = ContextVar("semel_once_request", default=None)


def current_request() -> JoinedRequest:
    """The request that is being handled. Raises `InvalidKey` if there is none."""
    found = request.get()
    if found is None:
        raise InvalidKey("once.transaction needs a key: pass one, or send the request with an Idempotency-Key.")
    return found
