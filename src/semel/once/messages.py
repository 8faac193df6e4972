"""The messages of an outbox as values: their states, their deliveries, and the time of the next attempt.

| state | means |
|---|---|
| queued | to be sent, unless an older message of the same `order_by` is not done |
| sent | a dispatcher is sending it now, under a lease |
| done | answered with 2xx |
| poison | refused for good, or too often: set aside; it blocks the messages after it until `retry` or `drop` |

| answer | message |
|---|---|
| 2xx | done |
| a refusal that may differ a moment later, every 5xx, no answer | tried again; poison after `max_attempts` of these |
| 3xx, every other 4xx, a 409 whose JSON says that the key is another's | poison: no redirect is followed |
| no connection, or a secret that is missing | tried again without an end: the message was not seen |

A message is stored before `post` returns, and removed by `drop`, or by its age once it is done. A crash between the
delivery and its record sends the message again, with the same key: the receiver recognizes it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from semel.once.exchange import PASSING

MAX_ATTEMPTS = 20
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 300.0
RETRIED = PASSING | {423}
"""Status codes that are retried, besides every 5xx."""


class MessageState(StrEnum):
    """The state of a message."""

    QUEUED = "queued"
    SENT = "sent"
    DONE = "done"
    POISON = "poison"


class EnvSecret(NamedTuple):
    """A header value that is not stored: each attempt sends `prefix` and the value of an environment variable."""

    name: str
    prefix: str = ""


HeaderValue = str | EnvSecret


class OutboxMessage(NamedTuple):
    """One HTTP request to deliver."""

    key: str
    method: str
    url: str
    headers: Mapping[str, HeaderValue]
    body: bytes
    fingerprint: bytes
    """SHA-256 of method, URL, content type and body, which are equal in two messages with the same key."""
    order_by: str | None = None


class LeasedMessage(NamedTuple):
    """A message that only this dispatcher may send, until its lease ends."""

    number: int
    owner: str
    message: OutboxMessage
    attempts: int
    """Attempts, including this one."""
    refusals: int
    """Earlier attempts that may have reached the receiver."""
    deadline: float
    """Time of the monotonic clock after which nothing is sent."""


class MessageStatus(NamedTuple):
    """The status of a message, without its headers, its body and the query of its URL."""

    key: str
    state: MessageState
    method: str
    url: str
    order_by: str | None
    attempts: int
    status: int | None
    """HTTP status of the last answer, if there was one."""
    error: str | None
    """Why the last attempt failed."""
    wait_seconds: float
    """Seconds until the next attempt, or until the lease ends; 0 if it is due now or not queued."""
    number: int
    """Position in the outbox."""


class Delivery(NamedTuple):
    """The result of one attempt."""

    status: int | None = None
    retry_after: float | None = None
    """Seconds that the receiver asked to wait."""
    error: str | None = None
    is_seen: bool = True
    """Whether the receiver may have seen the message."""
    is_final: bool = False
    """Whether the answer says that a retry cannot succeed."""


class MessageFate(NamedTuple):
    """The next state of a message."""

    state: MessageState
    refusals: int = 0
    wait_seconds: float = 0.0


class RetryWaits(NamedTuple):
    """The limits of retries and backoff."""

    max_attempts: int = MAX_ATTEMPTS
    longest_seconds: float = LONGEST_WAIT_SECONDS
    retry_after_seconds: float = 3_600.0
    """Cap on `Retry-After`, in seconds."""


def judged(delivery: Delivery, leased: LeasedMessage, waits: RetryWaits, chance: random.Random) -> MessageFate:
    """The next state of a message after an attempt."""
    status = delivery.status
    if status is not None and 200 <= status < 300:
        return MessageFate(MessageState.DONE, leased.refusals)
    refusals = leased.refusals + (1 if delivery.is_seen else 0)
    is_final = status is not None and 300 <= status < 500 and status not in RETRIED
    if is_final or delivery.is_final or (delivery.is_seen and refusals >= waits.max_attempts):
        return MessageFate(MessageState.POISON, refusals)
    return MessageFate(MessageState.QUEUED, refusals, wait_of(leased.attempts, delivery.retry_after, waits, chance))


def wait_of(attempts: int, retry_after: float | None, waits: RetryWaits, chance: random.Random) -> float:
    """Exponential backoff with jitter, in seconds; at least the receiver's `Retry-After`, up to its cap."""
    most = min(waits.longest_seconds, FIRST_WAIT_SECONDS * 2 ** min(attempts, 30))
    return max(chance.uniform(most / 2, most), min(retry_after or 0.0, waits.retry_after_seconds))


def key_header(key: str) -> str:
    """The key as a quoted string of RFC 8941, as the draft of the `Idempotency-Key` header asks."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown_url(url: str) -> str:
    """A URL without its query, which may contain a secret; for logs and listings."""
    return url.partition("?")[0]
