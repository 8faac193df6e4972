"""The interface of a dialect: names of fields, the shape of items, and a few rules. Dialects share one log.

A dialect turns payloads into requests and rows into payloads. The only connection state in it is the chosen profile or
project.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from semel.kernel.json.fragment import JsonObject
from semel.surfaces.events.commands import EventSubmit, EventSubmitted
from semel.surfaces.events.limits import MAX_COMMITTED_ID, EventLimits
from semel.surfaces.events.reading import EventPage
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.fields import Payload
from semel.surfaces.events.wire.messages import Connect, EventIdentity, Sync

WIDEST_PAGE = EventPage((), MAX_COMMITTED_ID, MAX_COMMITTED_ID, False, MAX_COMMITTED_ID, MAX_COMMITTED_ID)
"""A page without events whose numbers have the most digits, for measuring the page head."""


@dataclass(frozen=True, slots=True)
class EventPolicy:
    """The limits and settings that the server advertises to every connection."""

    limits: EventLimits
    strict_types: bool = False
    model_version: int = 0


class Envelope(NamedTuple):
    """The part of a message around its payload."""

    type: str
    payload: JsonObject


class Welcome(NamedTuple):
    """The data of the answer to `connect`."""

    client_id: str
    now_ms: int
    last_id: int
    project_last_id: int
    log_epoch: int = 0


class EventDialect(ABC):
    """One wire dialect of events."""

    version_key: ClassVar[str]
    name_key: ClassVar[str]
    """The member that holds the name of a message."""
    types: ClassVar[frozenset[str]]
    """The request types of this dialect."""
    holds_while_paging: ClassVar[bool]
    """Whether live events wait until a cycle of pages has ended."""
    is_watched: ClassVar[bool]
    """Whether clients send heartbeats, so that a silent client can be disconnected."""
    is_exclusive: ClassVar[bool]
    """Whether each client instance has one connection at a time."""
    knows_reset: ClassVar[bool]
    """Whether the dialect has a `reset` message for a cursor of another epoch; otherwise an error is sent."""
    echoes_names: ClassVar[bool]
    """Whether an answer must repeat the name of its request."""

    @property
    @abstractmethod
    def audience(self) -> Hashable:
        """The audience of the connection: all of one audience get the same bytes for an event."""

    @abstractmethod
    def head(self, message: JsonObject) -> Envelope:
        """Check and return the envelope of a request."""

    @abstractmethod
    def connect(self, payload: JsonObject) -> Connect:
        """The payload of `connect`."""

    @abstractmethod
    def submit(self, payload: Payload, who: EventIdentity, policy: EventPolicy, origin: bytes) -> EventSubmit:
        """The payload of `submit_events`."""

    @abstractmethod
    def sync(self, payload: JsonObject, who: EventIdentity) -> Sync:
        """The payload of `sync`."""

    @abstractmethod
    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        """A whole message to the client."""

    @abstractmethod
    def connected(self, welcome: Welcome, policy: EventPolicy) -> bytes:
        """The payload of `connected`."""

    @abstractmethod
    def submitted(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        """The payload of `submit_events_result`."""

    @abstractmethod
    def committed(self, command: EventSubmit, answer: EventSubmitted) -> bytes:
        """As `submitted`, if all items were committed now."""

    @abstractmethod
    def page(self, asked: Sync, page: EventPage, subscribed: Sequence[str], policy: EventPolicy) -> bytes:
        """The payload of `sync_response`."""

    def page_head(self, asked: Sync, subscribed: Sequence[str], reply_to: str | None, policy: EventPolicy) -> int:
        """The most bytes that a `sync_response` takes besides its events."""
        payload = self.page(asked, WIDEST_PAGE, subscribed, policy)
        return len(self.message("sync_response", payload, f"s-{MAX_COMMITTED_ID}", reply_to, MAX_COMMITTED_ID))

    @abstractmethod
    def event(self, row: EventRow) -> bytes:
        """One committed event, in pages and in `event_broadcast`."""

    @abstractmethod
    def spelled(self, code: str) -> str:
        """The spelling of an error code in this dialect."""
