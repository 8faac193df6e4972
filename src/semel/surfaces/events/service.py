"""The state that all requests and connections of events on one node share.

The service knows the open connections and the submissions under way, owns the feed of live events, resolves
credentials to identities, and counts cursors that are not in the log. `load_validator` finds the application's
validator: `module:callable`, or the name of an entry point.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from semel.engine.caller import RequestOrigin, WaitingCaller
from semel.engine.contract import Write
from semel.kernel.errors import Refused
from semel.server.auth.authentication import admit_token, denied
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.ops.log_facts import namespace_fact
from semel.server.setting_values import SettingsError
from semel.server.settings import settings_of
from semel.surfaces.events.commands import EventCommitted, EventSubmitted, Validator
from semel.surfaces.events.contract import Events
from semel.surfaces.events.feed import EventFeed
from semel.surfaces.events.find import event_retries
from semel.surfaces.events.limits import EventLimits
from semel.surfaces.events.lookups import EVERYTHING, Reach
from semel.surfaces.events.metrics import EventsMetrics
from semel.surfaces.events.rules.epochs import CursorStatus
from semel.surfaces.events.settings import EventsSettings
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.dialect import EventPolicy
from semel.surfaces.events.wire.messages import EventIdentity

if TYPE_CHECKING:
    from semel.surfaces.events.conversation import EventConversation

LOG_EVERY_MS = 60_000
NO_REQUEST: Mapping[str, str] = MappingProxyType({})

_log = logging.getLogger("semel.events")


class AnswersSoon(Protocol):
    """The submissions of a connection, some of which can be answered."""

    origin: Callable[[], RequestOrigin]
    """What they belong to in logs."""

    def answer(self) -> None:
        """Send the answers."""


class CursorMonitor:
    """Counts and logs unknown cursors; one for each node."""

    def __init__(self, counts: Counter[str], wall_ms: Callable[[], int]) -> None:
        self._counts = counts
        self._wall_ms = wall_ms
        self._logged_at: dict[str, int] = {}

    def note(self, standing: CursorStatus, since: int) -> None:
        """Count and log the status of a client's cursor."""
        if standing.reset is not None:
            self._counts["resets"] += 1
            self._say("a cursor is of events that a restore has lost; its client was told to reset", since)
        elif standing.is_ahead:
            self._counts["cursors_ahead"] += 1
            self._say("a cursor is above every event of the log: was a backup restored without a new epoch?", since)

    def _say(self, words: str, since: int) -> None:
        """Log at most one line of each kind per minute; the metrics have the counts."""
        now_ms = self._wall_ms()
        if abs(now_ms - self._logged_at.get(words, -LOG_EVERY_MS)) >= LOG_EVERY_MS:
            self._logged_at[words] = now_ms
            _log.warning(words, extra={"since": since})


VALIDATOR_GROUP = "semel.events.validators"


