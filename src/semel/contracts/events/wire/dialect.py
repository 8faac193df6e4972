"""The interface of a dialect: names of fields, the shape of items, and a few rules. Dialects share one log.

A dialect turns payloads into requests and rows into payloads. It knows no state of a connection but its own choice of
profile or project.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from semel.contracts.events.commands import Submit, Submitted
from semel.contracts.events.limits import MAX_COMMITTED_ID, Limits
from semel.contracts.events.reading import Page
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.fields import Payload
from semel.contracts.events.wire.messages import Connect, Identity, Sync
from semel.kernel.json_fragment import JsonObject

WIDEST = Page((), MAX_COMMITTED_ID, MAX_COMMITTED_ID, False, MAX_COMMITTED_ID, MAX_COMMITTED_ID)
"""A page without events whose numbers are as long as numbers get."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits and settings that the server advertises to every connection."""

    limits: Limits
    strict_types: bool = False
    model_version: int = 0


class Head(NamedTuple):
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


class Dialect(ABC):
    """One wire dialect of events."""

    version_key: ClassVar[str]
    name_key: ClassVar[str]
    """The member that names a message."""
    types: ClassVar[frozenset[str]]
    """The requests that exist in it."""
    holds_while_paging: ClassVar[bool]
    """Whether live events wait until a cycle of pages has ended."""
    is_watched: ClassVar[bool]
    """Whether its clients send heartbeats, so that silence means that they are gone."""
    is_exclusive: ClassVar[bool]
    """Whether a client has one connection at a time, or one of each instance that it names."""
    knows_reset: ClassVar[bool]
    """Whether there is a message for a cursor of another epoch; else it is an error."""
    echoes_names: ClassVar[bool]
    """Whether an answer must have the name of its request."""

    @property
    @abstractmethod
    def audience(self) -> Hashable:
        """Connections of one audience are sent the same bytes for the same event."""

    @abstractmethod
    def head(self, message: JsonObject) -> Head:
        """The envelope of a request, checked."""

    @abstractmethod
    def connect(self, payload: JsonObject) -> Connect:
        """The payload of `connect`."""

    @abstractmethod
    def submit(self, payload: Payload, who: Identity, terms: Terms, origin: bytes) -> Submit:
        """The payload of `submit_events`."""

    @abstractmethod
    def sync(self, payload: JsonObject, who: Identity) -> Sync:
        """The payload of `sync`."""

    @abstractmethod
    def message(self, kind: str, payload: bytes, msg_id: str, reply_to: str | None, now_ms: int) -> bytes:
        """A whole message to the client."""

    @abstractmethod
    def connected(self, welcome: Welcome, terms: Terms) -> bytes:
        """The payload of `connected`."""

    @abstractmethod
    def submitted(self, command: Submit, answer: Submitted) -> bytes:
        """The payload of `submit_events_result`."""

    @abstractmethod
    def page(self, asked: Sync, page: Page, subscribed: Sequence[str], terms: Terms) -> bytes:
        """The payload of `sync_response`."""

    def page_head(self, asked: Sync, subscribed: Sequence[str], reply_to: str | None, terms: Terms) -> int:
        """The most bytes that a `sync_response` has beside its events."""
        payload = self.page(asked, WIDEST, subscribed, terms)
        return len(self.message("sync_response", payload, f"s-{MAX_COMMITTED_ID}", reply_to, MAX_COMMITTED_ID))

    @abstractmethod
    def event(self, row: EventRow) -> bytes:
        """One committed event, in pages and in `event_broadcast`."""

    @abstractmethod
    def spelled(self, code: str) -> str:
        """How an error code is written."""
