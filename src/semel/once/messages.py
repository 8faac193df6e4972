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
"""Refusals that may be otherwise a moment later; so is every 5xx."""


class LetterState(StrEnum):
    """Where a letter stands."""

    QUEUED = "queued"
    SENT = "sent"
    DONE = "done"
    POISON = "poison"


class EnvSecret(NamedTuple):
    """The value of a header that is not stored: at every try, `prefix` and the value of an environment variable."""

    name: str
    prefix: str = ""


HeaderValue = str | EnvSecret


class OutboxMessage(NamedTuple):
    """One request that is to be delivered."""

    key: str
    method: str
    url: str
    headers: Mapping[str, HeaderValue]
    body: bytes
    fingerprint: bytes
    """What two letters with one key must have in common: method, URL, content type and body."""
    order_by: str | None = None


class LeasedMessage(NamedTuple):
    """A letter that this runner alone may send, until its lease is over."""

    number: int
    owner: str
    message: OutboxMessage
    attempts: int
    """How often it was tried, this time included."""
    refusals: int
    """How many of the tries before reached the other side."""
    deadline: float
    """By the monotonic clock: nothing is sent behind it."""


class LetterStatus(NamedTuple):
    """What is known of a letter. Headers and body are left out, and so is the query of the URL."""

    key: str
    state: LetterState
    method: str
    url: str
    order_by: str | None
    attempts: int
    status: int | None
    """The last answer, if there was one."""
    error: str | None
    """Why the last try failed."""
    wait_seconds: float
    """How long until the next try, or the end of the lease; 0 for now, and for letters that are not queued."""
    number: int
    """Its place among the letters of this outbox."""


class Delivery(NamedTuple):
    """What came of a try."""

    status: int | None = None
    retry_after: float | None = None
    """Seconds that the other side has asked for."""
    error: str | None = None
    is_seen: bool = True
    """Whether the other side may have seen the letter."""
    is_final: bool = False
    """Whether the answer says that a retry is of no use."""


class MessageFate(NamedTuple):
    """What becomes of a letter."""

    state: LetterState
    refusals: int = 0
    wait_seconds: float = 0.0


class RetryWaits(NamedTuple):
    """How long to wait between tries."""

    max_attempts: int = MAX_ATTEMPTS
    longest_seconds: float = LONGEST_WAIT_SECONDS
    retry_after_seconds: float = 3_600.0
    """The longest `Retry-After` that is obeyed."""


def judged(delivery: Delivery, leased: LeasedMessage, waits: RetryWaits, chance: random.Random) -> MessageFate:
    """What becomes of a letter after a try."""
    status = delivery.status
    if status is not None and 200 <= status < 300:
        return MessageFate(LetterState.DONE, leased.refusals)
    refusals = leased.refusals + (1 if delivery.is_seen else 0)
    is_final = status is not None and 300 <= status < 500 and status not in RETRIED
    if is_final or delivery.is_final or (delivery.is_seen and refusals >= waits.max_attempts):
        return MessageFate(LetterState.POISON, refusals)
    return MessageFate(LetterState.QUEUED, refusals, wait_of(leased.attempts, delivery.retry_after, waits, chance))


def wait_of(attempts: int, retry_after: float | None, waits: RetryWaits, chance: random.Random) -> float:
    """Exponential backoff with jitter; never sooner than the other side has asked, up to the cap."""
    most = min(waits.longest_seconds, FIRST_WAIT_SECONDS * 2 ** min(attempts, 30))
    return max(chance.uniform(most / 2, most), min(retry_after or 0.0, waits.retry_after_seconds))


def key_header(key: str) -> str:
    """The key as a quoted string of RFC 8941, as the draft of the `Idempotency-Key` header asks."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown_url(url: str) -> str:
    """A URL as people are shown it: without its query, which may hold a secret."""
    return url.partition("?")[0]
