"""Identities of writes: what names a write, so that a retry is not a second one.

An identity is a small value. `text()` makes a string of it that can be stored beside the application's own data, and
`identity_of` reads it, so that another process can ask `client.resolve(identity)` after a crash.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from semel.client.errors import InvalidArgumentError


class _Texted:
    kind: ClassVar[str]

    def text(self) -> str:
        """The identity as a string."""
        return json.dumps({"write": self.kind, **asdict(self)})  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class StreamAppend(_Texted):
    """An append, or a close, with an idempotency key."""

    kind: ClassVar[str] = "stream"
    stream: str
    key: str


@dataclass(frozen=True, slots=True)
class ProducerAppend(_Texted):
    """An append with the numbers of a producer."""

    kind: ClassVar[str] = "producer"
    stream: str
    producer: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class EventSubmission(_Texted):
    """An event."""

    kind: ClassVar[str] = "event"
    event_id: str


@dataclass(frozen=True, slots=True)
class JobKey(_Texted):
    """A job of a key."""

    kind: ClassVar[str] = "job"
    key: str


@dataclass(frozen=True, slots=True)
class LedgerWrite(_Texted):
    """A transaction of a client of the ledger, by sequence or key."""

    kind: ClassVar[str] = "ledger"
    org: str
    vault: str | None
    client: str
    sequence: int | None
    key: str | None


@dataclass(frozen=True, slots=True)
class NamedCall(_Texted):
    """A change without a receipt of its own, which its name makes repeatable: create, configure, delete."""

    kind: ClassVar[str] = "call"
    method: str
    path: str


WriteIdentity = StreamAppend | ProducerAppend | EventSubmission | JobKey | LedgerWrite | NamedCall

_KINDS: dict[str, type[Any]] = {
    one.kind: one for one in (StreamAppend, ProducerAppend, EventSubmission, JobKey, LedgerWrite, NamedCall)
}


def identity_of(text: str) -> WriteIdentity:
    """The identity of a text. Raises InvalidArgumentError if it is not one."""
    try:
        facts = json.loads(text)
        identity: WriteIdentity = _KINDS[facts.pop("write")](**facts)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidArgumentError("This text is not the identity of a write.") from None
    return identity


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the server knows of a write."""

    identity: WriteIdentity
    is_committed: bool
    """False: the server has no such write now. An attempt that is still on its way may arrive later: repeat the call
    with the same identity to be sure."""
    facts: dict[str, Any]
    """What the server stored: an offset, a `committed_id`, a `job_id`, a block."""
