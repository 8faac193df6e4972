"""The messages of an outbox as values: their states, their deliveries, and the time of the next attempt.

| state | means |
|---|---|
| queued | to be sent, unless an older message of the same `order_by` is not done |
| sent | a dispatcher is sending it now, under a lease |
| done | answered with 2xx |
| poison | refused for good, refused too often, or never delivered in `give_up_after`: set aside |
| unknown | an earlier attempt may have arrived, and the receiver may have forgotten its key: set aside |

What is set aside blocks the messages after it until `retry` or `drop`, and is never sent again without them.

| answer to an attempt | message | a refusal, of which `max_attempts` make poison | the attempt may have taken effect |
|---|---|---|---|
| 2xx | done | | |
| 3xx | poison: no redirect is followed | | yes |
| 401, 408, 421, 425, 429 | tried again | no: it is about the sender or the moment | no |
| 403, 409, 423 | tried again | yes | no |
| a 409 whose JSON says that the key is another's, any other 4xx | poison | | no |
| 503 with `Retry-After` | tried again | no: the receiver is down or full | no |
| any other 5xx with `Retry-After`, 502, 503, 504 | tried again | no: the receiver is down or full | yes |
| any other 5xx | tried again | yes | yes |
| no answer, a truncated answer, a crash after the lease | tried again | no | yes |
| no connection, or a secret that is missing | tried again | no | no |

| before an attempt | message |
|---|---|
| an attempt that may have taken effect began `keys_kept` less an hour ago, or in the future | unknown |
| else posted or retried `give_up_after` ago, and such an attempt was made | unknown |
| else posted or retried `give_up_after` ago, and tried before | poison |

A message is stored before `post` returns, and removed by `drop`, or by its age once it is done. The lease is stored
before anything is sent. A crash after it counts as an attempt that may have taken effect: the message is sent again
with the same key, as long as the receiver recognizes it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from semel.once.exchange import PASSING

MAX_ATTEMPTS = 20
MARGIN_SECONDS = 3_600.0
"""A message is not repeated in the last hour of its key: clocks differ, and an attempt takes time."""
CLOCK_SLACK_SECONDS = 60.0
"""How far a clock may be set back without making the time of an attempt doubtful."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 300.0
RETRIED = PASSING | {423}
"""Status codes that are retried, besides every 5xx."""
NOT_ABOUT_THE_MESSAGE = frozenset({401, 408, 421, 425, 429, 502, 503, 504})
"""Status codes about the credential, the connection, the moment or a receiver that is down or full."""


class MessageState(StrEnum):
    """The state of a message."""

    QUEUED = "queued"
    SENT = "sent"
    DONE = "done"
    POISON = "poison"
    UNKNOWN = "unknown"


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
    """Earlier answers that refused this message."""
    deadline: float
    """Time of the monotonic clock after which nothing is sent."""
    age_seconds: float = 0.0
    """Time since it was posted, or retried by an operator."""
    arrived_seconds: float | None = None
    """Time since the first earlier attempt that may have taken effect; None if there is none."""
    error: str | None = None
    """Why the last attempt failed."""


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
    """Whether the receiver may have seen the message; False if nothing of it was sent."""
    is_final: bool = False
    """Whether the answer says that a retry cannot succeed."""


class MessageFate(NamedTuple):
    """The next state of a message."""

    state: MessageState
    refusals: int = 0
    wait_seconds: float = 0.0
    may_have_arrived: bool = False
    """Whether this attempt may have taken effect."""
    reason: str | None = None
    """Why it was set aside without an attempt."""


class RetryWaits(NamedTuple):
    """The limits of retries and backoff."""

    max_attempts: int = MAX_ATTEMPTS
    longest_seconds: float = LONGEST_WAIT_SECONDS
    retry_after_seconds: float = 3_600.0
    """Cap on `Retry-After`, in seconds."""
    give_up_seconds: float = 3 * 86_400.0
    kept_seconds: float = 86_400.0
    """How long the receiver keeps a key."""


def fate_before(leased: LeasedMessage, waits: RetryWaits) -> MessageFate | None:
    """The fate of a message that must not be sent any more; None if it may be sent now."""
    arrived, last = leased.arrived_seconds, f" (last attempt: {leased.error})" if leased.error else ""
    if arrived is not None and not -CLOCK_SLACK_SECONDS <= arrived < waits.kept_seconds - MARGIN_SECONDS:
        reason = f"an earlier attempt may have arrived, and the receiver may have forgotten its key{last}"
        return MessageFate(MessageState.UNKNOWN, leased.refusals, reason=reason)
    if leased.age_seconds < waits.give_up_seconds or leased.attempts == 1:
        return None  # one that waited for its turn, or for a dispatcher, has its first attempt however old it is
    state = MessageState.POISON if arrived is None else MessageState.UNKNOWN
    return MessageFate(state, leased.refusals, reason=f"not delivered in {waits.give_up_seconds:.0f} s{last}")


def judged(delivery: Delivery, leased: LeasedMessage, waits: RetryWaits, chance: random.Random) -> MessageFate:
    """The next state of a message after an attempt."""
    status = delivery.status
    if status is not None and 200 <= status < 300:
        return MessageFate(MessageState.DONE, leased.refusals)
    is_refused = is_refusal(delivery)
    refusals, has_effect = leased.refusals + is_refused, may_have_effect(delivery)
    is_final = delivery.is_final or (status is not None and 300 <= status < 500 and status not in RETRIED)
    if is_final or (is_refused and refusals >= waits.max_attempts):
        return MessageFate(MessageState.POISON, refusals, may_have_arrived=has_effect)
    wait = wait_of(leased.attempts, delivery.retry_after, waits, chance)
    return MessageFate(MessageState.QUEUED, refusals, wait, has_effect)


def is_refusal(delivery: Delivery) -> bool:
    """Whether an answer is about this message, and not about its sender, the moment or the state of the receiver."""
    status = delivery.status
    if status is None or status in NOT_ABOUT_THE_MESSAGE:
        return False
    return status < 500 or delivery.retry_after is None


def may_have_effect(delivery: Delivery) -> bool:
    """Whether an attempt without a 2xx may have taken effect. Only a refusal shows that it has not."""
    status = delivery.status
    if status is None:
        return delivery.is_seen
    return not (400 <= status < 500 or (status == 503 and delivery.retry_after is not None))


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
