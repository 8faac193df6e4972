"""State that the event connections of a node share: the feed, the open connections, and the advertised limits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from semel.contracts.events.contract import Events
from semel.contracts.events.limits import Limits
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.dialect import Terms
from semel.contracts.events.wire.messages import Identity, WireError
from semel.engine.contract import Write
from semel.engine.engine import Caller
from semel.kernel.errors import Refused
from semel.server.admission import admit_token, denied
from semel.server.context import Context
from semel.server.events.cursors import CursorWatch
from semel.server.events.feed import Feed
from semel.server.events.validators import load_validator
from semel.server.principals import Principal, Role
from semel.server.settings import settings_of
from semel.surfaces.events.metrics import EventsMetrics
from semel.surfaces.events.settings import EventsSettings

if TYPE_CHECKING:
    from semel.server.events.conversation import Conversation

SURFACE = "events"
SOCKET_PATH = b"/v1/events"
PATH = SOCKET_PATH.decode()
ANSWERED_MS = 1_000
"""An event of this age has been answered, or its submitter has given up."""

Instance = tuple[str, str]
"""A client, and its own name for the process that connects; most have none."""

_log = logging.getLogger("semel.events")


class Hub:
    """The shared state of all event connections; made once at start."""

    def __init__(self, context: Context) -> None:
        settings = settings_of(context.settings, EventsSettings)
        self.context = context
        self.settings = settings
        self.contract = Events(load_validator(settings.events_validator), settings.events_retention_ms)
        self.metrics = EventsMetrics()
        self.terms = Terms(
            Limits(settings.events_batch_items, settings.events_message_bytes, settings.events_in_flight_items),
            settings.events_strict_types,
            settings.events_model_version,
        )
        self.counts = self.metrics.counts
        self.cursors = CursorWatch(self.counts, context.world.wall_ms)
        self.feed = Feed(context.engine, self._answer_under_way, self.fault, self.counts)
        self._connections: dict[bytes, Conversation] = {}
        self._posts: dict[bytes, asyncio.Future[Any]] = {}
        self._by_client: dict[Instance, Conversation] = {}
        self.metrics.connections = lambda: len(self._connections)
        self.metrics.live = lambda: len(self.feed)

    def origin(self) -> bytes:
        """A name for a connection that no other has, on any node."""
        return self.context.world.random_bytes(12)

    def opened(self, conversation: Conversation) -> None:
        """A connection was made."""
        self._connections[conversation.origin] = conversation

    def closed(self, conversation: Conversation, instance: Instance | None) -> None:
        """A connection has ended."""
        self._connections.pop(conversation.origin, None)
        if instance is not None and self._by_client.get(instance) is conversation:
            del self._by_client[instance]

    async def post(self, write: Write, caller: Caller, origin: bytes) -> Any:
        """Submit events of an HTTP request; live subscribers get them after its answer."""
        future = self._posts[origin] = self.context.engine.admit(write, caller)
        try:
            return await future
        finally:
            del self._posts[origin]

    def claim(self, instance: Instance, conversation: Conversation) -> None:
        """An instance of a client has one connection here: the newest."""
        older = self._by_client.get(instance)
        self._by_client[instance] = conversation
        if older is not None:
            older.replaced()

    def principal(self, token: bytes, remote_address: str) -> Principal:
        """Who a credential is; the address is for the audit log."""
        try:
            return admit_token(
                self.context, token, lambda: {"path": SOCKET_PATH.decode(), "remote_addr": remote_address}
            )
        except Refused as refused:
            raise WireError("auth_failed", refused.problem.detail, closes=True) from None

    def identity(self, principal: Principal, client_id: str) -> Identity:
        """The rights of a caller under a client id; without credentials any client id is accepted."""
        if not self.context.principals.are_known:
            return Identity(client_id, _everything, _everything)
        if principal.client_id != client_id:
            raise WireError("auth_failed", "client_id is not the identity of this credential.", closes=True)
        return Identity(
            client_id,
            lambda name: principal.may(Role.WRITE, SURFACE, name.encode()),
            lambda name: principal.may(Role.READ, SURFACE, name.encode()),
            frozenset({principal.name, principal.client_id}),
        )

    def denied(self, remote_address: str) -> None:
        """Write to the audit log that an authenticated caller was refused for lack of rights."""
        denied(self.context, {"path": PATH, "remote_addr": remote_address})

    def fault(self, what: str) -> str:
        """Inside an exception handler: log the exception, and return the message for the client."""
        error_id = self.context.world.random_bytes(8).hex()
        _log.exception(what, extra={"error_id": error_id})
        return f"Something went wrong here; connect again. Error id {error_id}."

    def _answer_under_way(self, row: EventRow) -> asyncio.Future[object] | None:
        if self.context.world.wall_ms() - row.committed_at > ANSWERED_MS:
            return None  # what is under way now is a repetition
        conversation = self._connections.get(row.origin)
        return self._posts.get(row.origin) if conversation is None else conversation.under_way(row.id)


def _everything(name: str) -> bool:
    return True
