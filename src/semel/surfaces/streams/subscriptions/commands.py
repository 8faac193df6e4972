"""Commands of subscriptions, and their outcomes. Ids, chance and node names are in the command and never looked up."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from semel.kernel.errors import Refusal
from semel.surfaces.streams.rules.offsets import Offset
from semel.surfaces.streams.subscriptions.tables import SigningKeyRow, SubscriptionRow


class SubscriptionLimits(NamedTuple):
    """Limits of subscriptions."""

    subscriptions: int = 1_000
    explicit_streams: int = 1_000
    """Explicit streams of one subscription."""
    acks: int = 1_000
    """Acks of one call."""
    attempt_ms: int = 30_000
    """The time of one webhook attempt, from the connection to the end of the answer."""


MATCHED_STREAMS = 10_000
"""Limit on the streams under the literal prefix of a pattern when the subscription is created."""
WAKE_STREAMS = 1_000
"""Limit on the streams of one wake or claim; the others follow in the next one."""
LINKS_AT_ONCE = 64
"""Limit on the links that one background write changes."""


class NamedStream(NamedTuple):
    """A stream by its packed name and its name."""

    scope: bytes
    path: bytes


class SubscriptionPut(NamedTuple):
    """Create a subscription, or confirm an equal one."""

    name: bytes
    life: bytes
    id: bytes
    kind: int
    pattern: bytes | None
    streams: tuple[NamedStream, ...]
    url: bytes | None
    wake_stream: bytes | None
    lease_ttl_ms: int
    description: bytes | None
    config: bytes
    base: bytes
    creator: bytes = b""
    """The principal; empty without a credential."""
    most_own: int = 0
    """The quota of the principal; 0 is no limit."""


class SubscriptionDelete(NamedTuple):
    """Delete a subscription; its links are freed later."""

    name: bytes


class StreamsLink(NamedTuple):
    """Link explicit streams at their tails."""

    name: bytes
    life: bytes
    streams: tuple[NamedStream, ...]


class StreamUnlink(NamedTuple):
    """Remove an explicit stream; a glob link stays."""

    name: bytes
    life: bytes
    stream: NamedStream


class LinksAdopt(NamedTuple):
    """Let the streams of new links leave marks from now on; background."""

    name: bytes
    life: bytes
    scopes: tuple[bytes, ...]


class LinksFree(NamedTuple):
    """Free links of a deleted subscription; background."""

    name: bytes
    life: bytes
    scopes: tuple[bytes, ...]
    is_last: bool


class StreamLinksFree(NamedTuple):
    """Free the glob links of a stream that has ended; background."""

    scope: bytes
    links: tuple[tuple[bytes, bytes], ...]
    """Packed id and life of each subscription."""


class PendingMark(NamedTuple):
    """Carry the marks of streams to a subscription; background."""

    name: bytes
    life: bytes
    scopes: tuple[bytes, ...]


class MarkSettle(NamedTuple):
    """Delete the mark of a stream, unless it has moved again; background."""

    scope: bytes
    stream_id: bytes
    tail: int


class WakeStart(NamedTuple):
    """Send a wake or try one again, if it is due; background."""

    name: bytes
    life: bytes
    node: bytes
    wake_id: bytes
    chance: int
    wake_scope: bytes | None
    """The packed name of the wake stream; None for a webhook."""
    takes_over: bool = False
    """Whether the attempt of another node is repeated before its time is up: that node is known to be dead."""


class AttemptResult(Enum):
    """How an attempt ended."""

    DONE = "done"
    ACCEPTED = "accepted"
    FAILED = "failed"


class WakeOutcome(NamedTuple):
    """The result of one webhook attempt."""

    name: bytes
    life: bytes
    generation: int
    attempt: int
    node: bytes
    result: AttemptResult
    chance: int


class WakeClaim(NamedTuple):
    """Claim the work of a pull-wake subscription."""

    name: bytes
    life: bytes
    worker: bytes
    wake_id: bytes


class LeaseProof(NamedTuple):
    """What a callback, an ack or a release shows: the contents of its token, and what its body names."""

    name: bytes
    life: bytes
    token_generation: int
    generation: int
    wake_id: bytes


class StreamAck(NamedTuple):
    """The last processed offset of a stream; None if it is no offset."""

    scope: bytes
    path: bytes
    offset: Offset | None


class WakeAck(NamedTuple):
    """Acknowledge offsets, and extend or end the lease: a callback of a webhook, or an ack of a worker."""

    proof: LeaseProof
    kind: int
    acks: tuple[StreamAck, ...]
    done: bool


class WakeRelease(NamedTuple):
    """Give the lease of a pull-wake back."""

    proof: LeaseProof


class KeysEnsure(NamedTuple):
    """Store the first signing key and the token secret, unless there are some."""

    kid: bytes
    private: bytes
    public: bytes
    secret: bytes


SubscriptionCommand = (
    SubscriptionPut
    | SubscriptionDelete
    | StreamsLink
    | StreamUnlink
    | LinksAdopt
    | LinksFree
    | StreamLinksFree
    | PendingMark
    | MarkSettle
    | WakeStart
    | WakeOutcome
    | WakeClaim
    | WakeAck
    | WakeRelease
    | KeysEnsure
)


class SubscriptionKept(NamedTuple):
    """The subscription exists: created now, or found equal."""

    is_new: bool
    row: SubscriptionRow


class WakeItem(NamedTuple):
    """One stream of a wake."""

    path: bytes
    is_explicit: bool
    acked: bytes
    """The offset up to which it is acknowledged."""
    tail: bytes


class WakeStarted(NamedTuple):
    """A wake was sent, or is to be sent by the caller."""

    row: SubscriptionRow
    items: tuple[WakeItem, ...]
    is_new: bool


class WakeClaimed(NamedTuple):
    """The worker has the lease."""

    row: SubscriptionRow
    items: tuple[WakeItem, ...]


class WakeAcked(NamedTuple):
    """The acks were applied."""

    next_wake: bool


class SubscriptionKeys(NamedTuple):
    """The signing key and the token secret."""

    key: SigningKeyRow
    secret: bytes


SubscriptionAnswer = SubscriptionKept | WakeStarted | WakeClaimed | WakeAcked | SubscriptionKeys | Refusal | bool | None
