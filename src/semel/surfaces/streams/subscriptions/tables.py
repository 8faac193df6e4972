"""The tables of subscriptions.

A subscription is found by its packed id. Each subscription that is created under an id has its own `life`: links and
globs carry it, so a subscription that is created again sees nothing of the one before it.

A mark (MOVED) is the transactional outbox of a stream: an append to a stream that may have subscribers puts it in the
same commit. The dispatcher carries it to the links of the stream and then deletes it, if it is unchanged. So an append
that was answered is never lost to its subscribers, whatever process dies.

Look-ups: a subscription by id (SUBSCRIPTION) and by the time of its next action (index `due`); links of a subscription
(LINK), by their stream (`scope`), with possible work (`pending`), not yet adopted (`state`), explicit ones
(`explicit`); patterns by their first segment (GLOB); subscriptions whose links are to be freed (ENDED).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.table import Below, Table

WEBHOOK, PULL_WAKE = 0, 1
"""Kinds of a subscription."""
IDLE, WAKING, LEASED = 0, 1, 2
"""Phases of a subscription: nothing to do, a wake was sent, a receiver or worker has the lease."""
EXPLICIT, GLOB_KIND = 1, 2
"""Bits of a link's kind."""
NEW, READY = 0, 1
"""States of a link: its stream may not leave marks yet; it does."""
END = -1
"""In a mark, instead of the tail: the stream was deleted or has expired."""


class SubscriptionRow(NamedTuple):
    """One subscription: its configuration, and the state of its wake."""

    name: bytes
    """The packed id."""
    life: bytes
    id: bytes
    kind: int
    pattern: bytes | None
    url: bytes | None
    wake_stream: bytes | None
    lease_ttl_ms: int
    description: bytes | None
    config: bytes
    """The hash of the configuration, by which a repeated PUT is compared."""
    base: bytes
    """The base URL that its creator used; callbacks go there."""
    created_at: int
    generation: int
    wake_id: bytes
    """The id of the wake in flight or leased; empty if there is none."""
    phase: int
    holder: bytes
    """The worker that has the lease of a pull-wake; empty without one."""
    attempts: int
    """Failed attempts of the present wake."""
    failed: int
    """1 if the last attempt has failed."""
    owner: bytes
    """The node that is making an attempt now; empty if none is."""
    due_at: int
    """The time of the next action: a wake, a retry, the end of an attempt or of a lease; NEVER if there is none."""
    creator: bytes = b""
    """The principal that created it, for its quota; empty without a credential."""
    checksum: int = 0


class LinkRow(NamedTuple):
    """The cursor of a subscription in one stream."""

    life: bytes
    """The life of the subscription."""
    scope: bytes
    name: bytes
    """The packed id of the subscription."""
    path: bytes
    kind: int
    is_glob_only: int
    stream_id: bytes
    """The id of the stream for which `acked` counts; another stream of the name is counted from its beginning."""
    acked: int
    quiet: int
    """0 if there may be content behind `acked`. It is a hint: a wake compares with the tail."""
    wake: int
    """The generation of the last wake whose snapshot has this link."""
    snapshot: int
    """The tail in that snapshot."""
    state: int
    checksum: int = 0


class GlobRow(NamedTuple):
    """The pattern of a subscription under its first segment; empty if that is a wildcard."""

    first: bytes
    life: bytes
    name: bytes
    pattern: bytes
    checksum: int = 0


class MovedRow(NamedTuple):
    """The mark of a stream that has moved since its links were looked at."""

    scope: bytes
    stream_id: bytes
    tail: int
    """The tail to which it has moved; END if it has ended."""
    checksum: int = 0


class EndedRow(NamedTuple):
    """A deleted subscription whose links are still to be freed."""

    life: bytes
    name: bytes
    checksum: int = 0


class SigningKeyRow(NamedTuple):
    """A key that signs webhooks."""

    kid: bytes
    private: bytes
    public: bytes
    created_at: int
    retired_at: int | None
    checksum: int = 0


class SubscriptionFactRow(NamedTuple):
    """The number of subscriptions, of all and of each principal, and the secret of tokens."""

    fact: bytes
    number: int
    value: bytes
    checksum: int = 0


SUBSCRIPTION = Table("subscription", SubscriptionRow, key=1, indexes={"due": ("kind", "due_at")})
LINK = Table(
    "subscription_link",
    LinkRow,
    key=2,
    indexes={
        "scope": ("scope",),
        "pending": ("life", "quiet", "wake"),
        "state": ("state",),
        "explicit": ("life", "is_glob_only"),
    },
    partial={"pending": Below("quiet", 1), "state": Below("state", READY), "explicit": Below("is_glob_only", 1)},
)
GLOB = Table("subscription_glob", GlobRow, key=2)
MOVED = Table("subscription_mark", MovedRow, key=1)
ENDED = Table("subscription_grave", EndedRow, key=1)
SIGNING_KEY = Table("signing_key", SigningKeyRow, key=1)
FACT = Table("subscription_fact", SubscriptionFactRow, key=1)

COUNT_KEY = (b"count",)
SECRET_KEY = (b"secret",)

SUBSCRIPTION_TABLES = (SUBSCRIPTION, LINK, GLOB, MOVED, ENDED, SIGNING_KEY, FACT)

TOPIC = b"subscriptions"
"""The signal that wakes the dispatcher."""


def own_count_key(creator: bytes) -> tuple[bytes]:
    """The key of the number of subscriptions that a principal has created."""
    return (b"count:" + creator,)
