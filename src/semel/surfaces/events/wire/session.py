"""The state machine of one connection: turns a text message into a request or an error.

| state | accepts | otherwise |
|---|---|---|
| awaiting | connect, heartbeat | bad_request, stays open |
| active | submit_events, sync, heartbeat, disconnect | bad_request, stays open |
| closed | nothing | - |

The dialect is detected from the first message that names a version, and then fixed. Nothing here is durable: after a
reconnect or a crash the client connects and syncs again.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from semel.kernel.json.fragment import JsonObject, dump
from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.reading import EventPage
from semel.surfaces.events.rules.event_types import EventTypes
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV1, CamelCaseV2
from semel.surfaces.events.wire.dialect import EventDialect, EventPolicy
from semel.surfaces.events.wire.fields import Payload, is_text, parsed, refuse_marks
from semel.surfaces.events.wire.message_size import is_short, measured
from semel.surfaces.events.wire.messages import Disconnect, EventIdentity, Heartbeat, Request, Sync, bad_request
from semel.surfaces.events.wire.plain_message import PlainCamelCase, PlainReader, PlainSnakeCase
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect

EVENT_LEVEL = 4
"""Four levels surround an event: the message, its payload, the list of items and the item."""


class SessionState(Enum):
    """The state of a connection."""

    AWAITING = "awaiting"
    ACTIVE = "active"
    CLOSED = "closed"


ACCEPTED_REQUESTS = {
    SessionState.AWAITING: frozenset({"connect", "heartbeat"}),
    SessionState.ACTIVE: frozenset({"submit_events", "sync", "heartbeat", "disconnect"}),
    SessionState.CLOSED: frozenset[str](),
}


class EventSession:
    """The protocol state of a connection, without a socket."""

    def __init__(self, policy: EventPolicy, origin: bytes) -> None:
        self.policy = policy
        self.origin = origin
        self.state = SessionState.AWAITING
        self.dialect: EventDialect | None = None
        self.who: EventIdentity | None = None
        self.reply_to: str | None = None
        """The name of the message that was read last."""
        self._plain: PlainReader | None = None
        self._cycle: tuple[tuple[str, ...], EventTypes, int, int] | None = None
        """Partitions, types, cursor and last position of a cycle that has more pages."""
        self._sent = 0

    def read(self, raw: bytes) -> Request:
        """Parse the request in a text message."""
        self.reply_to = None
        message, is_proved = parsed(raw, EVENT_LEVEL)
        dialect = self._detected(message)
        self._name(dialect, message.get(dialect.name_key))
        head = dialect.head(message)
        if not is_proved:
            refuse_marks(message, but="payload")
            refuse_marks(head.payload, but="events")
        return self._request(dialect, head.type, Payload(head.payload, is_proved))

    def read_plain(self, raw: bytes) -> EventSubmit | None:
        """Read a plain submission; None if `read` has to decide."""
        found = None if self._plain is None else self._plain.read(raw)
        if found is None:
            return None
        self.reply_to = found.reply_to
        return found.command

    def activate(self, who: EventIdentity) -> None:
        """Make the session active: the credential is valid."""
        self.who = who
        self.state = SessionState.ACTIVE
        if isinstance(self.dialect, SnakeCaseDialect):
            self._plain = PlainSnakeCase(self.policy, who, self.origin, self.dialect.profile)
        elif isinstance(self.dialect, CamelCaseV2):
            self._plain = PlainCamelCase(self.policy, who, self.origin, self.dialect.project)

    def bound_of(self, asked: Sync) -> int | None:
        """The last position of the cycle that a sync continues; None if the sync begins a cycle."""
        if self._cycle is not None and self._cycle[:3] == (asked.names, asked.types, asked.since):
            return self._cycle[3]
        return None

    def paged(self, asked: Sync, page: EventPage) -> None:
        """Record that a page was sent, so that the next sync can continue the cycle."""
        self._cycle = (asked.names, asked.types, page.next_since, page.sync_to) if page.has_more else None

    def message(self, kind: str, payload: bytes, reply_to: str | None, now_ms: int) -> bytes:
        """A message to the client, with a name that is new on this connection."""
        self._sent += 1
        if self.dialect is None:
            return _in_every_dialect(kind, payload, f"s-{self._sent}", now_ms)
        return self.dialect.message(kind, payload, f"s-{self._sent}", reply_to, now_ms)

    def error(self, code: str, message: str, details: Any, now_ms: int, reply_to: str | None = None) -> bytes:
        """An error to the client."""
        spelled = code if self.dialect is None else self.dialect.spelled(code)
        payload = dump({"code": spelled, "message": message, "details": details})
        return self.message("error", payload, reply_to, now_ms)

    def _name(self, dialect: EventDialect, name: Any) -> None:
        """Store the name of a message, unless the name is too long to be repeated in the answer."""
        if not is_text(name):
            return
        most = self.policy.limits.reply_bytes
        if is_short(name, most):
            self.reply_to = name
        elif dialect.echoes_names:
            raise bad_request(f"{dialect.name_key} has more than {most} bytes")

    def _detected(self, message: JsonObject) -> EventDialect:
        if self.dialect is None:
            is_seed, is_camel = (key in message for key in (SnakeCaseDialect.version_key, CamelCaseV1.version_key))
            if is_seed == is_camel:
                raise bad_request("send either protocol_version or protocolVersion")
            self.dialect = SnakeCaseDialect() if is_seed else CamelCaseV1()
        return self.dialect

    def _request(self, dialect: EventDialect, kind: str, payload: Payload) -> Request:
        members = payload.members
        if kind not in dialect.types:
            raise bad_request(f"there is no message of the type {kind[:64]}")
        if kind not in ACCEPTED_REQUESTS[self.state]:
            raise bad_request(f"{kind} is not expected while the connection is {self.state.value}")
        if kind == "heartbeat":
            return Heartbeat()
        if kind == "connect":
            if isinstance(dialect, CamelCaseV1) and "projectId" in members:
                dialect = CamelCaseV2()
            request = dialect.connect(members)
            if not is_short(request.client_id, self.policy.limits.head_bytes // 2):
                raise bad_request("the name of this client is too long to be told")
            self.dialect = dialect
            return request
        assert self.who is not None
        if kind == "submit_events":
            return measured(dialect.submit(payload, self.who, self.policy, self.origin), self.policy.limits)
        if kind == "sync":
            return dialect.sync(members, self.who)
        return Disconnect()


def _in_every_dialect(kind: str, payload: bytes, msg_id: str, now_ms: int) -> bytes:
    """A message with the fields of all dialects, sent before the dialect is known."""
    facts = {
        "type": kind,
        "msg_id": msg_id,
        "msgId": msg_id,
        "timestamp": now_ms,
        "protocol_version": "1.0",
        "protocolVersion": "1.0",
    }
    return b'%s,"payload":%s}' % (dump(facts)[:-1], payload)
