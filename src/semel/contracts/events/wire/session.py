"""The state machine of one connection: text in, a request out, or an error.

| state | takes | else |
|---|---|---|
| awaiting | connect, heartbeat | bad_request, stays |
| active | submit_events, sync, heartbeat, disconnect | bad_request, stays |
| closed | nothing | - |

The dialect is detected from the first message that names a version, and then fixed. Nothing here is durable: after a
reconnect the client begins again.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from semel.contracts.events.reading import Page
from semel.contracts.events.wire.camel_v1 import CamelV1
from semel.contracts.events.wire.camel_v2 import CamelV2
from semel.contracts.events.wire.dialect import Dialect, Terms
from semel.contracts.events.wire.fields import Payload, is_text, parsed, refuse_marks
from semel.contracts.events.wire.frame_size import is_short, measured
from semel.contracts.events.wire.messages import (
    Disconnect,
    Heartbeat,
    Identity,
    Request,
    Sync,
    bad_request,
)
from semel.contracts.events.wire.seed import Seed
from semel.kernel.json_fragment import JsonObject
from semel.kernel.json_print import dump

EVENT_LEVEL = 4
"""An event is nested in a message, its payload, the list of items and its item."""


class State(Enum):
    """The state of a connection."""

    AWAITING = "awaiting"
    ACTIVE = "active"
    CLOSED = "closed"


TAKES = {
    State.AWAITING: frozenset({"connect", "heartbeat"}),
    State.ACTIVE: frozenset({"submit_events", "sync", "heartbeat", "disconnect"}),
    State.CLOSED: frozenset[str](),
}


class Session:
    """The protocol state of a connection, without a socket."""

    def __init__(self, terms: Terms, origin: bytes) -> None:
        self.terms = terms
        self.origin = origin
        self.state = State.AWAITING
        self.dialect: Dialect | None = None
        self.who: Identity | None = None
        self.reply_to: str | None = None
        """The name of the message that was read last."""
        self._cycle: tuple[tuple[str, ...], int, int] | None = None
        """Partitions, cursor and bound of a cycle that has more pages."""
        self._sent = 0

    def read(self, raw: bytes) -> Request:
        """The request in a text message."""
        self.reply_to = None
        message, is_proved = parsed(raw, EVENT_LEVEL)
        dialect = self._detected(message)
        self._name(dialect, message.get(dialect.name_key))
        head = dialect.head(message)
        if not is_proved:
            refuse_marks(message, but="payload")
            refuse_marks(head.payload, but="events")
        return self._request(dialect, head.type, Payload(head.payload, is_proved))

    def activate(self, who: Identity) -> None:
        """The credential was good."""
        self.who = who
        self.state = State.ACTIVE

    def bound_of(self, asked: Sync) -> int | None:
        """The bound of the cycle that a sync continues; None when it begins one."""
        if self._cycle is not None and self._cycle[:2] == (asked.names, asked.since):
            return self._cycle[2]
        return None

    def paged(self, asked: Sync, page: Page) -> None:
        """A page was sent."""
        self._cycle = (asked.names, page.next_since, page.sync_to) if page.has_more else None

    def message(self, kind: str, payload: bytes, reply_to: str | None, now_ms: int) -> bytes:
        """A message to the client, with a name that this connection has not had."""
        self._sent += 1
        if self.dialect is None:
            return _in_every_dialect(kind, payload, f"s-{self._sent}", now_ms)
        return self.dialect.message(kind, payload, f"s-{self._sent}", reply_to, now_ms)

    def error(self, code: str, message: str, details: Any, now_ms: int, reply_to: str | None = None) -> bytes:
        """An error to the client."""
        spelled = code if self.dialect is None else self.dialect.spelled(code)
        payload = dump({"code": spelled, "message": message, "details": details})
        return self.message("error", payload, reply_to, now_ms)

    def _name(self, dialect: Dialect, name: Any) -> None:
        """Remember the name of a message; one that is too long to be sent back is not."""
        if not is_text(name):
            return
        most = self.terms.limits.reply_bytes
        if is_short(name, most):
            self.reply_to = name
        elif dialect.echoes_names:
            raise bad_request(f"{dialect.name_key} has more than {most} bytes")

    def _detected(self, message: JsonObject) -> Dialect:
        if self.dialect is None:
            is_seed, is_camel = (key in message for key in (Seed.version_key, CamelV1.version_key))
            if is_seed == is_camel:
                raise bad_request("send either protocol_version or protocolVersion")
            self.dialect = Seed() if is_seed else CamelV1()
        return self.dialect

    def _request(self, dialect: Dialect, kind: str, payload: Payload) -> Request:
        members = payload.members
        if kind not in dialect.types:
            raise bad_request(f"there is no message of the type {kind[:64]}")
        if kind not in TAKES[self.state]:
            raise bad_request(f"{kind} is not expected while the connection is {self.state.value}")
        if kind == "heartbeat":
            return Heartbeat()
        if kind == "connect":
            if isinstance(dialect, CamelV1) and "projectId" in members:
                dialect = CamelV2()
            request = dialect.connect(members)
            if not is_short(request.client_id, self.terms.limits.head_bytes // 2):
                raise bad_request("the name of this client is too long to be told")
            self.dialect = dialect
            return request
        assert self.who is not None
        if kind == "submit_events":
            return measured(dialect.submit(payload, self.who, self.terms, self.origin), self.terms.limits)
        if kind == "sync":
            return dialect.sync(members, self.who)
        return Disconnect()


def _in_every_dialect(kind: str, payload: bytes, msg_id: str, now_ms: int) -> bytes:
    """Before the dialect is known, a message has the fields of both."""
    facts = {
        "type": kind,
        "msg_id": msg_id,
        "msgId": msg_id,
        "timestamp": now_ms,
        "protocol_version": "1.0",
        "protocolVersion": "1.0",
    }
    return b'%s,"payload":%s}' % (dump(facts)[:-1], payload)