def load_validator(name: str) -> Validator | None:
    """Load the validator of this name; None if the name is empty."""
    if not name:
        return None
    try:
        found = _imported_validator(name) if ":" in name else _installed_validator(name)
    except Exception as error:
        raise SettingsError(f"The validator {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SettingsError(f"The validator {name} is not callable.")
    return found


def _imported_validator(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _installed_validator(name: str) -> object:
    found = entry_points(group=VALIDATOR_GROUP, name=name)
    if not found:
        raise LookupError(f"there is no entry point of this name in the group {VALIDATOR_GROUP}")
    return next(iter(found)).load()


SURFACE = "events"
SOCKET_PATH = b"/v1/events"
PATH = SOCKET_PATH.decode()
ANSWERED_MS = 1_000
"""Milliseconds after the commit by which the submitter has its answer or has given up."""

ClientInstance = tuple[str, str]
"""The client id, and the client's name for the connecting process; empty for most clients."""


class EventService:
    """The shared state of all event connections; made once at start."""

    def __init__(self, context: Context) -> None:
        settings = settings_of(context.settings, EventsSettings)
        self.context = context
        self.settings = settings
        self.contract = Events(load_validator(settings.events_validator), settings.events_retention_ms)
        self.metrics = EventsMetrics()
        self.policy = EventPolicy(
            EventLimits(settings.events_batch_items, settings.events_message_bytes, settings.events_in_flight_items),
            settings.events_strict_types,
            settings.events_model_version,
        )
        self.counts = self.metrics.counts
        self.cursors = CursorMonitor(self.counts, context.world.wall_ms)
        self.feed = EventFeed(context.engine, self._answer_under_way, self.fault, self.counts)
        self._connections: dict[bytes, EventConversation] = {}
        self._posts: dict[bytes, asyncio.Future[Any]] = {}
        self._by_client: dict[ClientInstance, EventConversation] = {}
        self.takes_plain = self.contract.takes_plain
        """Whether plain submissions have an express decision here."""
        self._answers: list[AnswersSoon] = []
        self.metrics.connections = lambda: len(self._connections)
        self.metrics.live = lambda: len(self.feed)

    def origin(self) -> bytes:
        """A name for a connection, unique across all nodes."""
        return self.context.world.random_bytes(12)

    def opened(self, conversation: EventConversation) -> None:
        """Register a new connection."""
        self._connections[conversation.origin] = conversation

    def closed(self, conversation: EventConversation, instance: ClientInstance | None) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(conversation.origin, None)
        if instance is not None and self._by_client.get(instance) is conversation:
            del self._by_client[instance]

    async def post(self, write: Write, caller: WaitingCaller, origin: bytes) -> Any:
        """Submit the events of an HTTP request. Live subscribers get the events after the answer is sent."""
        future = self._posts[origin] = self.context.engine.admit(write, caller)
        try:
            return await future
        finally:
            del self._posts[origin]

    def answer_soon(self, answer: AnswersSoon) -> None:
        """Let it answer in the next pass of the loop: by then, all writes of the batch are settled."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._answer_all)
        self._answers.append(answer)

    def _answer_all(self) -> None:
        """Answer every connection; a fault in one must not keep the others from their answers."""
        answers, self._answers = self._answers, []
        for answer in answers:
            try:
                answer.answer()
            except Exception:  # noqa: BLE001 - the log has the details
                self.fault("fault in answering a connection", answer.origin().log_facts())

    def claim(self, instance: ClientInstance, conversation: EventConversation) -> None:
        """Close the older connection of this client instance: each instance has one connection on a node."""
        older = self._by_client.get(instance)
        self._by_client[instance] = conversation
        if older is not None:
            older.replaced()

    def principal(self, token: bytes, remote_address: str) -> Principal:
        """The principal of a credential; the address is for the audit log."""
        try:
            return admit_token(
                self.context, token, lambda: {"path": SOCKET_PATH.decode(), "remote_addr": remote_address}
            )
        except Refused as refused:
            raise Refused("auth_failed", refused.refusal.message, closes=True) from None

    def identity(self, principal: Principal, client_id: str) -> EventIdentity:
        """The rights of a caller under a client id; without credentials any client id is accepted."""
        if not self.context.principals.are_known:
            return EventIdentity(client_id, _always, _always)
        if principal.client_id != client_id:
            # The credential is valid, but the client id belongs to another caller: the caller lacks the right.
            message = "client_id is not the identity of this credential."
            raise Refused("auth_failed", message, own_status=403, closes=True)
        return EventIdentity(
            client_id,
            lambda name: principal.may(Role.WRITE, SURFACE, name.encode()),
            lambda name: principal.may(Role.READ, SURFACE, name.encode()),
            frozenset({principal.name, principal.client_id}),
        )

    def reach(self, principal: Principal) -> Reach:
        """The partitions within the scopes of a caller; without credentials, all."""
        if not self.context.principals.are_known:
            return EVERYTHING
        return principal.reach(SURFACE)

    def note_retries(self, answer: EventSubmitted, principal: str, remote_address: str) -> None:
        """Note the items of a submission that had been committed before."""
        now = monotonic()
        for one in answer.results:
            if isinstance(one, EventCommitted) and not one.is_new:
                self.context.retries.note(SURFACE, event_retries(one.committed_id), now, principal, remote_address)

    def denied(self, remote_address: str) -> None:
        """Write to the audit log that an authenticated caller was refused for lack of rights."""
        denied(self.context, {"path": PATH, "remote_addr": remote_address})

    def fault(self, what: str, request: Mapping[str, str] = NO_REQUEST) -> str:
        """Inside an exception handler: log the exception, and return the message for the client.

        `request` has the facts of the request or connection; a fault of the feed belongs to none.
        """
        error_id = self.context.world.random_bytes(8).hex()
        facts = {"error_id": error_id, **namespace_fact(self.context.namespace), **request}
        _log.exception(what, extra=facts)
        return f"Something went wrong here; connect again. Error id {error_id}."

    def _answer_under_way(self, row: EventRow) -> asyncio.Future[object] | None:
        if self.context.world.wall_ms() - row.committed_at > ANSWERED_MS:
            return None  # a submission of this event that is pending now is a retry
        conversation = self._connections.get(row.origin)
        return self._posts.get(row.origin) if conversation is None else conversation.under_way(row.id)


def _always(name: str) -> bool:
    return True
