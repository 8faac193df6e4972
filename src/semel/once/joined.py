"""The request that is being handled: `once.transaction` without a key of its own takes the request's.

A handler that does so is marked in the request's receipt before its transaction begins. After a crash the retry runs it
again, whatever `on_crash` says: its transaction replays if it was committed, and runs if it was not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

from semel.once.errors import InvalidKey
from semel.once.identity import Identity


class JoinedRequest(NamedTuple):
    """A request with a key."""

    who: Identity
    fingerprint: bytes
    mark: Callable[[], object]
    """Writes down that the handler's effect is in a transaction with the request's key; blocks."""


request: ContextVar[JoinedRequest | None] = ContextVar("semel_once_request", default=None)


def current_request() -> JoinedRequest:
    """The request whose key is taken; `InvalidKey` where there is none."""
    found = request.get()
    if found is None:
        raise InvalidKey("once.transaction needs a key: this code handles no request with an Idempotency-Key.")
    return found
